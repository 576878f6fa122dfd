"""Launches with tensors on another GPU than the current one; needs two."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs

import launchkit
from launchkit.errors import MixedDevicesError

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")

N = 1000


@pytest.fixture(params=["c", "python"])
def each_core(request, monkeypatch):
    """Runs a test with each of the two cores."""
    from launchkit import settings
    from launchkit.dispatch import launcher  # noqa: F401  the C core is set up with it
    from launchkit.dispatch.native import extension

    monkeypatch.setenv("LAUNCHKIT_NATIVE", "1" if request.param == "c" else "0")
    settings.reload()
    if request.param == "c" and extension.active() is None:
        pytest.skip(f"no C core: {extension.obstacle() or 'switched off at import'}")
    # A kernel keeps the core of its first launch.
    vars(sample_kernels.copy).pop("_launchkit_entry", None)
    yield request.param
    vars(sample_kernels.copy).pop("_launchkit_entry", None)
    monkeypatch.undo()
    settings.reload()


def tensors(device):
    x = torch.randn(N, device=f"cuda:{device}")
    return x, torch.full((N,), float("nan"), device=f"cuda:{device}")


def grid(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def tuned():
    return launchkit.autotuned(sample_kernels.configs(64), ["n"])(sample_kernels.copy)


def ways():
    kernel = tuned()
    return [
        lambda x, y: launchkit.launch(sample_kernels.copy, grid, x, y, N, 1, BLOCK=64),
        lambda x, y: launchkit.launch_autotuned(kernel, grid, x, y, N, 1),
        lambda x, y: kernel[grid](x, y, N, stride=1),
    ]


@pytest.mark.usefixtures("each_core")
@pytest.mark.parametrize("way", range(3), ids=["launch", "launch_autotuned", "kernel[grid]"])
def test_values_are_written_on_the_tensors_own_device(way):
    launch = ways()[way]
    for current in (0, 1):
        with torch.cuda.device(current):
            for device in (0, 1, 1, 0, 0, 1):
                x, y = tensors(device)
                with counted_runs() as runs:
                    launch(x, y)
                torch.cuda.synchronize(device)
                assert torch.equal(x, y)
                assert torch.cuda.current_device() == current
            assert runs.total == 0


@pytest.mark.usefixtures("each_core")
def test_launch_goes_to_the_current_stream_of_the_tensors_device():
    kernel = tuned()
    x, y = tensors(1)
    kernel[grid](x, y, N, 1)
    torch.cuda.synchronize(1)
    side = torch.cuda.Stream(device=1)
    for _ in range(2):
        y.fill_(float("nan"))
        torch.cuda.synchronize(1)
        with torch.cuda.device(1), torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            with torch.cuda.device(0):
                kernel[grid](x, y, N, 1)
            done = torch.cuda.Event()
            done.record(side)
        assert not done.query()  # it waits behind the sleep: it is on that stream
        side.synchronize()
        assert torch.equal(x, y)


@pytest.mark.usefixtures("each_core")
@pytest.mark.parametrize("way", range(3), ids=["launch", "launch_autotuned", "kernel[grid]"])
def test_tensors_on_both_devices_are_refused(way):
    launch = ways()[way]
    launch(*tensors(0))
    for first, second in ((0, 1), (1, 0)):
        x, _ = tensors(first)
        _, y = tensors(second)
        with pytest.raises(MixedDevicesError) as caught:
            launch(x, y)
        assert caught.value.fields["devices"] == {"x_ptr": first, "y_ptr": second}
        torch.cuda.synchronize(second)
        assert y.isnan().all()


def test_frozen_launch_runs_where_its_tensors_are():
    x, y = tensors(1)
    frozen = launchkit.freeze(sample_kernels.copy, grid, x, y, N, 1, BLOCK=64, varying="x_ptr")
    for _ in range(2):
        x, _ = tensors(1)
        frozen(x)
        torch.cuda.synchronize(1)
        assert torch.equal(x, y)
