"""The config list of an autotuned kernel has changed: the very next launch is made of it."""

from __future__ import annotations

from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from benching import kernel_by_device
from launching import counted_runs, outcome, plans

import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam as seam
from launchkit.errors import LaunchkitError

pytestmark = pytest.mark.usefixtures("each_core")


def grid_of_block(meta):
    return (meta["BLOCK"],)


@pytest.fixture
def tuned(host):
    """An autotuned kernel that was launched with its first config, BLOCK=16."""
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    assert block_of(kernel) == 16
    assert block_of(kernel) == 16
    return kernel


def block_of(kernel):
    """Launch, and tell from the grid which BLOCK the launch was made with."""
    x = torch.empty(64)
    launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
    return hostonly.launches()[-1].grid[0]


def takes_shortcut(kernel):
    with counted_runs() as runs:
        block_of(kernel)
    return runs.total == 0


CHANGES = {
    "first removed": (lambda configs: configs.pop(0), 32),
    "first replaced": (lambda configs: configs.__setitem__(0, triton.Config({"BLOCK": 64})), 64),
    "reordered": (lambda configs: configs.reverse(), 32),
    "one put in front": (lambda configs: configs.insert(0, triton.Config({"BLOCK": 64})), 64),
    "one put behind": (lambda configs: configs.append(triton.Config({"BLOCK": 64})), 16),
    "kwargs changed": (lambda configs: configs[0].kwargs.__setitem__("BLOCK", 64), 64),
    "kwargs replaced": (lambda configs: setattr(configs[0], "kwargs", {"BLOCK": 64}), 64),
}


@pytest.mark.parametrize("change", CHANGES)
def test_config_list_changed_in_place_holds_at_the_next_launch(tuned, change):
    mutate, expected = CHANGES[change]
    mutate(tuned.configs)
    assert block_of(tuned) == expected
    assert block_of(tuned) == expected
    assert takes_shortcut(tuned)


def test_config_list_rebound_holds_at_the_next_launch(tuned):
    tuned.configs = sample_kernels.configs(32)
    assert block_of(tuned) == 32
    tuned.configs = sample_kernels.configs(16)
    assert block_of(tuned) == 16
    assert takes_shortcut(tuned)


def test_every_config_can_be_launched_one_by_one_by_rebinding_the_list(tuned):
    for block in (16, 32, 64, 32, 16):
        tuned.configs = sample_kernels.configs(block)
        assert block_of(tuned) == block


def test_config_field_changed_in_place_holds_at_the_next_launch(tuned):
    config = tuned.configs[0]
    for warps in (2, 4, 2):
        config.num_warps = warps
        assert block_of(tuned) == 16
        assert hostonly.launches()[-1].block == (32 * warps, 1, 1)
        assert takes_shortcut(tuned)


def test_pre_hook_put_on_a_config_runs_from_the_next_launch_on(tuned):
    seen = []
    tuned.configs[0].pre_hook = lambda named: seen.append(named["BLOCK"])
    for _ in range(3):
        block_of(tuned)
    assert seen == [16, 16, 16]


def test_two_unlike_devices_choose_a_config_each(measuring, monkeypatch):
    identity = seam.device_identity

    def named(device):
        return replace(identity(device), name=f"device {device}")

    monkeypatch.setattr(seam, "device_identity", named)
    kernel = kernel_by_device()
    for _ in range(2):
        for device, block in ((0, 16), (1, 32)):
            hostonly.set_device(device)
            assert block_of(kernel) == block
    assert takes_shortcut(kernel)


# -- configs and parameters


def test_config_that_leaves_a_parameter_to_its_default_launches_it_with_the_default(host):
    configs = [triton.Config({"SIZE": 16}), triton.Config({"SIZE": 32, "SPLIT": 2})]
    kernel = launchkit.autotuned(configs, ["n"])(odd_kernels.optional)
    theirs = triton.autotune(configs, ["n"])(odd_kernels.optional)
    x = torch.empty(64)
    for grid in ((2,), lambda meta: (meta["SIZE"], meta["SPLIT"])):
        expected = outcome(lambda grid=grid: theirs[grid](x, 4))
        for _ in range(3):
            assert (
                outcome(lambda grid=grid: launchkit.launch_autotuned(kernel, grid, x, 4))
                == expected
            )
    assert plans(kernel) == 1


def test_parameter_that_only_another_config_gives_may_be_passed(host):
    configs = [triton.Config({"SIZE": 16}), triton.Config({"SIZE": 32, "SPLIT": 2})]
    kernel = launchkit.autotuned(configs, ["n"])(odd_kernels.optional)
    theirs = triton.autotune(configs, ["n"])(odd_kernels.optional)
    x = torch.empty(64)
    expected = outcome(lambda: theirs[(2,)](x, 4, SPLIT=3))
    for _ in range(2):
        assert outcome(lambda: launchkit.launch_autotuned(kernel, (2,), x, 4, SPLIT=3)) == expected


AUTOTUNED_WRONG_CALLS = {
    "missing argument": ((), {}),
    "meta-parameter by keyword": ((4, 1), {"BLOCK": 16}),
    "meta-parameter by position": ((4, 1, 16), {}),
    "unknown keyword": ((4, 1), {"unheard": 1}),
    "option of the config": ((4, 1), {"num_warps": 2}),
    "given twice": ((4, 1), {"n": 4}),
}


@pytest.mark.parametrize("blocks", [(16,), (16, 32)], ids=["one config", "two configs"])
@pytest.mark.parametrize("wrong", AUTOTUNED_WRONG_CALLS)
def test_wrong_call_of_an_autotuned_kernel_raises_what_triton_raises(host, wrong, blocks):
    args, kwargs = AUTOTUNED_WRONG_CALLS[wrong]
    x = torch.empty(64)
    configs = sample_kernels.configs(*blocks)
    ours = launchkit.autotuned(configs, ["n"])(sample_kernels.copy)
    theirs = triton.autotune(configs, ["n"])(sample_kernels.copy)
    for _ in range(2):
        expected = outcome(lambda: theirs[(2,)](x, x, *args, **kwargs))
        assert issubclass(expected, Exception)
        found = outcome(lambda: launchkit.launch_autotuned(ours, (2,), x, x, *args, **kwargs))
        assert found is expected
        right = outcome(lambda: theirs[(2,)](x, x, 4, 1))
        assert outcome(lambda: launchkit.launch_autotuned(ours, (2,), x, x, 4, 1)) == right


def test_launch_autotuned_refuses_a_kernel_without_configs(host):
    with pytest.raises(LaunchkitError, match="has no autotune configs"):
        launchkit.launch_autotuned(
            sample_kernels.copy, (1,), torch.empty(4), torch.empty(4), 4, 1, BLOCK=16
        )


@pytest.mark.parametrize("thing", [None, 3, print, object()], ids=["None", "3", "print", "object"])
def test_launch_refuses_what_is_no_kernel(host, thing):
    with pytest.raises(LaunchkitError, match="is not a Triton kernel"):
        launchkit.launch(thing, (1,))
