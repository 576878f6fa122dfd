"""What cannot be frozen is said when it is given; a wrong call launches nothing and says why."""

from __future__ import annotations

import re

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from launching import counted_runs

import launchkit
from launchkit import hostonly
from launchkit.errors import CaptureError, FrozenArgumentError, UsageError

pytestmark = pytest.mark.usefixtures("each_core", "host")


@triton.jit
def has_varying(x_ptr, varying):
    tl.store(x_ptr, varying)


class Subclass(torch.Tensor):
    """What a guard does not know."""


def freeze(**changes):
    x = torch.empty(64)
    values = {"x_ptr": x, "y_ptr": x, "n": 64, "stride": 2, "BLOCK": 16, "varying": ["n", "x_ptr"]}
    return launchkit.freeze(sample_kernels.copy, (4,), **{**values, **changes})


@pytest.mark.parametrize(
    ("varying", "reason"),
    [
        (["m"], "m of .*copy cannot vary: it is none of its parameters: x_ptr, y_ptr, n, stride"),
        ("BLOCK", "BLOCK of .* it is a constexpr"),
        (["n", "n"], "n of .* it is named twice"),
    ],
)
def test_name_that_cannot_vary_is_refused(varying, reason):
    with pytest.raises(UsageError, match=reason):
        freeze(varying=varying)


def test_what_a_config_or_a_heuristic_gives_cannot_vary():
    x = torch.empty(64)
    configs = [triton.Config({"MODE": "plain", "alpha": 0.5})]
    tuned = launchkit.autotuned(configs, ["n"])(sample_kernels.mixed)
    with pytest.raises(UsageError, match=r"alpha of .* comes from a config or a heuristic"):
        launchkit.freeze(tuned, (1,), x, x, 6, True, varying=["alpha"])
    told = triton.heuristics({"alpha": lambda args: 0.5})(sample_kernels.mixed)
    with pytest.raises(UsageError, match=r"alpha of .* comes from a config or a heuristic"):
        launchkit.freeze(told, (1,), x, x, 6, True, MODE="plain", varying=["alpha"])


def test_kernel_with_a_parameter_named_varying_is_refused():
    with pytest.raises(UsageError, match="has a parameter named varying"):
        launchkit.freeze(has_varying, (1,), torch.empty(4), 3)


@pytest.mark.parametrize(
    "value", ["text", (1, 2), torch.empty(4).as_subclass(Subclass), object()],
    ids=["str", "tuple", "subclass", "object"],
)  # fmt: skip
def test_value_of_a_type_that_cannot_vary_is_refused(value):
    with pytest.raises(UsageError, match=r"value of .* and only tensors and plain numbers"):
        launchkit.freeze(odd_kernels.scalar, (1,), torch.empty(4), value, varying=["value"])


@pytest.mark.parametrize("missing", ["n", "x_ptr", "stride"])
def test_missing_argument_is_a_type_error_as_for_a_launch(missing):
    x = torch.empty(64)
    values = {"x_ptr": x, "y_ptr": x, "n": 64, "stride": 2, "BLOCK": 16}
    del values[missing]
    with pytest.raises(TypeError, match=missing):
        launchkit.freeze(sample_kernels.copy, (4,), **values, varying=["n"])


def test_what_is_no_kernel_is_refused():
    with pytest.raises(UsageError, match="not a Triton kernel"):
        launchkit.freeze(lambda: None, (1,))


def test_argument_that_a_config_gives_is_refused():
    tuned = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    x = torch.empty(64)
    with pytest.raises(UsageError, match="BLOCK comes from the kernel's configs"):
        launchkit.freeze(tuned, (1,), x, x, 64, 1, BLOCK=16)


def test_cold_key_is_not_tuned_while_a_graph_is_captured(measuring):
    tuned = launchkit.autotuned(
        sample_kernels.configs(16, 32), ["n"], do_bench=lambda fn, quantiles: (fn(), [1.0] * 3)[1]
    )(sample_kernels.copy)
    x = torch.empty(64)
    with hostonly.capturing(), pytest.raises(CaptureError):
        launchkit.freeze(tuned, (1,), x, x, 64, 1)
    assert hostonly.launches() == []


