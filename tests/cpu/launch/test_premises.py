"""What a plan was made on has changed: the very next launch is what Triton would make of it."""

from __future__ import annotations

import gc

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, hit, launch_as_triton
from triton import knobs

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core")

HAS_STAGES_HOOK = hasattr(knobs.runtime, "add_stages_inspection_hook")
with_hook_chains = pytest.mark.skipif(
    not hasattr(knobs.runtime.launch_enter_hook, "add"), reason="this Triton has no chains of hooks"
)


@pytest.fixture
def x(host):
    """A tensor, once ``odd_kernels.scalar`` has a plan for it and 3."""
    made = torch.empty(64)
    launch_as_triton(odd_kernels.scalar, made, 3)
    hit(odd_kernels.scalar, made, 3)
    return made


def runs_of(kernel, *args, **kwargs):
    with counted_runs() as runs:
        launchkit.launch(kernel, (2,), *args, **kwargs)
    return runs.total


@with_hook_chains
@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hook_added_to_the_chain_is_called_and_removed_again(x, name):
    chain = getattr(knobs.runtime, name)
    seen = []
    for _ in range(2):
        chain.add(seen.append)
        try:
            launchkit.launch(odd_kernels.scalar, (2,), x, 3)
            launchkit.launch(odd_kernels.scalar, (2,), x, 3)
        finally:
            chain.remove(seen.append)
        hit(odd_kernels.scalar, x, 3)
    assert len(seen) == 4
    assert seen[0].get()["name"] == "scalar"


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hook_replaced_by_a_function_is_called(x, monkeypatch, name):
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, name, seen.append)
        launchkit.launch(odd_kernels.scalar, (2,), x, 3)
        launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    assert len(seen) == 2
    hit(odd_kernels.scalar, x, 3)


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hook_replaced_by_none_launches_and_gets_plans_again(x, monkeypatch, name):
    monkeypatch.setattr(knobs.runtime, name, None)
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)
    monkeypatch.undo()
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


@with_hook_chains
def test_hook_installed_before_the_first_launch_is_called_each_time(host):
    x, seen = torch.empty(64), []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        for _ in range(3):
            launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(seen) == 3


def test_pre_run_hook_is_called_from_the_next_launch_on(x):
    seen = []
    odd_kernels.scalar.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, sorted(kwargs))))
    try:
        for _ in range(2):
            launchkit.launch(odd_kernels.scalar, (2,), x, value=3)
        odd_kernels.scalar[(2,)](x, value=3)
    finally:
        odd_kernels.scalar.pre_run_hooks.clear()
    assert seen[0] == seen[1] == seen[2]
    hit(odd_kernels.scalar, x, 3)


KNOBS = [
    (owner, name, value)
    for owner, name, value in [
        (knobs.runtime, "debug", True),
        (knobs.compilation, "instrumentation_mode", "fpsan"),
        (knobs.compilation, "fpsan_homomorphic_casts", True),
    ]
    if hasattr(owner, name)
]


@pytest.mark.parametrize(
    ("owner", "name", "value"), KNOBS, ids=lambda part: part if isinstance(part, str) else ""
)
def test_knob_turned_on_and_off_gets_the_variant_that_triton_picks(
    x, monkeypatch, owner, name, value
):
    # Nothing is compiled: a variant that is new to Triton is seen by its hook and refused.
    asked = []

    def refuse(**details):
        asked.append(details["key"])
        return True

    monkeypatch.setattr(knobs.runtime, "jit_cache_hook", refuse)
    with monkeypatch.context() as patch:
        patch.setattr(knobs, "propagate_env", False)
        patch.setattr(owner, name, value)
        for _ in range(2):
            assert launchkit.launch(odd_kernels.scalar, (2,), x, 3) is None
    assert len(asked) == 2
    assert asked[0] == asked[1]
    hit(odd_kernels.scalar, x, 3)


def test_debug_of_the_kernel_gets_the_variant_that_triton_picks(x, monkeypatch):
    plain = launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    monkeypatch.setattr(odd_kernels.scalar, "debug", True)
    assert launch_as_triton(odd_kernels.scalar, x, 3)[0] is not plain
    monkeypatch.undo()
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


@pytest.mark.skipif(not HAS_STAGES_HOOK, reason="this Triton has no hook for compiler stages")
def test_stages_hook_is_asked_at_each_launch_while_it_is_set(x, monkeypatch):
    asked = []

    def hook(*args):
        asked.append(args)
        return ("key", "hash") if not args else None

    with monkeypatch.context() as patch:
        patch.setattr(knobs.runtime, "add_stages_inspection_hook", hook)
        assert runs_of(odd_kernels.scalar, x, 3) == 1
        before = len(asked)
        odd_kernels.scalar[(2,)](x, 3)
        per_launch = len(asked) - before
        assert runs_of(odd_kernels.scalar, x, 3) == 1
        assert len(asked) == before + 2 * per_launch
    hit(odd_kernels.scalar, x, 3)


