"""A grid function may do anything; the launch under way stays what Triton would make of it."""

from __future__ import annotations

import gc

import pytest
import sample_kernels
import torch
from launching import hit, outcome, triton_launch
from triton import knobs

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core", "host")


def tuned():
    return launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)


def check(action, kernel=None, launches=1):
    x = torch.empty(64)
    kernel = kernel or sample_kernels.copy
    options = {} if hasattr(kernel, "configs") else {"BLOCK": 16}
    launchkit.launch(kernel, (2,), x, x, 64, 1, **options)
    expected = hit(kernel, x, x, 64, 1, **options)

    def grid(meta):
        action(kernel, meta)
        return (2,)

    hostonly.clear()
    launchkit.launch(kernel, grid, x, x, 64, 1, **options)
    assert hostonly.launches()[-1] == expected
    assert len(hostonly.launches()) == launches
    launchkit.launch(kernel, (2,), x, x, 64, 1, **options)
    again = hostonly.launches()[-1]  # of a binary that may have been loaded anew
    assert (again.grid, again.params) == (expected.grid, expected.params)


def test_grid_function_that_clears_the_core():
    check(lambda kernel, meta: kernel._launchkit_entry._core.clear())


def test_grid_function_that_drops_the_launcher_and_collects():
    def action(kernel, meta):
        del kernel._launchkit_entry
        gc.collect()

    check(action)
    check(action, tuned())


def test_grid_function_that_changes_and_keeps_its_mapping():
    kept = []

    def action(kernel, meta):
        meta.clear()
        meta["n"] = 3
        kept.append(meta)

    check(action)
    check(action)
    assert kept[0] is not kept[1]


def test_grid_function_that_clears_tritons_caches():
    check(lambda kernel, meta: kernel.device_caches.clear())


def test_grid_function_that_makes_many_plans():
    def action(kernel, meta):
        for n in range(20):
            launchkit.launch(kernel, (1,), meta["x_ptr"], meta["x_ptr"], n, 2, BLOCK=16)

    check(action, launches=21)


def test_grid_function_that_launches_with_other_keywords():
    def action(kernel, meta):
        x = meta["x_ptr"]
        for rounds in range(40):
            named = {f"{'n'}": 64, "".join(["str", "ide"]): 1, "BLOCK": 16}
            launchkit.launch(kernel, (1,), x, x, **dict(sorted(named.items())[: rounds + 3]))

    check(action, launches=41)


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_launch_hook_that_the_grid_function_installs_is_called_at_once(name):
    seen, chain = [], getattr(knobs.runtime, name)
    try:
        check(lambda kernel, meta: chain.add(seen.append))
    finally:
        chain.remove(seen.append)
    assert len(seen) == 2


def test_grid_function_that_changes_the_device():
    x = torch.empty(64)
    launchkit.launch(sample_kernels.copy, (2,), x, x, 64, 1, BLOCK=16)

    def grid(meta):
        hostonly.set_device(1)
        return (2,)

    def launched(launch):
        hostonly.set_device(0)
        return outcome(lambda: launch(sample_kernels.copy, grid, x, x, 64, 1, BLOCK=16))

    ours = launched(launchkit.launch)
    theirs = launched(lambda kernel, grid, *args, **kw: triton_launch(kernel, grid, args, kw))
    assert ours == theirs
