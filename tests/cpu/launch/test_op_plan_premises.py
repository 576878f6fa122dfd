"""What an op plan rests on: once any of it changes, the op runs as it is; then it is planned anew."""

from __future__ import annotations

import gc
import sys

import odd_kernels
import pytest
import sample_kernels
import sample_ops
import torch
import triton
from sample_ops import counted, launched, same_launches
from triton import knobs

import launchkit
from launchkit import hostonly, settings
from launchkit.errors import VerifyError

pytestmark = pytest.mark.usefixtures("c_core", "host")


def tuned_op():
    """Return a planned op of one autotuned kernel, its runs, and the kernel."""
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    runs = []

    @launchkit.planned
    def op(x, out):
        runs.append(None)
        between = torch.empty_like(x)
        for source, target in ((x, between), (between, out)):
            kernel[lambda meta: (-(-100 // meta["BLOCK"]),)](source, target, 100, 1)

    return op, runs, kernel


@pytest.fixture
def x():
    return torch.empty(100)


@pytest.fixture
def out():
    return torch.empty(100)


@pytest.fixture
def tuned(x, out):
    op, runs, kernel = tuned_op()
    for _ in range(6):
        op(x, out)
    assert op.op_plans.replays > 2
    runs.clear()
    return op, runs, kernel


def check(op, runs, x, out, replayed):
    """Call: what is launched is what the op launches, and it was a replay or not."""
    runs.clear()
    _, seen = launched(lambda: op(x, out))
    assert bool(runs) is not replayed, op.op_plans
    same_launches(seen, launched(lambda: op.__wrapped__(x, out))[1])
    runs.clear()
    return seen


def settle(op, runs, x, out):
    for _ in range(80):
        op(x, out)
    check(op, runs, x, out, replayed=True)


def test_config_list_that_is_replaced_is_launched_from_the_next_call_on(tuned, x, out):
    op, runs, kernel = tuned
    kernel.configs = sample_kernels.configs(64)
    seen = check(op, runs, x, out, replayed=False)
    assert seen[0].grid == (2, 1, 1)
    settle(op, runs, x, out)


def test_config_that_is_changed_in_place_is_launched_from_the_next_call_on(tuned, x, out):
    op, runs, kernel = tuned
    kernel.configs[0].kwargs["BLOCK"] = 64
    seen = check(op, runs, x, out, replayed=False)
    assert seen[0].grid == (2, 1, 1)


def test_configs_of_the_list_may_be_changed_in_place(tuned, x, out):
    op, runs, kernel = tuned
    kernel.configs[:] = sample_kernels.configs(64)
    assert check(op, runs, x, out, replayed=False)[0].grid == (2, 1, 1)


def test_launch_hook_sees_the_next_launches_and_is_gone_when_taken_away(tuned, x, out):
    op, runs, _ = tuned
    seen = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        op(x, out)
        assert len(seen) == 2
        assert runs
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    check(op, runs, x, out, replayed=True)
    assert len(seen) == 2


@pytest.mark.parametrize("name", ["debug"])
def test_knob_that_is_set_is_honoured(tuned, x, out, name, monkeypatch):
    op, runs, _ = tuned
    with knobs.runtime.scope():
        setattr(knobs.runtime, name, True)
        op(x, out)
        assert runs
    check(op, runs, x, out, replayed=True)


def test_pre_run_hook_is_called(tuned, x, out):
    op, runs, kernel = tuned
    seen = []
    kernel.fn.pre_run_hooks.append(lambda *args, **kwargs: seen.append(None))
    try:
        op(x, out)
        assert len(seen) == 2
    finally:
        kernel.fn.pre_run_hooks.clear()
    check(op, runs, x, out, replayed=True)


def test_cleared_caches_and_collected_kernels_are_launched_anew(tuned, x, out):
    op, runs, kernel = tuned
    before = {launch.function for launch in launched(lambda: op(x, out))[1]}
    kernel.fn.device_caches.clear()
    gc.collect()
    after = {launch.function for launch in check(op, runs, x, out, replayed=False)}
    assert before.isdisjoint(after)
    settle(op, runs, x, out)


def test_plan_that_the_kernels_core_drops_is_not_replayed(tuned, x, out):
    op, runs, kernel = tuned
    kernel._launchkit_entry._core.clear()
    check(op, runs, x, out, replayed=False)
    settle(op, runs, x, out)


def test_changed_global_of_a_kernel_is_noticed(x):
    @launchkit.planned
    def op(x):
        launchkit.launch(odd_kernels.reads_global, (1,), x, 3)

    for _ in range(6):
        op(x)
    assert op.op_plans.replays > 2
    namespace = odd_kernels.reads_global.fn.__globals__
    before = namespace["OFFSET"]
    namespace["OFFSET"] = triton.language.constexpr(4)
    try:
        with pytest.raises(RuntimeError):  # Triton refuses a kernel whose globals changed
            op(x)
    finally:
        namespace["OFFSET"] = before


def test_other_device_is_another_call(tuned, x, out):
    op, runs, _ = tuned
    hostonly.set_device(1)
    try:
        seen = check(op, runs, x, out, replayed=False)
        assert {launch.device for launch in seen} == {1}
        settle(op, runs, x, out)
    finally:
        hostonly.set_device(0)
    check(op, runs, x, out, replayed=True)


def test_current_stream_is_read_at_each_call(tuned, x, out):
    op, runs, _ = tuned
    for stream in (0x1230, 0x4560, 0):
        hostonly.set_stream(stream)
        seen = check(op, runs, x, out, replayed=True)
        assert {launch.stream for launch in seen} == {stream}


def test_driver_that_is_replaced_ends_every_plan(x, out):
    op, runs = counted(sample_ops.copy_twice)
    for _ in range(4):
        op(x, out)
    hostonly.deactivate()
    with hostonly.activate():
        for _ in range(6):
            runs.clear()
            launched(lambda: op(x, out))
        assert runs == []
        same_launches(launched(lambda: op(x, out))[1], launched(lambda: op.__wrapped__(x, out))[1])


def test_python_profiler_keeps_its_place(x, out):
    op, runs, _ = tuned_op()
    op(x, out)

    def profile(frame, event, arg):
        return None

    sys.setprofile(profile)
    try:
        for _ in range(4):
            op(x, out)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert len(op.op_plans) == 0
    assert op.op_plans.reasons["a profiler watches this thread"] == 4
    settle(op, runs, x, out)


def test_torch_modes_see_the_op_as_it_is(tuned, x, out):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Dispatch(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            type(self).seen += 1
            return func(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    op, runs, _ = tuned
    with Dispatch():
        op(x, out)
    assert Dispatch.seen > 0
    with Function():
        op(x, out)
    with torch.device("cpu"):
        op(x, out)
    assert len(runs) == 3
    check(op, runs, x, out, replayed=True)


def test_best_config_is_the_one_that_was_launched_last(tuned, x, out):
    op, _, kernel = tuned
    chosen = kernel.best_config
    kernel.best_config = None
    op(x, out)
    assert kernel.best_config is chosen


class TestVerify:
    """LAUNCHKIT_VERIFY=1: each call that would be a replay is compared with the op as it is."""

    @pytest.fixture
    def verify(self, monkeypatch):
        monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
        settings.reload()

    def test_op_that_follows_its_arguments_passes(self, verify, x, out):
        op, runs, _ = tuned_op()
        for _ in range(6):
            op(x, out)
        assert len(runs) == 6
        assert len(op.op_plans) == 1
        assert op.op_plans.replays == 0

    @pytest.mark.parametrize("what", ["stride", "launches", "tensor", "workspace"])
    def test_op_that_does_not_is_told(self, verify, x, out, what):
        state = {"stride": 1, "launches": 1, "tensor": x, "workspace": 100}

        @launchkit.planned
        def op(x, y, out):
            for _ in range(state["launches"]):
                between = torch.empty(state["workspace"])
                sample_ops.copy(x, between, 100, state["stride"])
                source = x if state["tensor"] is x else y
                sample_ops.copy(source, out, 100, 1)

        y = torch.empty(100)
        for _ in range(4):
            op(x, y, out)
        assert len(op.op_plans) == 1
        state[what] = {"stride": 2, "launches": 2, "tensor": y, "workspace": 1000}[what]
        with pytest.raises(VerifyError, match="op plan of"):
            for _ in range(3):
                op(x, y, out)


def test_known_call_is_captured_as_a_replay(tuned, x, out):
    op, runs, _ = tuned
    with hostonly.capturing():
        check(op, runs, x, out, replayed=True)