def test_cleared_device_caches_are_compiled_for_again(x):
    odd_kernels.scalar.device_caches.clear()
    assert runs_of(odd_kernels.scalar, x, 3) == 1
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


def test_cleared_inner_cache_is_compiled_for_again(x):
    odd_kernels.scalar.device_caches[0][0].clear()
    assert runs_of(odd_kernels.scalar, x, 3) == 1
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


def test_replaced_device_caches_are_compiled_for_again(x):
    kernel = odd_kernels.scalar
    kernel.device_caches = type(kernel.device_caches)(kernel.create_binder)
    assert runs_of(kernel, x, 3) == 1
    launch_as_triton(kernel, x, 3)
    hit(kernel, x, 3)


def test_replaced_compiled_kernel_is_the_one_that_is_launched(x):
    kernels = odd_kernels.scalar.device_caches[0][0]
    (key,) = [
        key
        for key, kernel in kernels.items()
        if kernel is launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    ]
    other = launchkit.launch(odd_kernels.scalar, (2,), x, 16)
    kernels[key] = other
    assert launchkit.launch(odd_kernels.scalar, (2,), x, 3) is other
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


def test_plan_keeps_its_compiled_kernel_alive(x):
    handle = hit(odd_kernels.scalar, x, 3).function
    (plan,) = odd_kernels.scalar._launchkit_entry._core.plans()
    kernels = odd_kernels.scalar.device_caches[0][0]
    del odd_kernels.scalar.device_caches[0]
    kernels.clear()
    gc.collect()
    assert plan.compiled.function == plan.function == handle
    assert runs_of(odd_kernels.scalar, x, 3) == 1
    gc.collect()
    launch_as_triton(odd_kernels.scalar, x, 3)


def test_garbage_collection_between_launches_changes_nothing(x):
    before = hit(odd_kernels.scalar, x, 3)
    gc.collect()
    assert hit(odd_kernels.scalar, x, 3) == before


def test_changed_global_raises_what_triton_raises(host, monkeypatch):
    x = torch.empty(64)
    launch_as_triton(odd_kernels.reads_global, x, 3)
    hit(odd_kernels.reads_global, x, 3)
    with monkeypatch.context() as patch:
        patch.setattr(odd_kernels, "OFFSET", triton.language.constexpr(6))
        with pytest.raises(RuntimeError, match="OFFSET has changed"):
            launchkit.launch(odd_kernels.reads_global, (2,), x, 3)
        patch.delattr(odd_kernels, "OFFSET")
        with pytest.raises(RuntimeError, match="OFFSET has changed"):
            launchkit.launch(odd_kernels.reads_global, (2,), x, 3)
    launch_as_triton(odd_kernels.reads_global, x, 3)
    hit(odd_kernels.reads_global, x, 3)


def test_changed_global_of_a_called_function_comes_to_what_triton_makes_of_it(host, monkeypatch):
    x = torch.empty(64)
    launch_as_triton(sample_kernels.calls_helper, x, BLOCK=16)
    monkeypatch.setattr(sample_kernels, "SCALE", triton.language.constexpr(4))
    launch_as_triton(sample_kernels.calls_helper, x, BLOCK=16)


def test_left_and_entered_again_for_another_arch_compiles_for_it():
    x = torch.empty(64)
    for arch in (90, 80, 90):
        with hostonly.activate(arch=arch):
            compiled, _ = launch_as_triton(odd_kernels.scalar, x, 3)
            assert compiled.metadata.target.arch == arch
            hit(odd_kernels.scalar, x, 3)


def test_kernel_kept_as_its_old_launch_function_does_not_outlive_the_mode():
    x = torch.empty(64)
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    bound = kernel[(2,)]
    for arch in (90, 80):
        with hostonly.activate(arch=arch):
            for _ in range(2):
                assert bound(x, x, 64, 1).metadata.target.arch == arch


def test_replaced_driver_is_the_one_that_is_launched_through(x):
    config = triton.runtime.driver
    before = config.active
    other = type(before)(before.facts, before.devices, before._stub)
    other.stream = 77
    config.set_active(other)
    try:
        launch_as_triton(odd_kernels.scalar, x, 3)
        assert hit(odd_kernels.scalar, x, 3).stream == 77
    finally:
        config.set_active(before)
    assert launch_as_triton(odd_kernels.scalar, x, 3)[1][0].stream == 0


def test_stream_is_read_at_each_launch(x):
    for stream in (5, 0, 2**40):
        hostonly.set_stream(stream)
        assert hit(odd_kernels.scalar, x, 3).stream == stream


def test_two_devices_do_not_share_a_compiled_kernel(x):
    first = launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    hostonly.set_device(1)
    second, _ = launch_as_triton(odd_kernels.scalar, x, 3)
    assert second is not first
    assert hit(odd_kernels.scalar, x, 3).device == 1
    hostonly.set_device(0)
    assert hit(odd_kernels.scalar, x, 3).device == 0
