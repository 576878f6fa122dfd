"""A launch takes the plan that Triton would pick for exactly these arguments, or none."""

from __future__ import annotations

import enum

import numpy as np
import odd_kernels
import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from launching import hit, launch_as_triton, outcome, plans, triton_launch

import launchkit
from launchkit.dispatch import plan as plan_module

pytestmark = pytest.mark.usefixtures("each_core", "host")


class Level(enum.IntEnum):
    ONE = 1
    SIXTEEN = 16


class Integer(int):
    pass


class Subclass(torch.Tensor):
    pass


def tensor(offset=0, dtype=torch.float32):
    return torch.empty(80, dtype=dtype)[offset:]


NAN = float("nan")


@pytest.mark.parametrize(
    "stride", [1, 16, 7, 0, -16, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63]
)
def test_each_class_of_ints_gets_the_variant_that_triton_picks(stride):
    x, y = tensor(), tensor()
    launchkit.launch(sample_kernels.copy, (2,), x, y, 64, 2, BLOCK=16)
    launch_as_triton(sample_kernels.copy, x, y, 64, stride, BLOCK=16)
    hit(sample_kernels.copy, x, y, 64, stride, BLOCK=16)


def test_stride_that_becomes_1_is_folded_and_back():
    x, y = tensor(), tensor()
    strided = launch_as_triton(sample_kernels.copy, x, y, 64, 2, BLOCK=16)
    unit = launch_as_triton(sample_kernels.copy, x, y, 64, 1, BLOCK=16)
    assert strided[0] is not unit[0]
    assert hit(sample_kernels.copy, x, y, 64, 2, BLOCK=16) == strided[1][0]
    assert hit(sample_kernels.copy, x, y, 64, 1, BLOCK=16) == unit[1][0]


def test_pointer_that_loses_its_alignment_gets_another_variant():
    x, y = tensor(), tensor()
    aligned = launch_as_triton(sample_kernels.copy, x, y, 64, 1, BLOCK=16)
    shifted = launch_as_triton(sample_kernels.copy, x[1:], y, 64, 1, BLOCK=16)
    assert aligned[0] is not shifted[0]
    assert hit(sample_kernels.copy, x[4:], y, 64, 1, BLOCK=16).function == aligned[1][0].function
    assert hit(sample_kernels.copy, x[5:], y, 64, 1, BLOCK=16).function == shifted[1][0].function


def test_address_is_read_at_each_launch():
    x, y = tensor(), tensor()
    launch_as_triton(sample_kernels.copy, x, y, 64, 1, BLOCK=16)
    x.set_(torch.empty(80)[1:])
    launch_as_triton(sample_kernels.copy, x, y, 64, 1, BLOCK=16)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.uint8]
)
def test_other_dtype_gets_another_variant(dtype):
    y = tensor()
    first = launch_as_triton(sample_kernels.copy, tensor(), y, 64, 1, BLOCK=16)
    other = launch_as_triton(sample_kernels.copy, tensor(dtype=dtype), y, 64, 1, BLOCK=16)
    assert first[0] is not other[0]
    hit(sample_kernels.copy, tensor(dtype=dtype), y, 64, 1, BLOCK=16)


def test_none_and_tensor_are_told_apart():
    b = tensor()
    for a in (None, tensor(), None, tensor()):
        launch_as_triton(sample_kernels.mixed, a, b, 3, True, 0.5, MODE="plain")
    hit(sample_kernels.mixed, None, b, 3, True, 0.5, MODE="plain")


@pytest.mark.parametrize("order", [(1, True, 1.0), (1.0, 1, True), (True, 1.0, 1)])
def test_runtime_1_true_and_1_point_0_are_three_variants(order):
    x = tensor()
    found = {launch_as_triton(odd_kernels.scalar, x, value)[0] for value in order * 2}
    assert len(found) == 3
    for value in order:
        hit(odd_kernels.scalar, x, value)


