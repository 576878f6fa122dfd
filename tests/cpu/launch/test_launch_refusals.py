"""What launchkit refuses about a kernel or a launch of it, and what LAUNCHKIT_VERIFY lets pass."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
from benching import launched_block

import launchkit
from launchkit import hostonly
from launchkit.errors import UsageError

pytestmark = pytest.mark.usefixtures("each_core", "host")


def test_wrong_call_names_the_kernel():
    x = torch.empty(64)
    launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
    with pytest.raises(TypeError, match=r"^copy\(\)"):
        launchkit.launch(sample_kernels.copy, (1,), x, x, 64, BLOCK=16)


def test_machine_without_a_gpu_is_told_what_to_do(monkeypatch):
    hostonly.deactivate()
    x = torch.empty(64)
    for call in (
        lambda: launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16),
        lambda: launchkit.autotuned(sample_kernels.configs(16), ["n"])(sample_kernels.copy)[(1,)](
            x, x, 64, 1
        ),
    ):
        with pytest.raises(UsageError, match=r"hostonly\.activate"):
            call()


class TestVerify:
    @pytest.fixture(autouse=True)
    def on(self, monkeypatch):
        from launchkit import settings

        monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
        settings.reload()

    def test_cleared_caches_are_a_miss_and_no_alarm(self):
        x = torch.empty(64)
        for _ in range(2):
            for _ in range(2):
                launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
            sample_kernels.copy.device_caches.clear()

    def test_hit_is_captured_under_verification_too(self):
        x = torch.empty(64)
        for _ in range(2):
            launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
        with hostonly.capturing():
            launchkit.launch(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)


@pytest.mark.parametrize(
    ("configs", "options", "advice"),
    [
        ([{"BLOCK": 16}], {"key": ["n"]}, "triton.Config"),
        (None, {"key": "n"}, r"key=\['n'\]"),
        (None, {"key": ["n"], "restore_value": "y_ptr"}, r"restore_value=\['y_ptr'\]"),
        (None, {"key": ["m"]}, "those that it has"),
        (None, {"key": ["n"], "nonsense": 1}, "no option nonsense"),
    ],
)
def test_wrong_option_is_refused_at_decoration_with_what_would_do(configs, options, advice):
    configs = sample_kernels.configs(16, 32) if configs is None else configs
    with pytest.raises(UsageError, match=advice):
        launchkit.autotuned(configs, **options)(sample_kernels.copy)


def test_kernel_called_without_a_grid_says_how_to_launch():
    kernel = launchkit.autotuned(sample_kernels.configs(16), ["n"], name="mine")(
        sample_kernels.copy
    )
    with pytest.raises(UsageError, match=r"mine.*kernel\[grid\]"):
        kernel(1, 2, 3)


def test_recording_calls_a_kernel_by_its_declared_name():
    kernel = launchkit.autotuned(sample_kernels.configs(16), ["n"], name="mine")(
        sample_kernels.copy
    )
    with launchkit.profile_launches() as profile:
        launched_block(kernel)
    assert [row.kernel for row in profile.rows] == ["mine"]
    assert "mine" in str(profile)
    assert "median" in str(profile)