def x(dtype=torch.float32, offset=0):
    return torch.empty(64, dtype=dtype)[offset:]


def sparse():
    return torch.empty(3, layout=torch.sparse_coo)


WRONG = [
    ("n", 7, "an int of 32 bits, other than 1, divisible by 16", "7, an int of 32 bits"),
    ("n", 1, "an int of 32 bits, other than 1, divisible by 16", "1, the int 1"),
    ("n", 2**40, "an int of 32 bits", "1099511627776, an int of 64 bits"),
    ("n", 2**64, "an int of 32 bits", "more than 64 bits"),
    ("n", True, "an int of 32 bits", "True, a bool"),
    ("n", 64.0, "an int of 32 bits", "64.0, a float"),
    ("n", None, "an int of 32 bits", "None"),
    ("n", "64", "an int of 32 bits", "a str"),
    ("n", x, "an int of 32 bits", "a tensor of torch.float32"),
    ("x_ptr", lambda: x(torch.float16), "a tensor of torch.float32 on cpu, aligned", "float16"),
    ("x_ptr", lambda: x(offset=1), "aligned to 16 bytes", "not aligned to 16 bytes"),
    ("x_ptr", None, "a tensor of torch.float32", "None"),
    ("x_ptr", 64, "a tensor of torch.float32", "64, an int"),
    ("x_ptr", lambda: torch.empty(4, device="meta"), "a tensor of torch.float32 on cpu", "Tensor|meta"),
    ("x_ptr", sparse, "a tensor of torch.float32", "a Tensor"),
    ("x_ptr", lambda: x().as_subclass(Subclass), "a tensor of torch.float32", "a Subclass"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected", "got"), WRONG)
def test_argument_of_another_class_is_refused_with_both_classes(name, value, expected, got):
    handle = freeze()
    value = value() if callable(value) else value
    good = {"n": 32, "x_ptr": x()}
    handle(**good)
    hostonly.clear()
    with counted_runs() as runs, pytest.raises(FrozenArgumentError) as caught:
        handle(**{**good, name: value})
    assert runs.total == 0
    assert hostonly.launches() == []
    assert caught.value.fields["argument"] == name
    assert expected in caught.value.fields["expected"]
    assert re.search(got, caught.value.fields["got"])
    assert "freeze another handle" in str(caught.value)
    handle(**good)
    assert len(hostonly.launches()) == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        ((), {}, "as n one value, and got none"),
        ((32,), {}, "as x_ptr one value, and got none"),
        ((32, None, 3), {}, r"as arguments \(n, x_ptr\), and got 3 by position"),
        ((32,), {"n": 32}, "as n one value, and got two"),
        ((32,), {"stride": 2}, r"as arguments \(n, x_ptr\), and got stride"),
        ((32,), {"grid": 2}, "and got grid"),
        ((), {"n": 32}, "as x_ptr one value, and got none"),
    ],
)
def test_wrong_number_or_name_is_refused(args, kwargs, match):
    handle = freeze()
    with pytest.raises(FrozenArgumentError, match=match):
        handle(*args, **kwargs)
    assert hostonly.launches() == []


def test_handle_without_varying_arguments_takes_none():
    handle = freeze(varying=())
    handle()
    with pytest.raises(FrozenArgumentError, match="as arguments no arguments, and got 1"):
        handle(32)


def test_frozen_arguments_cannot_be_changed():
    handle = freeze()
    with pytest.raises(TypeError):
        handle.frozen["stride"] = 3
    with pytest.raises(TypeError):
        handle.options["num_warps"] = 8


def test_list_grid_and_kwargs_of_the_caller_are_copied():
    grid = [2, 3]
    x = torch.empty(64)
    handle = launchkit.freeze(sample_kernels.copy, grid, x, x, 64, 2, BLOCK=16)
    grid[0] = 9
    handle()
    assert hostonly.launches()[-1].grid == (2, 3, 1)
