"""Launches go where their tensors are; under install() they stay on the current device.

CPU tensors stand for a GPU's here, so which GPU one is on is said by a table.
"""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from benching import kernel_by_device
from launching import counted_runs, triton_launch

import launchkit
from launchkit import hostonly
from launchkit.dispatch import placing
from launchkit.errors import MixedDevicesError

pytestmark = pytest.mark.usefixtures("each_core", "host")


@pytest.fixture
def on(monkeypatch):
    """Returns a function that makes a tensor of a device."""
    places = {}

    def device_of(value):
        return places.get(id(value), (None, None))[1] if isinstance(value, torch.Tensor) else None

    def tensor(device):
        made = torch.empty(64)
        places[id(made)] = made, device
        return made

    monkeypatch.setattr(placing, "_device_of", device_of)
    monkeypatch.setattr(placing, "several_devices", lambda: True)
    return tensor


def plain(grid, x, y):
    return launchkit.launch(sample_kernels.copy, grid, x, y, 64, 1, BLOCK=16)


def tuned_kernel(make=launchkit.autotuned):
    return make(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)


def above(make):
    return triton.heuristics({"stride": lambda args: args["n"] // 64})(tuned_kernel(make))


def below(make):
    return make([triton.Config({}, num_warps=2), triton.Config({})], ["n"])(
        triton.heuristics({"BLOCK": lambda args: 16})(sample_kernels.copy)
    )


def autotuned_function():
    kernel = tuned_kernel()
    return lambda grid, x, y: launchkit.launch_autotuned(kernel, grid, x, y, 64, 1)


def subscript():
    kernel = tuned_kernel()
    return lambda grid, x, y: kernel[grid](x, y, 64, stride=1)


def run():
    kernel = tuned_kernel()
    return lambda grid, x, y: kernel.run(x, y, 64, 1, grid=grid)


def heuristics_above():
    kernel = above(triton.autotune)
    return lambda grid, x, y: launchkit.launch(kernel, grid, x, y, n=64)


def heuristics_below():
    kernel = below(triton.autotune)
    return lambda grid, x, y: launchkit.launch(kernel, grid, x, y, 64, 1)


ENTRIES = {
    "launch": lambda: plain,
    "launch_autotuned": autotuned_function,
    "kernel[grid]": subscript,
    "run": run,
    "heuristics above": heuristics_above,
    "heuristics below": heuristics_below,
}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("device", [0, 1])
def test_launches_are_made_where_the_tensors_are(entry, device, on):
    # One device a test: a CPU tensor of device 1 looks to the cores like one of device 0.
    launch = ENTRIES[entry]()
    seen = []

    def grid(meta):
        seen.append(triton.runtime.driver.active.get_current_device())
        return (2,)

    for size in ((2,), grid, (2,), grid):
        hostonly.clear()
        compiled = launch(size, on(device), on(device))
        (made,) = hostonly.launches()
        assert made.device == device
        assert compiled is not None
        assert triton.runtime.driver.active.get_current_device() == 0
    assert seen == [device] * 2


@pytest.mark.parametrize("entry", ["launch", "launch_autotuned", "kernel[grid]"])
def test_known_launch_on_another_device_is_a_shortcut(entry, on):
    launch = ENTRIES[entry]()
    launch((2,), on(1), on(1))
    with counted_runs() as runs:
        launch((2,), on(1), on(1))
    assert runs.total == 0


def test_parameters_and_kernel_are_those_of_a_launch_under_that_device(on):
    x, y = on(1), on(1)
    plain((2,), x, y)
    (ours,) = hostonly.launches()
    hostonly.clear()
    hostonly.set_device(1)
    triton_launch(sample_kernels.copy, (2,), (x, y, 64, 1), {"BLOCK": 16})
    assert hostonly.launches() == [ours]


@pytest.mark.parametrize("entry", ENTRIES)
def test_tensors_on_several_devices_are_refused_by_name(entry, on):
    launch = ENTRIES[entry]()
    for _ in range(2):
        with pytest.raises(MixedDevicesError, match="x_ptr on cuda:1, y_ptr on cuda:0") as caught:
            launch((2,), on(1), on(0))
        assert caught.value.fields["devices"] == {"x_ptr": 1, "y_ptr": 0}
        assert hostonly.launches() == []


def test_device_is_the_old_one_after_an_error(on):
    def grid(meta):
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            plain(grid, on(1), on(1))
        assert triton.runtime.driver.active.get_current_device() == 0
        plain((2,), on(1), on(1))


def test_config_is_tuned_on_the_device_of_the_tensors(on, measuring):
    kernel = kernel_by_device()
    for n, device, block in ((64, 1, 32), (64, 1, 32), (48, 0, 16)):
        kernel[lambda meta: (meta["BLOCK"],)](on(device), on(device), n, 1)
        last = hostonly.launches()[-1]
        assert (last.device, last.grid[0]) == (device, block)


def test_kernels_of_others_stay_on_the_current_device_under_install(on):
    kernels = [
        (tuned_kernel(triton.autotune), {"n": 64, "stride": 1}),
        (above(triton.autotune), {"n": 64}),
        (below(triton.autotune), {"n": 64, "stride": 1}),
        (sample_kernels.copy, {"n": 64, "stride": 1, "BLOCK": 32}),
    ]
    launchkit.install()
    try:
        for kernel, rest in kernels:
            for _ in range(3):
                kernel[(2,)](on(1), on(0), **rest)
                assert hostonly.launches()[-1].device == 0
    finally:
        launchkit.uninstall()


def test_own_launches_go_where_their_tensors_are_under_install(on):
    theirs, mine, inner = tuned_kernel(triton.autotune), tuned_kernel(), tuned_kernel()
    x, y = on(1), on(1)

    def grid(meta):
        inner[(1,)](x, y, 64, 1)
        return (2,)

    launchkit.install()
    try:
        for _ in range(2):
            mine[(2,)](x, y, 64, 1)
            launchkit.launch(theirs, (2,), x, y, 64, 1)
        assert [made.device for made in hostonly.launches()] == [1] * 4
        hostonly.clear()
        theirs[grid](on(0), on(1), n=64, stride=2)
        assert [made.device for made in hostonly.launches()] == [1, 0]
    finally:
        launchkit.uninstall()


def test_frozen_handle_refuses_tensors_on_several_devices(on):
    with pytest.raises(MixedDevicesError):
        launchkit.freeze(sample_kernels.copy, (2,), on(1), on(0), 64, 1, BLOCK=16, varying="n")


def test_tensors_in_tuples_and_descriptors_count(on):
    class Descriptor:
        def __init__(self, base):
            self.base = base

    for first in ((on(1), 3), Descriptor(on(1))):
        assert placing.other_device("k", ["a", "b"], [first], {"b": on(1)}) == 1
        with pytest.raises(MixedDevicesError):
            placing.other_device("k", ["a", "b"], [first], {"b": on(0)})
    assert placing.other_device("k", ["a"], [3], {}) is None
    assert placing.other_device("k", ["a"], [on(0)], {}) is None
