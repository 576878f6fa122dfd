"""LAUNCHKIT_VERIFY=1: function, grid and parameter bytes of each shortcut beside Triton's own."""

from __future__ import annotations

import math
import pickle
import random
import sys

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from installing import installed
from launching import triton_launch

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch import frozen_plan, heuristic_front, verify_frozen, verifying
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import c_core
from launchkit.errors import VerifyError

X = torch.empty(64)
ADDRESS = X.data_ptr().to_bytes(8, "little")


@pytest.fixture(autouse=True)
def verify(each_core, host, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_VERIFY", "1")
    settings.reload()


@pytest.fixture
def compared(monkeypatch):
    """Both sides of each comparison, as they come."""
    seen = []
    compare = verifying.compare

    def seeing(name, what, planned, expected):
        seen.append((planned, expected))
        compare(name, what, planned, expected)

    monkeypatch.setattr(verifying, "compare", seeing)
    monkeypatch.setattr(verify_frozen, "compare", seeing)
    return seen


def random_int(rng):
    bits = rng.choice([1, 4, 16, 31, 33, 62])
    return rng.choice([-1, 1]) * rng.getrandbits(bits)


def random_float(rng):
    return rng.choice([0.0, -0.0, math.inf, -math.inf, 1e-320, 1e300, rng.uniform(-1e3, 1e3)])


def random_call(rng):
    """A kernel, and arguments by name."""
    tensor = X[rng.choice([0, 1, 4]) :]
    size = rng.choice([16, 32])
    if rng.random() < 0.5:
        given = {
            "a_ptr": rng.choice([None, tensor]),
            "b_ptr": X,
            "n": random_int(rng),
            "flag": rng.choice([True, False]),
            "alpha": random_float(rng),
        }
        return sample_kernels.mixed, {**given, "MODE": "shift", "SIZE": size}
    given = {
        "x_ptr": tensor,
        "n": random_int(rng),
        "m": rng.randrange(-(2**31), 2**31),
        "alpha": random_float(rng),
        "half": rng.uniform(-6e4, 6e4),
        "double": random_float(rng),
    }
    return sample_kernels.typed, given


def test_random_arguments_pass_and_both_sides_are_what_is_launched(compared):
    rng = random.Random(4)
    for _ in range(60):
        kernel, given = random_call(rng)
        x, y, z = (rng.randrange(1, 5) for _ in range(3))
        grid = rng.choice([(x, y, z), (x, y), (x,), lambda meta, x=x: (x,)])
        launchkit.launch(kernel, grid, **given)
        compared.clear()
        hostonly.clear()
        launchkit.launch(kernel, grid, **given)
        (launched,) = hostonly.launches()
        triton_launch(kernel, grid, (), given)
        assert hostonly.launches() == [launched, launched]
        (sides,) = compared
        for side in sides:
            assert side.function == launched.function
            assert side.grid == launched.grid
            assert (side.threads, 1, 1) == launched.block
            assert side.shared_bytes == launched.shared_bytes
            params = [bytes_ for _, bytes_ in side.params]
            assert params == list(launched.params[: len(params)])


@pytest.mark.parametrize("way", ["launch", "subscript", "installed", "frozen"])
def test_every_way_to_launch_is_compared(compared, way):
    kernel = triton.jit(odd_kernels.split.fn)
    configs = [triton.Config({"BLOCK": 16, "SPLIT": 2}), triton.Config({"BLOCK": 16, "m": 9})]
    make = triton.autotune if way == "installed" else launchkit.autotuned
    tuned = make(configs, ["n"])(kernel)

    def again():
        if way == "launch":
            launchkit.launch_autotuned(tuned, (3,), X, X, n=5)
        elif way == "frozen":
            handle(5)
        else:
            tuned[(3,)](X, X, 5)

    if way == "frozen":
        handle = launchkit.freeze(tuned, (3,), X, X, 5, varying=["n"])
    with installed():
        again()
        compared.clear()
        hostonly.clear()
        again()
    (launched,) = hostonly.launches()
    assert [len(sides) for sides in compared] == [2]
    assert launched.grid == (3, 1, 1)


def tamper_with(monkeypatch, kernel, each_core, what, args, kwargs):
    """Make the plan of a launch pass something else than Triton does."""
    core = kernel._launchkit_entry._core
    plan = core.find(args, kwargs)
    other = launchkit.launch(odd_kernels.scalar, (1,), X, 16).function
    warps, ctas, shared_bytes = plan.metadata
    changed = {
        "function": (other, warps, ctas, shared_bytes),
        "grid": (plan.function, warps, 2 * ctas, shared_bytes),
        "threads": (plan.function, 2 * warps, ctas, shared_bytes),
        "shared_bytes": (plan.function, warps, ctas, shared_bytes + 64),
    }
    plan.function, *plan.metadata = changed[what]
    real = c_core.direct_layout

    def wrong(compiled, indices):
        _, _, _, _, attributes, params = real(compiled, indices)
        function, warps, ctas, shared_bytes = changed[what]
        return function, 32 * warps, shared_bytes, ctas, attributes, params

    with monkeypatch.context() as patch:
        patch.setattr(c_core, "direct_layout", wrong)
        core.insert(core.slot(args, kwargs), plan)


@pytest.mark.parametrize("what", ["function", "grid", "threads", "shared_bytes"])
def test_plan_that_was_tampered_with_raises_and_launches_nothing(monkeypatch, each_core, what):
    kernel = triton.jit(sample_kernels.copy.fn)
    args, kwargs = (X, X, 64, 2), {"BLOCK": 16}
    launchkit.launch(kernel, (3,), *args, **kwargs)
    tamper_with(monkeypatch, kernel, each_core, what, args, kwargs)
    hostonly.clear()
    with pytest.raises(VerifyError, match=f"would pass {what}") as caught:
        launchkit.launch(kernel, (3,), *args, **kwargs)
    fields = caught.value.fields
    assert (fields["differs"], fields["parameter"]) == (what, None)
    assert getattr(fields["planned"], what) != getattr(fields["expected"], what)
    assert pickle.loads(pickle.dumps(caught.value)).fields == fields
    assert hostonly.launches() == []


@pytest.mark.parametrize("subscript", [True, False])
def test_wrong_bytes_of_a_parameter_raise_with_its_name(subscript):
    kernel = triton.jit(odd_kernels.split.fn)
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 16, "m": 9})]
    tuned = launchkit.autotuned(configs, ["n"])(kernel)
    args = (X, X, 5)
    tuned[(3,)](*args)
    core = tuned._launchkit_entry._core
    plan = core.find(args, {})
    assert plan.supplied["m"] == 7
    plan.supplied["m"] = 8
    core.insert(core.slot(args, {}), plan)
    hostonly.clear()
    with pytest.raises(VerifyError, match="bytes 08000000 of m instead of 07000000") as caught:
        tuned[(3,)](*args) if subscript else launchkit.launch_autotuned(tuned, (3,), *args)
    fields = caught.value.fields
    assert (fields["differs"], fields["parameter"]) == ("parameter", "m")
    assert dict(fields["planned"].params)["m"] == b"\x08\0\0\0"
    assert dict(fields["expected"].params)["m"] == b"\x07\0\0\0"
    assert hostonly.launches() == []


