"""Op plans: what is replayed is what the op would launch, and only for calls like the watched one."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import subprocess
import sys

import pytest
import sample_ops
import torch
from sample_ops import counted, launched, same_launches

import launchkit
from launchkit.errors import UsageError

pytestmark = pytest.mark.usefixtures("c_core", "host")

module_op = launchkit.planned(sample_ops.copy_twice)


def warm(op, *args, **kwargs):
    """Call until it is replayed."""
    before = op.op_plans.replays
    for _ in range(8):
        op(*args, **kwargs)
    assert op.op_plans.replays > before, op.op_plans


def assert_replayed(op, *args, **kwargs):
    """Call, which must be a replay, and compare with the op as it is."""
    before = op.op_plans.replays
    result, seen = launched(lambda: op(*args, **kwargs))
    assert op.op_plans.replays == before + 1, op.op_plans
    expected, theirs = launched(lambda: op.__wrapped__(*args, **kwargs))
    moved = same_launches(seen, theirs)
    assert all(place % 256 % 64 == 0 for place in moved.values())
    return result, expected


def assert_new(op, *args, **kwargs):
    """Call, which must not be a replay, and compare with the op as it is."""
    before = op.op_plans.replays
    _, seen = launched(lambda: op(*args, **kwargs))
    assert op.op_plans.replays == before, op.op_plans
    same_launches(seen, launched(lambda: op.__wrapped__(*args, **kwargs))[1])


@pytest.fixture
def op():
    return counted(sample_ops.copy_twice)[0]


@pytest.fixture
def x():
    return torch.empty(100)


@pytest.fixture
def out():
    return torch.empty(100)


def test_replay_launches_without_a_line_of_the_op(x, out):
    op, runs = counted(sample_ops.copy_twice)
    warm(op, x, out)
    runs.clear()
    for _ in range(5):
        op(torch.empty(100), torch.empty(100))
    assert runs == []
    assert_replayed(op, torch.empty(100), out)


@pytest.mark.parametrize(
    "form",
    [
        lambda op, x, out: op(x, out),
        lambda op, x, out: op(x, out=out),
        lambda op, x, out: op(out=out, x=x),
        lambda op, x, out: op(x, out, 1.0, "plain", None, (0.0, float("inf")), times=1),
        lambda op, x, out: op(x=x, out=out, shift=None),
    ],
)
def test_every_form_of_a_call_is_the_same_call(op, x, out, form):
    warm(op, x, out)
    runs = op.op_plans.replays
    form(op, x, out)
    assert op.op_plans.replays == runs + 1


@pytest.mark.parametrize(
    "call",
    [
        lambda op, x, out: op(x),
        lambda op, x, out: op(x, out, nothing=1),
        lambda op, x, out: op(x, out, x=x),
        lambda op, x, out: op(x, out, 1.0, "plain", None, (0.0, 1.0), 3),
        lambda op, x, out: op(),
    ],
)
def test_call_that_does_not_fit_raises_as_the_function_does(op, x, out, call):
    warm(op, x, out)
    with pytest.raises(TypeError) as ours:
        call(op, x, out)
    with pytest.raises(TypeError) as theirs:
        call(op.__wrapped__, x, out)
    assert str(ours.value) == str(theirs.value)


OTHER = {
    "longer": lambda x, out: ((torch.empty(101), out), {}),
    "another dtype": lambda x, out: ((x.half(), out), {}),
    "another dtype of the same size": lambda x, out: ((x.view(torch.int32), out), {}),
    "unaligned": lambda x, out: ((torch.empty(101)[1:], out), {}),
    "another stride": lambda x, out: ((torch.empty(200)[::2], out), {}),
    "another stride along one element": lambda x, out: ((x.as_strided((100, 1), (1, 7)), out), {}),
    "more dimensions": lambda x, out: ((x.view(100, 1), out), {}),
    "the same tensor twice": lambda x, out: ((x, x), {}),
    "the same memory twice": lambda x, out: ((x, x[:]), {}),
    "overlapping": lambda x, out: ((x, torch.as_strided(x, (50,), (1,), 50)), {}),
    "another float": lambda x, out: ((x, out, 1.5), {}),
    "an int for a float": lambda x, out: ((x, out, 1), {}),
    "a truth value for a float": lambda x, out: ((x, out, True), {}),
    "another text": lambda x, out: ((x, out, 1.0, "other"), {}),
    "a number for None": lambda x, out: ((x, out), {"shift": 0}),
    "a tensor for None": lambda x, out: ((x, out), {"shift": torch.empty(3)}),
    "a longer tuple": lambda x, out: ((x, out), {"limits": (0.0, float("inf"), 1.0)}),
    "another tuple": lambda x, out: ((x, out), {"limits": (-0.0, float("inf"))}),
    "a list for a tuple": lambda x, out: ((x, out), {"limits": [0.0, float("inf")]}),
    "nested otherwise": lambda x, out: ((x, out), {"limits": ((0.0, float("inf")),)}),
    "one launch more": lambda x, out: ((x, out), {"times": 2}),
    "a dtype": lambda x, out: ((x, out), {"like": torch.float16}),
    "a device": lambda x, out: ((x, out), {"like": torch.device("cpu")}),
    "a large int": lambda x, out: ((x, out), {"like": 2**63}),
}


@pytest.mark.parametrize("kind", OTHER)
def test_call_that_differs_is_not_replayed_and_gets_a_plan_of_its_own(op, x, out, kind):
    warm(op, x, out)
    args, kwargs = OTHER[kind](x, out)
    assert_new(op, *args, **kwargs)
    warm(op, *args, **kwargs)
    assert_replayed(op, *args, **kwargs)
    assert_replayed(op, x, out)
    assert len(op.op_plans) == 2


def test_negative_zero_and_nan_are_calls_of_their_own(op, x, out):
    for value in (0.0, -0.0, float("nan"), float("inf")):
        warm(op, x, out, value)
    assert len(op.op_plans) == 4
    assert_replayed(op, x, out, float("nan"))


def test_ints_of_one_class_but_other_values_are_other_calls(op, x, out):
    for times in (1, 2, 3):
        warm(op, x, out, times=times)
        assert_replayed(op, x, out, times=times)
    assert len(op.op_plans) == 3


def test_tensors_inside_lists_are_arguments_like_others(x, out):
    def into(pair, out):
        betweens = [torch.empty(100) for _ in pair]  # at once, so that none has another's address
        for each, between in zip(pair, betweens, strict=True):
            sample_ops.copy(each, between, 100, 1)
            sample_ops.copy(between, out, 100, 1)

    op = launchkit.planned(into)
    pair = [x, torch.empty(100)]
    warm(op, pair, out)
    assert_replayed(op, [torch.empty(100), x], out)
    assert_replayed(op, pair, torch.empty(100))
    assert_new(op, (x, pair[1]), out)


def test_tensor_that_stands_twice_among_the_arguments_is_replayed_as_such(op):
    x = torch.empty(100)
    warm(op, x, x)
    y = torch.empty(100)
    assert_replayed(op, y, y)
    assert_new(op, x, y)


@pytest.mark.parametrize("size", [100, 0])
def test_op_may_ask_whether_two_arguments_are_one_object(size):
    def op(x, y, n):
        sample_ops.copy(x, y, n + (x is y), 1)
        return y

    op, x = launchkit.planned(op), torch.empty(size)
    warm(op, x, x, 100)
    alias = x[:]
    assert_new(op, x, alias, 100)
    warm(op, x, alias, 100)
    assert assert_replayed(op, x, alias, 100)[0] is alias
    assert assert_replayed(op, x, x, 100)[0] is x


UNPLANNABLE = {
    "an object": object(),
    "a dictionary": {},
    "an int of a class of its own": type("Int", (int,), {})(3),
    "a tuple of a class of its own": torch.Size((1, 2)),
    "a tensor on no memory": torch.empty(3, device="meta"),
    "too deep": ((((((1,),),),),),),
    "too large an int": 2**64,
}


@pytest.mark.parametrize("kind", [kind for kind in UNPLANNABLE if "memory" not in kind])
def test_argument_without_a_key_runs_the_op_as_it_is(x, out, kind):
    op, runs = counted(sample_ops.copy_twice)
    for _ in range(6):
        op(x, out, shift=UNPLANNABLE[kind])
    assert len(runs) == 6
    assert len(op.op_plans) == 0
    assert sum(op.op_plans.reasons.values()) == 6


def test_subclass_of_tensor_runs_the_op_as_it_is(x, out):
    class Mine(torch.Tensor):
        pass

    op, runs = counted(sample_ops.copy_twice)
    for _ in range(4):
        op(x, out, shift=torch.empty(3).as_subclass(Mine))
    assert len(runs) == 4


def test_parameter_is_a_tensor_like_others(op, out):
    weight = torch.nn.Parameter(torch.empty(100), requires_grad=False)
    warm(op, weight, out)
    assert_replayed(op, torch.empty(100), out)


def test_gradients_are_told_apart_only_where_they_are_recorded(op, out):
    leaf = torch.empty(100, requires_grad=True)
    warm(op, torch.empty(100), out)
    assert_new(op, leaf, out)
    with torch.no_grad():
        warm(op, leaf, out)
        assert_replayed(op, torch.empty(100), out)


def test_table_of_plans_is_bounded(op, out, monkeypatch):
    from launchkit.dispatch import op_plans

    monkeypatch.setattr(op_plans, "MAX_OP_PLANS", 8)
    op, _ = counted(sample_ops.copy_twice)
    for n in range(1, 40):
        for _ in range(3):
            op(torch.empty(100), torch.empty(100), shift=n)
        assert len(op.op_plans) <= 8
    assert_replayed(op, torch.empty(100), torch.empty(100), shift=39)


def test_cleared_op_makes_its_plans_anew(op, x, out):
    warm(op, x, out)
    op.op_plans.clear()
    assert len(op.op_plans) == 0
    assert_new(op, x, out)
    assert_replayed(op, x, out)


class TestResults:
    """What a replay returns."""

    def outcome(self, function, *args):
        op = launchkit.planned(function)
        warm(op, *args)
        return assert_replayed(op, *args)

    def test_argument_is_returned_as_the_same_object(self, x, out):
        def op(x, out):
            sample_ops.copy(x, out, 100, 1)
            return out

        assert self.outcome(op, x, out)[0] is out

    def test_allocations_are_fresh_tensors_of_their_own(self, x):
        def op(x):
            mine = torch.empty(100)
            other = torch.empty_strided((4, 5), (1, 4), dtype=torch.float16)
            sample_ops.copy(x, mine, 100, 1)
            return mine, None, other, 7, mine

        result, expected = self.outcome(op, x)
        assert type(result) is tuple
        assert result[0] is result[4]
        assert result[1::2] == (None, 7)
        for seen, wanted in ((result[0], expected[0]), (result[2], expected[2])):
            assert (seen.shape, seen.stride()) == (wanted.shape, wanted.stride())
            assert (seen.dtype, seen.device) == (wanted.dtype, wanted.device)
            assert seen.untyped_storage().nbytes() == wanted.untyped_storage().nbytes()
            assert seen.data_ptr() != wanted.data_ptr()

    def test_strides_along_one_element_are_those_of_the_op(self, x):
        def op(x):
            mine = torch.empty_strided((1, 100), (700, 1))
            sample_ops.copy(x, mine, 100, 1)
            return mine

        assert self.outcome(op, x)[0].stride() == (700, 1)

    def test_list_comes_back_as_a_new_list(self, x):
        def op(x):
            mine = torch.empty(100)
            sample_ops.copy(x, mine, 100, 1)
            return [mine, x]

        op = launchkit.planned(op)
        warm(op, x)
        first, second = op(x), op(x)
        assert type(first) is list
        assert first is not second
        assert first[1] is x
        assert first[0] is not second[0]

    def test_returned_tensor_is_what_the_kernel_was_given(self, x):
        def op(x):
            mine = torch.empty(100)
            sample_ops.copy(x, mine, 100, 1)
            return mine

        op = launchkit.planned(op)
        warm(op, x)
        result, (launch,) = launched(lambda: op(x))
        assert int.from_bytes(launch.params[1], "little") == result.data_ptr()


class TestIsTheFunction:
    """To everyone but a caller, a planned op is the function it was made of."""

    def test_signature_name_and_docstring_are_the_functions(self):
        assert inspect.signature(module_op) == inspect.signature(sample_ops.copy_twice)
        assert module_op.__doc__ == sample_ops.copy_twice.__doc__
        assert module_op.__name__ == "copy_twice"
        assert "copy_twice" in repr(module_op)

    def test_it_is_pickled_and_copied_as_a_function(self, monkeypatch):
        assert copy.copy(module_op) is module_op
        assert copy.deepcopy(module_op) is module_op
        monkeypatch.setattr(sample_ops, "copy_twice", module_op)
        assert pickle.loads(pickle.dumps(module_op)) is module_op

    def test_core_that_was_replaced_is_an_error(self):
        op = launchkit.planned(lambda x: None)
        core = op._core
        for wrong in (3, None, op):
            op._core = wrong
            with pytest.raises(RuntimeError, match="Decorate the function again"):
                op(1)
        op._core = core
        assert op(1) is None

    def test_what_is_no_plain_function_is_refused(self):
        async def suspends():
            pass

        def yields():
            yield

        def takes_all(*args):
            pass

        def takes_names(**kwargs):
            pass

        for thing in (suspends, yields, takes_all, takes_names, len, 3, torch.nn.Linear):
            with pytest.raises(UsageError):
                launchkit.planned(thing)


def test_without_the_c_core_it_is_the_function_itself():
    code = (
        "import pickle, sample_ops, launchkit\n"
        "op = launchkit.planned(sample_ops.copy_twice)\n"
        "assert op is sample_ops.copy_twice is pickle.loads(pickle.dumps(op))\n"
        "assert (op.op_plans.replays, len(op.op_plans), op.op_plans.plans) == (0, 0, [])\n"
        "op.op_plans.clear()\n"
    )
    environment = {**os.environ, "LAUNCHKIT_NATIVE": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
