"""What an op must not do to be replayed: each is seen, counted with a reason, and runs as it is."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
import weakref
from pathlib import Path

import pytest
import sample_kernels
import sample_ops
import torch
import triton
from sample_ops import counted, launched
from subprocesses import in_python

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("c_core", "host")


def launch(x, y):
    sample_ops.copy(x, y, 64, 1)


def fills(x, out):
    launch(x, torch.zeros(64))


def computes(x, out):
    launch(x, out)
    torch.add(out, 1, out=out)


def computes_between(x, out):
    between = torch.empty(64)
    launch(x, between)
    between.mul_(2)
    launch(between, out)


def reads_a_value(x, out):
    launch(x, out)
    return int(out[0].item())


def launches_a_view(x, out):
    launch(x, torch.empty(128)[64:])


def launches_a_view_of_an_argument(x, out):
    launch(x[16:], out)


def launches_a_copy(x, out):
    launch(x.clone(), out)


_outside = torch.empty(64)


def launches_what_it_was_not_given(x, out):
    launch(_outside, out)


def returns_a_view(x, out):
    mine = torch.empty(128)
    launch(x, mine)
    return mine[:64]


def returns_what_it_was_not_given(x, out):
    launch(x, out)
    return _outside


def returns_a_dictionary(x, out):
    launch(x, out)
    return {"out": out}


def launches_nothing(x, out):
    return None


def launches_by_triton(x, out):
    launch(x, out)
    sample_kernels.copy[(4,)](x, out, 64, 1, BLOCK=16)


def asks_the_time(x, out):
    launch(x, out)
    time.monotonic()


def draws_a_number(x, out):
    launch(x, out)
    random.random()


def allocates_elsewhere(x, out):
    launch(x, out)
    return torch.empty(64, device="meta")


def result_with_gradients(x, out):
    mine = torch.empty(64, requires_grad=True)
    launch(x, mine)
    return mine


def resizes(x, out):
    mine = torch.empty(64)
    mine.resize_(128)
    launch(x, mine)


HOOKED = launchkit.autotuned(
    [triton.Config({"BLOCK": 16}, pre_hook=lambda nargs: None)], ["n"], name="hooked"
)(sample_kernels.copy)


def launches_with_a_pre_hook(x, out):
    HOOKED[(4,)](x, out, 64, 1)


REFUSED = {
    fills: "aten.zeros",
    computes: "aten.add",
    computes_between: "aten.mul_",
    reads_a_value: "aten._local_scalar_dense",
    launches_a_view: "neither an argument nor allocated",
    launches_a_view_of_an_argument: "neither an argument nor allocated",
    launches_a_copy: "aten.clone",
    launches_what_it_was_not_given: "neither an argument nor allocated",
    returns_a_view: "returns a Tensor",
    returns_what_it_was_not_given: "returns a Tensor",
    returns_a_dictionary: "returns a dict",
    launches_nothing: "launches nothing",
    launches_by_triton: "through Triton",
    asks_the_time: "calls <built-in function monotonic>",
    draws_a_number: "random of",
    allocates_elsewhere: "allocates on meta",
    result_with_gradients: "gradients",
    resizes: "aten.resize_",
    launches_with_a_pre_hook: "through Triton",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda function: function.__name__)
def test_op_runs_as_it_is_and_says_why(function):
    op = launchkit.planned(function)
    x, out = torch.empty(64), torch.empty(64)
    for _ in range(9):
        _, seen = launched(lambda: op(x, out))
        _, expected = launched(lambda: function(x, out))
        assert len(seen) == len(expected)
    assert op.op_plans.replays == 0
    assert len(op.op_plans) == 0
    assert any(REFUSED[function] in reason for reason in op.op_plans.reasons), op.op_plans
    assert sum(op.op_plans.reasons.values()) == 9


def test_stream_that_the_op_changes_is_seen():
    @launchkit.planned
    def op(x, out):
        hostonly.set_stream(0x77)
        launch(x, out)
        hostonly.set_stream(0)

    x, out = torch.empty(64), torch.empty(64)
    for _ in range(4):
        op(x, out)
    assert op.op_plans.replays == 0
    assert any("device or stream" in reason for reason in op.op_plans.reasons)


def test_error_in_the_op_is_the_callers_and_leaves_nothing_behind():
    failing = [True]

    @launchkit.planned
    def op(x, out):
        launch(x, out)
        if failing:
            raise LookupError("on purpose")

    x, out = torch.empty(64), torch.empty(64)
    for _ in range(5):
        with pytest.raises(LookupError, match="on purpose"):
            op(x, out)
    assert sys.getprofile() is None
    assert torch._C._len_torch_dispatch_stack() == 0
    failing.clear()
    for _ in range(6):
        op(x, out)
    assert op.op_plans.replays > 2


def test_op_inside_a_watched_op_is_part_of_it():
    inner, runs = counted(sample_ops.copy_twice)

    @launchkit.planned
    def outer(x, out):
        between = torch.empty(64)
        inner(x, between)
        inner(between, out)

    x, out = torch.empty(64), torch.empty(64)
    for _ in range(6):
        outer(x, out)
    runs.clear()
    _, seen = launched(lambda: outer(x, out))
    assert runs == []
    assert len(seen) == 4
    assert outer.op_plans.plans[0].kernels == ("sample_kernels.copy",) * 4


TUNES_IN_AN_OP = """
import sys, time
import sample_kernels, torch
import launchkit
from launchkit import hostonly
from launchkit.dispatch import triton_seam