def test_grid_function_that_changes_its_mind_is_told():
    sizes = iter(range(1, 100))
    launchkit.launch(sample_kernels.copy, lambda meta: (next(sizes),), X, X, 64, 2, BLOCK=16)
    hostonly.clear()
    with pytest.raises(VerifyError, match=r"grid \(2, 1, 1\) instead of \(3, 1, 1\)"):
        launchkit.launch(sample_kernels.copy, lambda meta: (next(sizes),), X, X, 64, 2, BLOCK=16)
    assert hostonly.launches() == []


def test_op_whose_launch_is_wrong_is_told(monkeypatch, each_core):
    kernel = triton.jit(sample_kernels.copy.fn)
    args, kwargs = (X, X, 64, 2), {"BLOCK": 16}

    @launchkit.planned
    def op(x):
        launchkit.launch(kernel, (3,), x, x, 64, 2, BLOCK=16)

    for _ in range(4):
        op(X)
    assert len(op.op_plans) == (each_core == "c")
    tamper_with(monkeypatch, kernel, each_core, "grid", args, kwargs)
    hostonly.clear()
    with pytest.raises(VerifyError, match="would pass grid"):
        op(X)
    assert hostonly.launches() == []


def test_heuristic_that_is_computed_wrongly_is_told(monkeypatch):
    given_a = {"MODE": lambda args: args["a_ptr"] is not None}
    kernel = triton.heuristics(given_a)(triton.jit(sample_kernels.mixed.fn))
    given = {"a_ptr": None, "b_ptr": X, "n": 3, "flag": True, "alpha": 0.5}
    for _ in range(2):
        launchkit.launch(kernel, (1,), **given)
    monkeypatch.setattr(heuristic_front, "none_test", lambda function: ("a_ptr", True))
    hostonly.clear()
    with pytest.raises(VerifyError, match="takes True for the heuristic MODE, which gives False"):
        launchkit.launch(kernel, (1,), **given)
    assert hostonly.launches() == []


