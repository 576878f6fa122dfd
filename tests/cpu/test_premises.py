"""What a plan was made on has changed: the very next launch is what Triton would make of it."""

from __future__ import annotations

import gc
from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, hit, launch_as_triton, outcome, plans
from triton import knobs

import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam as seam
from launchkit.errors import LaunchkitError

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


# -- the config list of an autotuned kernel


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
    times = {0: {16: 1.0, 32: 2.0}, 1: {16: 2.0, 32: 1.0}}

    def do_bench(call, quantiles):
        call()
        launch = hostonly.launches()[-1]
        return [times[launch.device][launch.grid[0]]] * 3

    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], do_bench=do_bench)(
        sample_kernels.copy
    )
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


@pytest.mark.parametrize("thing", [None, 3, print, object()], ids=repr)
def test_launch_refuses_what_is_no_kernel(host, thing):
    with pytest.raises(LaunchkitError, match="is not a Triton kernel"):
        launchkit.launch(thing, (1,))