events = []

def bench(call, quantiles=None, **options):
    events.append((sys.getprofile(), torch._C._len_torch_dispatch_stack()))
    return [1.0, 1.0, 1.0]

kernel = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], do_bench=bench)(
    sample_kernels.copy
)

@launchkit.planned
def op(x, out):
    SPOIL
    kernel[(4,)](x, out, 64, 1)

with hostonly.activate(), launchkit.use_store("memory:"):
    executes, triton_seam.executes = triton_seam.executes, lambda: True
    x, out = torch.empty(64), torch.empty(64)
    op(x, out)
    triton_seam.executes = executes
    for _ in range(20):  # what was refused is watched again at the 2nd, 4th, 8th and 16th call
        op(x, out)
    print(set(events) == {(None, 0)}, op.op_plans.replays > 1)
"""


@pytest.mark.parametrize(
    ("spoil", "printed"), [("pass", "True True"), ("time.time()", "True False")]
)
def test_tuning_is_not_watched_whether_or_not_the_op_can_have_a_plan(spoil, printed):
    """In a process of its own, where nothing was launched before."""
    paths = [str(Path(sample_ops.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    code = TUNES_IN_AN_OP.replace("SPOIL", spoil)
    found = in_python(code, PYTHONPATH=os.pathsep.join(paths), PYTHONWARNINGS="ignore")
    assert found == printed


def test_nothing_is_planned_without_the_c_core(monkeypatch):
    from launchkit import settings

    monkeypatch.setenv("LAUNCHKIT_NATIVE", "0")
    settings.reload()
    op, runs = counted(sample_ops.copy_twice)
    x, out = torch.empty(64), torch.empty(64)
    for _ in range(4):
        op(x, out=out)
    assert len(runs) == 4
    assert op.op_plans.replays == 0


def test_nothing_is_planned_when_launchkit_is_switched_off(monkeypatch):
    from launchkit import settings

    monkeypatch.setenv("LAUNCHKIT_DISABLE", "1")
    settings.reload()
    op, runs = counted(sample_ops.copy_twice)
    x, out = torch.empty(64), torch.empty(64)
    for _ in range(4):
        op(x, out=out)
    assert len(runs) == 4
    assert op.op_plans.reasons == {"LAUNCHKIT_DISABLE=1": 4}


class TestMemory:
    """Replays leak nothing and hold nothing."""

    def planned(self):
        @launchkit.planned
        def op(x, out, pair=(1, 2)):
            between, mine = torch.empty(64), torch.empty(64)
            launch(x, between)
            launch(between, mine)
            return mine, out

        x, out = torch.empty(64), torch.empty(64)
        for _ in range(6):
            op(x, out)
        return op, x, out

    def test_references_are_as_many_after_as_before(self):
        op, x, out = self.planned()
        core = op.op_plans.core
        things = [x, out, core, core.plans()[0], torch.empty, torch.float32, None, op, (1, 2)]

        def counts():
            return [sys.getrefcount(thing) for thing in things]

        before = counts()
        for _ in range(500):
            op(x, out=out)
            op(x, out, (1, 2))
        assert all(abs(a - b) < 20 for a, b in zip(before, counts(), strict=True))

    def growth(self, call, rounds):
        def blocks():
            for _ in range(rounds):
                call()
            hostonly.clear()
            gc.collect()
            return sys.getallocatedblocks()

        blocks()
        return abs(blocks() - blocks())

    def test_memory_does_not_grow_with_replays(self):
        op, x, out = self.planned()
        assert self.growth(lambda: op(x, out=out), 2000) < 50

    def test_memory_does_not_grow_with_plans(self):
        op, x, out = self.planned()

        def call():
            op.op_plans.clear()
            op(x, out)

        assert self.growth(call, 500) < 250  # less than a block for each

    def test_neither_arguments_nor_results_are_held(self):
        op, _, out = self.planned()
        x = torch.empty(64)
        result = op(x, out)[0]
        watchers = [weakref.ref(x), weakref.ref(result)]
        del x, result
        assert [watcher() for watcher in watchers] == [None, None]

    def test_watched_arguments_are_not_held(self):
        op, _, out = self.planned()
        op.op_plans.clear()
        x = torch.empty(64)
        result = op(x, out)[0]
        watchers = [weakref.ref(x), weakref.ref(result)]
        del x, result
        gc.collect()
        assert [watcher() for watcher in watchers] == [None, None]

    def test_op_that_is_dropped_is_collected(self):
        op, *_ = self.planned()
        gone = weakref.ref(op.op_plans)
        del op
        gc.collect()
        assert gone() is None

    def test_failed_allocation_runs_the_op_as_it_is(self):
        from launchkit.dispatch import op_making

        @launchkit.planned
        def op(x, out):
            between = torch.empty(64)
            launch(x, between)
            launch(between, out)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(op_making, "_PART_BYTES", 2**60)
            x, out = torch.empty(64), torch.empty(64)
            for _ in range(6):
                _, seen = launched(lambda: op(x, out))
                assert len(seen) == 2
        assert len(op.op_plans) == 1
        assert op.op_plans.replays == 0