@pytest.mark.parametrize(
    "values", [(1, True, 1.0), (1.0, 1, True), (0.0, -0.0), (-0.0, 0.0), (0, False)], ids=str
)
def test_constexprs_that_are_equal_and_unlike_are_looked_up_apart(values):
    # Triton's own table takes them for one another, so which one is compiled depends on the order.
    x = tensor()
    for value in values * 2:
        launch_as_triton(odd_kernels.constant, x, value)
        hit(odd_kernels.constant, x, value)
    assert plans(odd_kernels.constant) == len(values)


def test_constexpr_nan_is_compiled_once():
    x = tensor()
    launch_as_triton(odd_kernels.constant, x, NAN)
    hit(odd_kernels.constant, x, float("nan"))
    assert plans(odd_kernels.constant) == 1


def test_runtime_floats_of_any_value_share_one_plan():
    x = tensor()
    for value in (0.0, -0.0, NAN, float("inf"), 1e-320, 1.0):
        launch_as_triton(odd_kernels.scalar, x, value)
    assert plans(odd_kernels.scalar) == 1


@pytest.mark.parametrize(
    "options",
    [{"num_warps": 2}, {"num_stages": 2}, {"maxnreg": 64}, {"debug": True}, {"extern_libs": None}],
    ids=str,
)
def test_launch_options_get_the_variant_that_triton_picks(options):
    x = tensor()
    plain = launch_as_triton(odd_kernels.scalar, x, 3)
    special = launch_as_triton(odd_kernels.scalar, x, 3, **options)
    assert hit(odd_kernels.scalar, x, 3, **options) == special[1][0]
    assert hit(odd_kernels.scalar, x, 3) == plain[1][0]


def test_option_given_as_true_and_as_1_are_looked_up_apart():
    x = tensor()
    launch_as_triton(odd_kernels.scalar, x, 3, launch_pdl=True)
    launch_as_triton(odd_kernels.scalar, x, 3, launch_pdl=1)
    assert plans(odd_kernels.scalar) == 2


def test_default_left_out_given_by_position_and_by_keyword_are_one_plan():
    x = tensor()
    launch_as_triton(odd_kernels.optional, x)
    for args, kwargs in [((3,), {}), ((), {"n": 3}), ((3, 16), {"SPLIT": 1}), ((), {"SIZE": 16})]:
        hit(odd_kernels.optional, x, *args, **kwargs)
    assert plans(odd_kernels.optional) == 1


def test_other_value_than_the_default_is_not_the_default():
    x = tensor()
    for kwargs in ({}, {"n": 1}, {"n": 3.0}, {"SPLIT": 2}, {"SPLIT": True}, {}):
        launch_as_triton(odd_kernels.optional, x, **kwargs)


ODD_VALUES = [
    Level.ONE, Level.SIXTEEN, Integer(1), Integer(16), np.int64(1), np.float32(1.5), np.bool_(True),
    (1, 2), [1, 2], "text", None, tl.constexpr(4), tl.constexpr(1), 2**64, -(2**63) - 1, 1j,
]  # fmt: skip


@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_odd_runtime_value_comes_to_what_triton_makes_of_it(value):
    launch_as_triton(odd_kernels.scalar, tensor(), 1)
    launch_as_triton(odd_kernels.scalar, tensor(), 16)
    launch_as_triton(odd_kernels.scalar, tensor(), value)


@pytest.mark.parametrize("value", ODD_VALUES, ids=repr)
def test_odd_constexpr_value_comes_to_what_triton_makes_of_it(value):
    launch_as_triton(odd_kernels.constant, tensor(), 1)
    launch_as_triton(odd_kernels.constant, tensor(), 16)
    launch_as_triton(odd_kernels.constant, tensor(), value)


@pytest.mark.parametrize("pair", [(1, 2), (16, 7), (1, 1), (2**40, 1), (1.0, True)], ids=str)
def test_tuple_arguments_launch_as_triton_does(pair):
    launch_as_triton(odd_kernels.takes_tuple, tensor(), (3, 5))
    launch_as_triton(odd_kernels.takes_tuple, tensor(), pair)


