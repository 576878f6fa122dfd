"""What may change around a frozen handle: hooks, knobs, globals, devices, threads, captures."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import sys
import weakref

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, outcome, triton_launch
from threads import in_threads
from triton import knobs

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch import triton_seam as seam
from launchkit.errors import FrozenArgumentError, VerifyError

pytestmark = pytest.mark.usefixtures("each_core", "host")


@pytest.fixture
def x():
    return torch.empty(64)


@pytest.fixture
def handle(x):
    return launchkit.freeze(
        sample_kernels.copy, (4,), x, x, 64, 2, BLOCK=16, varying=["x_ptr", "n"]
    )


def same_as_triton(handle, x, n=32):
    theirs = outcome(
        functools.partial(
            triton_launch, sample_kernels.copy, (4,), (x, handle.frozen["y_ptr"], n, 2),
            {"BLOCK": 16},
        )
    )  # fmt: skip
    ours = outcome(functools.partial(handle, x, n))
    assert ours[0].hash == theirs[0].hash
    assert [launch.params for launch in ours[1]] == [launch.params for launch in theirs[1]]


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_launch_hook_is_called_from_the_next_call_on_and_not_after_its_removal(handle, x, name):
    seen, chain = [], getattr(knobs.runtime, name)
    handle(x, 32)
    chain.add(seen.append)
    try:
        same_as_triton(handle, x)
    finally:
        chain.remove(seen.append)
    assert len(seen) == 2
    with counted_runs() as runs:
        handle(x, 32)
    assert runs.total == 0
    assert len(seen) == 2


def test_replaced_hook_chain_is_watched_too(handle, x, monkeypatch):
    seen, chain = [], type(knobs.runtime.launch_enter_hook)()
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", chain)
    for _ in range(3):
        handle(x, 32)
    chain.add(seen.append)
    handle(x, 32)
    assert len(seen) == 1


def test_hook_that_the_grid_function_installs_is_called_at_once(x):
    seen, chain = [], knobs.runtime.launch_enter_hook
    calls = []

    def grid(meta):
        calls.append(1)
        if len(calls) == 2:
            chain.add(seen.append)
        return (3,)

    handle = launchkit.freeze(sample_kernels.copy, grid, x, x, 7, 2, BLOCK=16)
    handle()
    try:
        handle()
    finally:
        chain.remove(seen.append)
    assert (len(calls), len(seen)) == (2, 1)


def test_pre_run_hook_of_the_kernel_is_called(x):
    kernel = triton.jit(sample_kernels.copy.fn)
    seen = []
    handle = launchkit.freeze(kernel, (1,), x, x, 64, 2, BLOCK=16)
    handle()
    kernel.pre_run_hooks.append(lambda *args, **kwargs: seen.append(kwargs["n"]))
    handle()
    kernel.pre_run_hooks.clear()
    handle()
    assert seen == [64]


def test_debug_switched_on_launches_the_debug_variant(handle, x, monkeypatch):
    plain = handle(x, 32)
    monkeypatch.setattr(knobs.runtime, "debug", True)
    assert handle(x, 32) is not plain
    monkeypatch.setattr(knobs.runtime, "debug", False)
    assert handle(x, 32) is plain


def test_changed_global_raises_as_triton_does(x):
    handle = launchkit.freeze(odd_kernels.reads_global, (1,), x, 7)
    handle()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odd_kernels, "OFFSET", triton.language.constexpr(6))
        with pytest.raises(RuntimeError, match="OFFSET has changed"):
            handle()
    handle()


def test_cleared_caches_and_collection_leave_the_compiled_kernel_launchable(handle, x):
    compiled = handle.compiled
    sample_kernels.copy.device_caches.clear()
    gc.collect()
    for _ in range(2):
        hostonly.clear()
        assert handle(x, 32) is compiled
        assert hostonly.launches()[0].function == compiled.function
    same_as_triton(handle, x)


def test_handle_keeps_tensors_and_compiled_kernel_alive_and_no_longer(each_core):
    kernel = triton.jit(sample_kernels.copy.fn)
    y = torch.empty(64)
    handle = launchkit.freeze(kernel, (1,), y, y, 64, 2, BLOCK=16, varying=["x_ptr"])
    tensor, compiled = weakref.ref(y), weakref.ref(handle.compiled)
    kernel.device_caches.clear()
    del y
    gc.collect()
    assert tensor() is not None
    assert handle(torch.empty(64)) is compiled()
    del handle, kernel
    gc.collect()
    hostonly.clear()
    gc.collect()
    assert tensor() is None
    assert compiled() is None


def test_references_and_memory_stay_flat_over_calls_and_refusals(handle, x, each_core):
    def calls():
        for _ in range(300):
            handle(x, 32)
            handle(n=48, x_ptr=x)
            with pytest.raises(FrozenArgumentError):
                handle(x, 7)
        hostonly.clear()
        gc.collect()
        return sys.getallocatedblocks(), sys.getrefcount(x), sys.getrefcount(handle.compiled)

    calls()
    before, after = calls(), calls()
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True)), (before, after)


def test_call_on_another_current_device_launches_on_the_frozen_one(handle, x):
    handle(x, 32)
    frozen = hostonly.launches()[-1]
    hostonly.set_device(1)
    handle(x, 32)
    assert hostonly.launches()[-1] == frozen
    assert seam.current_device() == 1


def test_launches_go_to_the_stream_that_is_current(handle, x):
    streams = []
    for stream in (0x50, 0x60):
        hostonly.set_stream(stream)
        handle(x, 32)
        streams.append(hostonly.launches()[-1].stream)
    assert streams == [0x50, 0x60]


def test_threads_call_one_handle_with_arguments_of_their_own(x):
    grid = launchkit.grid("n")
    handle = launchkit.freeze(sample_kernels.copy, grid, x, x, 32, 2, BLOCK=16, varying=["n"])
    hostonly.clear()
    in_threads(4, lambda index: [handle(32 + 16 * (index + 1)) for _ in range(200)])
    launches = hostonly.launches()
    assert len(launches) == 800
    for launch in launches:
        assert int.from_bytes(launch.params[2], "little") == launch.grid[0]


def test_leaving_the_driver_sends_calls_to_triton(x, each_core):
    handle = launchkit.freeze(sample_kernels.copy, (4,), x, x, 64, 2, BLOCK=16)
    frozen = handle()
    with pytest.MonkeyPatch.context() as patch:
        other = copy.copy(seam.active_driver())
        patch.setattr(seam, "active_driver", lambda: other)
        patch.setattr(type(handle), "_holds", lambda self: True)
        if each_core == "c":
            handle._disarm()
        with counted_runs() as runs:
            assert handle() is frozen
        assert runs.jit == 1


def test_capture_launches_as_usual(handle, x):
    with hostonly.capturing():
        same_as_triton(handle, x)


def test_verify_compares_with_tritons_kernel(x, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
    settings.reload()
    handle = launchkit.freeze(sample_kernels.copy, (4,), x, x, 64, 2, BLOCK=16, varying=["n"])
    assert handle(32) is handle.compiled
    sample_kernels.copy.device_caches.clear()
    assert handle(32) is handle.compiled
    other = launchkit.freeze(sample_kernels.copy, (4,), x, x, 64, 2, BLOCK=32).compiled
    handle._plan.compiled = other
    with pytest.raises(VerifyError, match="another compiled kernel"):
        handle(32)


def test_disabled_handle_is_an_ordinary_triton_launch(x, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_DISABLE", "1")
    settings.reload()
    kernel = triton.jit(sample_kernels.copy.fn)
    handle = launchkit.freeze(kernel, (4,), x, x, 64, stride=2, BLOCK=16, varying=["n", "stride"])
    assert handle.obstacle == "LAUNCHKIT_DISABLE is set"
    assert (handle.compiled, handle.config) == (None, None)
    with counted_runs() as runs:
        ours = outcome(functools.partial(handle, 32, 2))
    assert runs.jit == 1
    theirs = outcome(functools.partial(triton_launch, kernel, (4,), (x, x, 32, 2), {"BLOCK": 16}))
    assert ours == theirs
    with pytest.raises(FrozenArgumentError):
        handle(7, 2)


def test_config_with_a_pre_hook_is_launched_in_the_ordinary_way(x):
    seen = []
    configs = [triton.Config({"BLOCK": 16}, pre_hook=lambda args: seen.append(args["n"]))]
    tuned = launchkit.autotuned(configs, ["n"])(sample_kernels.copy)
    handle = launchkit.freeze(tuned, (4,), x, x, 64, 2, varying=["n"])
    assert handle.obstacle == "config with a pre_hook"
    handle(32)
    handle(48)
    assert seen == [32, 48]


def test_calls_are_counted(handle, x):
    name = handle.name
    with launchkit.count_launches():
        before = launchkit.stats().as_dict()["kernels"]
        for _ in range(5):
            handle(x, 32)
        after = launchkit.stats().as_dict()["kernels"]

    def fast(rows):
        return sum(row["fast"] or 0 for row in rows if row["kernel"] == name)

    assert fast(after) - fast(before) == 5


def test_profile_sees_the_calls(handle, x):
    with launchkit.profile_launches() as profile:
        for _ in range(3):
            handle(x, 32)
        with pytest.raises(FrozenArgumentError):
            handle(x, 7)
    handle(x, 32)
    (row,) = [row for row in profile.rows if row.kernel == handle.name]
    assert (row.launches, row.failed) == (3, 1)


def test_op_that_calls_a_handle_gets_no_plan_and_stays_right(handle, x):
    @launchkit.planned
    def op(a, out):
        launchkit.launch(sample_kernels.copy, (2,), a, out, 64, 2, BLOCK=16)
        handle(a, 32)

    for _ in range(4):
        other = torch.empty(64)
        hostonly.clear()
        op(other, x)
        first, second = hostonly.launches()
        assert second.params[0] == first.params[0] == other.data_ptr().to_bytes(8, "little")


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
def test_compiled_function_breaks_its_graph_and_calls_the_handle(handle, x):
    def function(a):
        handle(a, 32)
        return a + 1

    torch._dynamo.reset()
    hostonly.clear()
    torch.compile(function, backend="eager")(x)
    torch._dynamo.reset()
    assert len(hostonly.launches()) == 1


def test_handle_is_neither_copied_nor_pickled(handle):
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="belongs to its process"):
            attempt(handle)


def given_other_memory(x):
    x.data = torch.empty(64)


def set_to_other_memory(x):
    x.set_(torch.empty(64))


@pytest.mark.parametrize("change", [given_other_memory, set_to_other_memory])
def test_frozen_tensor_that_gets_other_memory_leaves_the_launch_its_own(x, change):
    y, chain = torch.empty(64), knobs.runtime.launch_enter_hook
    address = y.data_ptr()
    handle = launchkit.freeze(sample_kernels.copy, (4,), x, y, 64, 2, BLOCK=16, varying=["n"])
    change(y)
    others = [torch.empty(64) for _ in range(100)]  # would get the memory if it were free
    assert address not in {other.data_ptr() for other in (y, *others)}
    handle(32)
    chain.add(print)
    try:
        handle(32)  # through Triton
    finally:
        chain.remove(print)
    for launch in hostonly.launches():
        assert int.from_bytes(launch.params[1], "little") == address


@pytest.mark.parametrize("change", [given_other_memory, lambda x: x.resize_(10**6)])
def test_verify_raises_for_a_frozen_tensor_that_got_other_memory(x, monkeypatch, change):
    monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
    settings.reload()
    handle = launchkit.freeze(sample_kernels.copy, (4,), x, x[:8], 64, 2, BLOCK=16, varying=["n"])
    handle(32)
    change(x)
    with pytest.raises(VerifyError, match=r"x_ptr, which .* has got other memory"):
        handle(32)