class TestFrozen:
    def handle(self, **options):
        return launchkit.freeze(sample_kernels.copy, (3,), X, X, 64, 32, BLOCK=16, **options)

    def test_right_handle_launches_what_it_was_frozen_with(self, each_core):
        handle = self.handle(varying=["n"])
        hostonly.clear()
        handle(16)
        handle(n=48)
        first, second = hostonly.launches()
        assert [launch.params[2] for launch in (first, second)] == [b"\x10\0\0\0", b"\x30\0\0\0"]
        assert handle._native is (each_core == "c")

    def test_wrong_bytes_of_a_parameter_raise_with_its_name(self, monkeypatch):
        pinned = frozen_plan._pinned
        monkeypatch.setattr(
            frozen_plan, "_pinned", lambda v: 48 if type(v) is int and v == 32 else pinned(v)
        )
        handle = self.handle(varying=["n"])
        hostonly.clear()
        with pytest.raises(VerifyError, match="bytes 30000000 of stride instead of 2") as caught:
            handle(16)
        assert caught.value.fields["parameter"] == "stride"
        assert hostonly.launches() == []

    def test_wrong_grid_raises(self, each_core):
        sizes = iter(range(1, 100))
        handle = launchkit.freeze(
            sample_kernels.copy, lambda meta: (next(sizes),), X, X, 64, 32, BLOCK=16
        )
        hostonly.clear()
        with pytest.raises(VerifyError, match=r"frozen launch of .* would pass grid"):
            handle()
        assert hostonly.launches() == []


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("*fp32", None, b"\0" * 8),
        ("*i8", X, ADDRESS),
        ("i1", True, b"\1"),
        ("u1", False, b"\0"),
        ("i8", -1, b"\xff"),
        ("i32", -2, b"\xfe\xff\xff\xff"),
        ("u64", 2**64 - 1, b"\xff" * 8),
        ("bf16", 1.00390625, b"\x80\x3f"),
        ("fp16", 1.5, b"\x00\x3e"),
        ("fp16", 1e6, None),
        ("fp32", 1e300, b"\0\0\x80\x7f"),
        ("fp32", -1e300, b"\0\0\x80\xff"),
        ("fp64", 3, b"\0\0\0\0\0\0\x08\x40"),
        ("i32", 1.5, None),
        ("fp32", "1", None),
        ("tensordesc<fp32[16]>", X, None),
    ],
    ids=lambda part: "address" if isinstance(part, bytes) and part == ADDRESS else None,
)
def test_value_is_packed_by_its_type(kind, value, expected):
    assert verifying.pack(kind, value) == expected


def test_preview_of_what_misses_is_none(each_core):
    kernel = triton.jit(sample_kernels.copy.fn)
    launchkit.launch(kernel, (3,), X, X, 64, 2, BLOCK=16)
    core = kernel._launchkit_entry._core
    plan, _ = core.preview((3,), (X, X, 64, 2), {"BLOCK": 16})
    assert isinstance(plan.compiled, seam.CompiledKernel)
    assert core.preview((3,), (X, X, 64, 2), {"BLOCK": 32}) is None
    assert core.preview((3,), (X, X, 64.0, 2), {"BLOCK": 16}) is None


def test_previews_leave_no_reference_behind(each_core):
    kernel = triton.jit(sample_kernels.copy.fn)
    shape, large = (3, 1), 10**12
    args = (X, X, large, 2)
    launchkit.launch(kernel, shape, *args, BLOCK=16)
    core = kernel._launchkit_entry._core
    plan = core.find(args, {"BLOCK": 16})
    things = (shape, large, X, plan, plan.compiled)

    def ask():
        for grid in (shape, lambda meta: shape, (True, 1), [2.0]):
            core.preview(grid, args, {"BLOCK": 16})
        core.preview(shape, args, {"BLOCK": 32})

    ask()
    before = [sys.getrefcount(thing) for thing in things]
    for _ in range(500):
        ask()
    assert [sys.getrefcount(thing) for thing in things] == before


def test_misuse_of_a_preview_is_refused(each_core):
    kernel = triton.jit(sample_kernels.copy.fn)
    args = (X, X, 64, 2)
    launchkit.launch(kernel, (3,), *args, BLOCK=16)
    core = kernel._launchkit_entry._core
    with pytest.raises(ZeroDivisionError):
        core.preview(lambda meta: 1 // 0, args, {"BLOCK": 16})
    with pytest.raises(TypeError):
        core.preview((3,), args[:2], {"BLOCK": 16})
    handle = launchkit.freeze(kernel, (3,), *args, BLOCK=16, varying=["n"])
    assert handle._preview() is handle._preview(1, 2) is handle._preview(m=1) is None
    assert handle._preview(1.5) is handle._preview("x") is None
    assert type(handle).__new__(type(handle))._preview(3) is None
    if each_core == "c":
        assert core._core.preview(args, {"BLOCK": 16}) is None  # no grid
        for wrong in [(), (args,), ([], {}, (1,)), (args, None, (1,))]:
            with pytest.raises(TypeError):
                core._core.preview(*wrong)
