"""Heuristics that only ask for None are computed in place, with Triton's own result in every case."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from installing import fast, installed, triton_launches
from launching import outcome

import launchkit
from launchkit.dispatch.heuristic_front import none_test

X = torch.empty(128)


def named(args):
    return args["x"] is None


def outer(limit):
    return lambda args: args["x"] is not limit


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda args: args["x"] is not None, ("x", False)),
        (lambda nargs: nargs["bias"] is None, ("bias", True)),
        (named, ("x", True)),
        (lambda args: args["x"] is True, None),
        (lambda args: args["x"] != None, None),  # noqa: E711
        (lambda args: not args["x"], None),
        (lambda args: args["x"] is not None or args["y"] is not None, None),
        (lambda args: args["x"] is not args["y"], None),
        (lambda args: args[0] is not None, None),
        (lambda args: args.get("x") is not None, None),
        (lambda args, more=None: args["x"] is not more, None),
        (lambda args: None is not args["x"], None),
        (lambda args: X is not None, None),
        (outer(None), None),
        (isinstance, None),
        (print, None),
        (sample_kernels.copy, None),
    ],
)
def test_only_a_plain_question_for_none_is_recognized(function, expected):
    assert none_test(function) == expected


@triton.jit
def biased(x_ptr, BLOCK: tl.constexpr, bias_ptr, n, HAS_BIAS: tl.constexpr, m, NO_M: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets) + n
    if HAS_BIAS:
        value += tl.load(bias_ptr + offsets)
    if not NO_M:
        value += m
    tl.store(x_ptr + offsets, value)


HEURISTICS = {
    "HAS_BIAS": lambda args: args["bias_ptr"] is not None,
    "NO_M": lambda args: args["m"] is None,
}


def plain():
    return triton.heuristics(dict(HEURISTICS))(triton.jit(biased.fn))


def tuned():
    configs = [triton.Config({"BLOCK": block}, num_warps=2) for block in (16, 32)]
    return triton.heuristics(dict(HEURISTICS))(
        triton.autotune(configs, ["n"])(triton.jit(biased.fn))
    )


def two_layers():
    first, second = ({name: HEURISTICS[name]} for name in HEURISTICS)
    return triton.heuristics(first)(triton.heuristics(second)(triton.jit(biased.fn)))


CALLS = {
    "keywords": lambda k, b: k(x_ptr=X, bias_ptr=X, n=5, m=7, **b),
    "without a bias": lambda k, b: k(x_ptr=X, bias_ptr=None, n=5, m=7, **b),
    "without m": lambda k, b: k(x_ptr=X, bias_ptr=X, n=5, m=None, **b),
    "another order": lambda k, b: k(m=7, n=5, **b, bias_ptr=X, x_ptr=X),
    "an option": lambda k, b: k(x_ptr=X, bias_ptr=X, n=5, m=7, **b, enable_fp_fusion=False),
    "one by position": lambda k, b: k(X, bias_ptr=X, n=5, m=7, **b),
    "missing": lambda k, b: k(x_ptr=X, bias_ptr=X, n=5, **b),
    "missing for a heuristic": lambda k, b: k(x_ptr=X, n=5, m=7, **b),
    "too many": lambda k, b: k(X, 16, X, 5, True, 7, False, 8, 9),
    "one that a heuristic gives": lambda k, b: k(X, bias_ptr=X, n=5, m=7, HAS_BIAS=False, **b),
    "behind one that a heuristic gives": lambda k, b: k(X, 16, X, 5, 7),
    "unknown": lambda k, b: k(X, bias_ptr=X, n=5, m=7, no_such=1, **b),
    "all by position up to it": lambda k, b: k(X, 16, X, 5, m=7),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("make", [plain, tuned, two_layers])
def test_call_comes_to_what_it_comes_to_in_triton(call, make, host):
    kernel = make()
    given = {} if make is tuned else {"BLOCK": 16}

    def launch():
        return CALLS[call](kernel[(2,)], given)

    expected = outcome(launch)
    with installed():
        found = [outcome(launch) for _ in range(3)]
    if isinstance(expected, type):
        assert all(isinstance(each, type) for each in found), (expected, found)
    else:
        assert found == [expected] * 3


@pytest.mark.parametrize("call", list(CALLS)[:6])
@pytest.mark.parametrize("make", [plain, tuned, two_layers])
def test_such_a_launch_is_fast(call, make, host):
    kernel = make()
    given = {} if make is tuned else {"BLOCK": 16}
    with installed() as runs:
        CALLS[call](kernel[(2,)], given)
        assert len(fast(runs, lambda: CALLS[call](kernel[(2,)], given))) == 1


def test_replaced_heuristic_holds_for_the_next_launch(host):
    kernel = plain()
    arguments = {"x_ptr": X, "BLOCK": 16, "bias_ptr": X, "n": 5, "m": 7}
    launchkit.launch(kernel, (2,), **arguments)
    kernel.values["HAS_BIAS"] = lambda args: False
    expected = triton_launches(kernel, **arguments)
    launchkit.launch(kernel, (2,), **arguments)
    assert outcome(lambda: launchkit.launch(kernel, (2,), **arguments))[1] == expected


def test_configs_that_give_other_names_later_are_followed(host):
    kernel = tuned()
    arguments = {"x_ptr": X, "bias_ptr": X, "n": 5, "m": 7}
    for _ in range(2):
        launchkit.launch_autotuned(kernel, (2,), **arguments)
    kernel.fn.configs = [triton.Config({}, num_warps=4)]
    expected = triton_launches(kernel, **arguments, BLOCK=64)
    for _ in range(2):
        found = outcome(lambda: launchkit.launch_autotuned(kernel, (2,), **arguments, BLOCK=64))
        assert found[1] == expected


def test_triton_key_keeps_the_order_of_the_call(host):
    kernel = tuned()
    launchkit.launch_autotuned(kernel, (2,), n=5, m=7, bias_ptr=X.half(), x_ptr=X)
    assert list(kernel.fn.cache) == [(5, "torch.float16", "torch.float32")]
