"""The C core while Python code or another thread makes it forget in the middle of a call."""

from __future__ import annotations

import gc
import sys

import odd_kernels
import pytest
import sample_ops
import torch
import triton
from launching import hit, launch_as_triton
from triton import language as tl

import launchkit
from launchkit import hostonly
from launchkit.dispatch.native import extension, premises

pytestmark = pytest.mark.usefixtures("c_core", "host")


def bare_core(*names, exact=True):
    """Return an armed core of the extension's for parameters of these names, and its arm()."""
    native = extension.load()
    specs = tuple((name, premises.ABSENT, int(exact)) for name in names)
    core = native.Core(specs, len(specs), lambda *args, **kwargs: None, None, False, 100)

    def arm():
        nothing = native.WatchSet((), ())
        core.arm(nothing, ({"device": 0}, "device"), ({"stream": 0}, "stream"), 1, False)

    arm()
    return core, arm


def keep(core, slot, plan, watches=()):
    watched = extension.load().WatchSet(watches, ())
    return core.insert(slot, plan, None, None, (None,), watched, None)


def test_key_of_constants_that_were_forgotten_meanwhile_finds_nothing(monkeypatch):
    core, arm = bare_core("label", "dtype")
    hash_of = tl.dtype.__hash__
    due = [None]

    def forgetful(dtype):
        if due:
            due.clear()
            arm()
            core.slot(("b", tl.float16), {})
        return hash_of(dtype)

    monkeypatch.setattr(tl.dtype, "__hash__", forgetful)
    stale = core.slot(("a", tl.float32), {})
    assert not due
    fresh = [core.slot((label, tl.float32), {}) for label in "ab"]
    assert len({stale, *fresh}) == 3


def test_plan_that_is_forgotten_while_it_is_checked_is_not_found():
    core, _ = bare_core("x", exact=False)

    class Clears:
        def __ne__(self, other):
            core.clear()
            return False

    namespace = {"name": Clears()}
    slot = core.slot((3,), {})
    assert keep(core, slot, "plan", ((namespace, {"name": "expected"}, None, False, 1),))
    assert core.find((3,), {}) is None
    assert len(core) == 0


def test_plans_can_be_listed_while_garbage_clears_them():
    core, _ = bare_core("x")

    class Clears:
        def __del__(self):
            core.clear()

    for number in range(50):
        assert keep(core, core.slot((number,), {}), number)
    held = [[] for _ in range(200)]  # lists that were freed before are used up
    cycle = Clears()
    cycle.itself = cycle
    threshold = gc.get_threshold()
    del cycle
    gc.set_threshold(1)
    try:
        listed = core.plans()
    finally:
        gc.set_threshold(*threshold)
    assert listed in ([], list(range(50)))
    assert len(held) == 200


def test_grid_function_that_arms_the_core_anew_launches_by_way_of_triton(monkeypatch):
    x = torch.empty(64)
    compiled, _ = launch_as_triton(odd_kernels.scalar, x, 3)
    core, run, seen = odd_kernels.scalar._launchkit_entry._core, compiled.run, []

    def grid(meta):
        core._arm()
        return (2,)

    def triton_run(*args):
        seen.append(args[:3])
        return run(*args)

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_run", triton_run)
        launchkit.launch(odd_kernels.scalar, (2,), x, 3)
        assert seen == []
        launchkit.launch(odd_kernels.scalar, grid, x, 3)
    assert seen == [(2, 1, 1)]
    assert len(core) == 0
    launch_as_triton(odd_kernels.scalar, x, 3)
    hit(odd_kernels.scalar, x, 3)


def test_watched_launch_of_a_core_that_was_cleared_meanwhile_gets_no_plan():
    x = torch.empty(64)
    launch_as_triton(odd_kernels.scalar, x, 3)
    core = odd_kernels.scalar._launchkit_entry._core
    clearing = []

    def stream(device):
        if clearing:
            core.clear()
        return 0

    watched = extension.load().WatchSet(*premises.of_core(odd_kernels.scalar, None, False))
    core._core.arm(watched, (vars(triton.runtime.driver.active), "device"), stream, 1, False)
    launchkit.launch(odd_kernels.scalar, (2,), x, 3)
    hit(odd_kernels.scalar, x, 3)

    @launchkit.planned
    def op(x):
        launchkit.launch(odd_kernels.scalar, (2,), x, 3)

    clearing.append(None)
    hostonly.clear()
    op(x)
    assert len(hostonly.launches()) == 1
    assert op.op_plans.reasons == {"a kernel's plans were dropped meanwhile": 1}
    clearing.clear()
    for _ in range(8):
        op(x)
    assert op.op_plans.replays > 0


def test_op_plan_that_is_dropped_while_results_are_made_is_not_replayed(monkeypatch):
    make, dropping = torch.empty, []

    def empty(*args, **kwargs):
        if dropping:
            dropping.clear()
            op.op_plans.clear()
        return make(*args, **kwargs)

    @launchkit.planned
    def op(x):
        out = torch.empty(100)
        sample_ops.copy(x, out, 100, 1)
        return out

    monkeypatch.setattr(torch, "empty", empty)
    x = make(100)
    for _ in range(8):
        op(x)
    replays = op.op_plans.replays
    assert replays > 0
    dropping.append(None)
    hostonly.clear()
    out = op(x)
    assert not dropping
    (launch,) = hostonly.launches()
    assert int.from_bytes(launch.params[1], "little") == out.data_ptr()
    assert op.op_plans.replays == replays


def test_constexpr_global_that_is_changed_in_place_raises_what_triton_raises():
    x = torch.empty(64)
    launch_as_triton(odd_kernels.reads_global, x, 3)
    hit(odd_kernels.reads_global, x, 3)
    odd_kernels.OFFSET.value = 6
    try:
        with pytest.raises(RuntimeError, match="OFFSET has changed"):
            launchkit.launch(odd_kernels.reads_global, (2,), x, 3)
    finally:
        odd_kernels.OFFSET.value = 5
    launch_as_triton(odd_kernels.reads_global, x, 3)
    hit(odd_kernels.reads_global, x, 3)


class ArmsWhenItGoes:
    """Its finalizer arms what is being armed."""

    def __init__(self, arm):
        self.arm = arm

    def __del__(self):
        self.arm()


def test_core_that_a_finalizer_arms_while_it_is_armed_keeps_nothing_of_that():
    core, arm = bare_core("n")
    source = {"device": 0}

    def arm_from_source():
        nothing = extension.load().WatchSet((), ())
        core.arm(nothing, (source, "device"), ({"stream": 0}, "stream"), 1, False)

    before = sys.getrefcount(source)
    keep(core, core.slot((1,), {}), ArmsWhenItGoes(arm_from_source))
    arm()
    assert sys.getrefcount(source) == before


def test_frozen_handle_that_a_finalizer_arms_while_it_is_armed_keeps_nothing_of_that():
    x, native = torch.empty(64), extension.load()
    handle = launchkit.freeze(odd_kernels.scalar, (2,), x, 3)
    source = {"device": 0}

    def arm(watched, device):
        assert handle._arm(native.WatchSet((({}, watched, None, False, 0),), ()), device, len)

    before = sys.getrefcount(source)
    arm({"gone": ArmsWhenItGoes(lambda: arm({}, (source, "device")))}, len)
    arm({}, len)
    assert sys.getrefcount(source) == before