DTYPES = [
    tl.float32,
    tl.float16,
    "fp16",
    tl.constexpr(tl.float16),
    torch.float16,
    tl.pointer_type(tl.int8),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_as_constexpr_launches_as_triton_does(dtype):
    launch_as_triton(odd_kernels.casts, tensor(), tl.float32)
    launch_as_triton(odd_kernels.casts, tensor(), tl.float16)
    launch_as_triton(odd_kernels.casts, tensor(), dtype)


def test_function_as_constexpr_launches_as_triton_does():
    x = tensor()
    found = {
        launch_as_triton(odd_kernels.applies, x, f)[0]
        for f in (odd_kernels.twice, odd_kernels.thrice) * 2
    }
    assert len(found) == 2


TENSORS = {
    "subclass": lambda: torch.empty(64).as_subclass(Subclass),
    "parameter": lambda: torch.nn.Parameter(torch.empty(64)),
    "reinterpreted": lambda: triton.reinterpret(torch.empty(64, dtype=torch.int32), tl.float32),
    "empty": lambda: torch.empty(0),
    "meta": lambda: torch.empty(64, device="meta"),
    "numpy": lambda: np.empty(64, dtype="f4"),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "complex": lambda: torch.empty(64, dtype=torch.complex64),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_odd_tensor_comes_to_what_triton_makes_of_it(kind):
    launch_as_triton(odd_kernels.scalar, tensor(), 3)
    made = TENSORS[kind]()
    launch_as_triton(odd_kernels.scalar, made, 3)


def test_tensor_inside_vmap_comes_to_what_triton_makes_of_it():
    launch_as_triton(odd_kernels.scalar, tensor(), 3)

    def launched(x):
        assert type(x) is torch.Tensor
        assert issubclass(launch_as_triton(odd_kernels.scalar, x, 3), Exception)
        return x

    torch.vmap(launched)(torch.empty(2, 64))


def test_parameter_takes_the_shortcut_and_subclass_does_not():
    launch_as_triton(odd_kernels.scalar, torch.nn.Parameter(torch.empty(64)), 3)
    hit(odd_kernels.scalar, torch.nn.Parameter(torch.empty(64)), 3)
    other = torch.empty(64).as_subclass(Subclass)
    launch_as_triton(odd_kernels.scalar, other, 3)
    with pytest.raises(AssertionError, match="went through Triton"):
        hit(odd_kernels.scalar, other, 3)


def test_tensor_on_another_device_type_never_gets_a_plan(monkeypatch):
    # Triton accepts some of them (pinned memory) and refuses others that look the same.
    x = tensor()
    driver = triton.runtime.driver.active
    monkeypatch.setattr(type(driver), "expected_device_type", "cuda")
    for _ in range(3):
        launch_as_triton(odd_kernels.scalar, x, 12345)
    assert plans(odd_kernels.scalar) == 0


@pytest.mark.parametrize(
    "grid",
    [(), (1, 2, 3, 4), 5, "ab", (1.0,), (np.int64(3),), (-1,), (2**31,), (2**16, 2**16), (2**16, 2**15), [2], (True,),
     lambda meta: 5, lambda meta: (meta["value"],), lambda meta: [meta["value"], 2], lambda meta: meta["missing"]],
    ids=lambda grid: "function" if callable(grid) else str(grid),
)  # fmt: skip
def test_any_grid_comes_to_what_triton_makes_of_it(grid):
    launch_as_triton(odd_kernels.scalar, tensor(), 3)
    launch_as_triton(odd_kernels.scalar, tensor(), 3, grid=grid)


def test_distinct_values_keep_plans_bounded(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_PLANS", 64)
    x = tensor()
    for value in range(200):
        launchkit.launch(odd_kernels.constant, (1,), x, value)
        assert plans(odd_kernels.constant) <= 64
    hit(odd_kernels.constant, x, 199)


def test_evicted_plan_is_made_again_and_right(monkeypatch):
    monkeypatch.setattr(plan_module, "MAX_PLANS", 4)
    x = tensor()
    for stride in (2, 4, 1, 16, 2**40, 7, 1, 16, 2**40, 2):
        launch_as_triton(sample_kernels.copy, x, x, 64, stride, BLOCK=16)
        launch_as_triton(sample_kernels.copy, x[1:], x, 64, stride, BLOCK=16)
    assert plans(sample_kernels.copy) <= 4


WRONG_CALLS = {
    "missing argument": ((), {}),
    "too many by position": ((1, 2, 3), {}),
    "unknown keyword": ((1,), {"unheard": 1}),
    "given twice": ((1,), {"value": 2}),
    "removed option": ((1,), {"stream": 0}),
    "impossible option": ((1,), {"num_warps": 3}),
    "warmup": ((1,), {"warmup": True}),
    "second grid": ((1,), {"grid": (1,)}),
}


@pytest.mark.parametrize("wrong", WRONG_CALLS)
def test_wrong_call_raises_what_triton_raises_and_leaves_the_kernel_usable(wrong):
    args, kwargs = WRONG_CALLS[wrong]
    x = tensor()
    cold = outcome(lambda: launchkit.launch(odd_kernels.scalar, (1,), x, *args, **kwargs))
    launch_as_triton(odd_kernels.scalar, x, 1)
    warm = outcome(lambda: launchkit.launch(odd_kernels.scalar, (1,), x, *args, **kwargs))
    theirs = outcome(lambda: odd_kernels.scalar[(1,)](x, *args, **kwargs))
    assert cold is warm is theirs
    assert issubclass(theirs, Exception)
    hit(odd_kernels.scalar, x, 1)


NAMED_CALLS = [
    ((1, 2, 3, 4), {}),
    ((1, 2, 3), {"args": 4}),
    ((1,), {"kernel": 2, "warmup": 3, "args": 4}),
    ((), {"grid": 1, "kernel": 2, "warmup": 3, "args": 4}),
]


@pytest.mark.parametrize("call", NAMED_CALLS, ids=str)
def test_parameters_named_as_launch_arguments_mean_what_they_mean_to_triton(call):
    x = tensor()
    args, kwargs = call

    def ours(*args, **kwargs):
        return outcome(lambda: launchkit.launch(odd_kernels.names, (2,), x, *args, **kwargs))

    theirs = outcome(lambda: triton_launch(odd_kernels.names, (2,), (x, *args), kwargs))
    assert ours(*args, **kwargs) == theirs
    ours(1, 2, 3, 4)
    assert ours(*args, **kwargs) == theirs


def test_parameter_named_self_is_an_argument_like_others():
    x = tensor()

    def ours(*args, **kwargs):
        return outcome(lambda: launchkit.launch(odd_kernels.takes_self, (2,), *args, **kwargs))

    expected = outcome(lambda: odd_kernels.takes_self[(2,)](3, x))
    assert ours(3, x) == ours(3, x_ptr=x) == expected
    assert ours(x_ptr=x, self=3) is outcome(lambda: odd_kernels.takes_self[(2,)](x_ptr=x, self=3))


KEYWORD_ONLY_CALLS = [
    ((), {"n": 5}),
    ((5,), {}),
    ((5, 2), {}),
    ((), {"n": 5, "m": 2}),
    ((5,), {"m": 2}),
    ((), {}),
]


def test_keyword_only_parameters_bind_as_triton_binds_them():
    x = tensor()
    for args, kwargs in KEYWORD_ONLY_CALLS * 2:
        launch_as_triton(odd_kernels.keyword_only, x, *args, **kwargs)


def test_variable_positional_parameters_launch_as_triton_does(tmp_path):
    namespace = {"triton": triton, "tl": tl}
    source = tmp_path / "variable.py"
    source.write_text("def variable(x_ptr, *values):\n    tl.store(x_ptr, values[0] + values[1])\n")
    exec(compile(source.read_text(), str(source), "exec"), namespace)
    kernel = triton.jit(namespace["variable"])
    x = tensor()
    for values in ((1, 2), (3, 16), (3, 16, 5), ()):
        launch_as_triton(kernel, x, *values)
