"""A frozen handle makes the launch that Triton makes of all its arguments, or raises."""

from __future__ import annotations

import functools
import itertools
import random

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, outcome, triton_launch

import launchkit
from launchkit import hostonly
from launchkit.errors import FrozenArgumentError

pytestmark = pytest.mark.usefixtures("each_core", "host")


def tensor(rng, dtype=torch.float32):
    """A view whose address is aligned to 16 bytes or not."""
    return torch.empty(64, dtype=dtype)[rng.choice((0, 0, 1, 4)) :]


def copy_arguments(rng):
    return {
        "x_ptr": tensor(rng, rng.choice((torch.float32, torch.float16))),
        "y_ptr": tensor(rng),
        "n": rng.choice((1, 16, 48, 0, 7, 33, -3, 2**31 - 1, 2**31, 2**40, -(2**63))),
        "stride": rng.choice((1, 16, 7)),
        "BLOCK": 16,
    }


def unspecialized_arguments(rng):
    return {
        "x_ptr": tensor(rng),
        "y_ptr": tensor(rng),
        "n": rng.choice((1, 16, 7, 2**40, 2**63, 2**64 - 1)),
        "m": rng.choice((1, 16, 7)),
    }


def mixed_arguments(rng):
    return {
        "a_ptr": rng.choice((None, torch.empty(64))),
        "b_ptr": torch.empty(64),
        "n": rng.choice((1, 16, 32, 7, -5)),
        "flag": rng.choice((True, False)),
        "alpha": rng.choice((0.0, -0.0, 1.5, float("nan"), 1e300)),
        "MODE": rng.choice(("shift", "plain")),
    }


def typed_arguments(rng):
    return {
        "x_ptr": torch.empty(64),
        "n": rng.choice((1, 16, 7, 2**40)),
        "m": rng.choice((1, 16, 7, 9)),
        "alpha": rng.choice((1.0, -2.5)),
        "half": rng.choice((0.5, 65504.0, 1e30)),
        "double": rng.choice((1e300, 2.0)),
    }


KERNELS = {
    "copy": (sample_kernels.copy, copy_arguments),
    "unspecialized": (sample_kernels.unspecialized, unspecialized_arguments),
    "mixed": (sample_kernels.mixed, mixed_arguments),
    "typed": (sample_kernels.typed, typed_arguments),
}


def random_varying(rng, kernel):
    names = [param.name for param in kernel.params if not param.is_constexpr]
    return rng.sample(names, rng.randrange(len(names) + 1))


def random_grid(rng, kernel):
    size = rng.randrange(1, 9)
    name = "n" if kernel is not sample_kernels.typed else "m"
    return rng.choice(
        (
            (size,),
            [2, size],
            lambda meta: (abs(meta[name]) % 5 + 1, size),
            launchkit.grid(launchkit.cdiv(name, 1).at_most(7).at_least(1), size, 2),
        )
    )


@pytest.mark.parametrize("name", KERNELS)
def test_calls_launch_what_triton_launches_or_are_refused(name):
    kernel, make = KERNELS[name]
    rng = random.Random(f"frozen {name}")
    launched = refused = 0
    for _ in range(60):
        example, varying, grid = make(rng), random_varying(rng, kernel), random_grid(rng, kernel)
        handle = launchkit.freeze(kernel, grid, **example, varying=varying)
        assert handle.obstacle is None
        for _ in range(6):
            other = make(rng)
            given = {each: other[each] for each in varying}
            call = functools.partial(handle, **given)
            if rng.random() < 0.5:
                call = functools.partial(handle, *given.values())
            expected = outcome(
                functools.partial(triton_launch, kernel, grid, (), {**example, **given})
            )
            ours = outcome(call)
            if ours is FrozenArgumentError:
                refused += 1
                assert varying
                continue
            launched += 1
            assert ours == expected, (example, given, ours, expected)
            assert expected is OverflowError or expected[0] is handle.compiled
    assert launched > 60
    assert refused > 30


def test_a_call_is_refused_exactly_where_triton_would_take_another_kernel():
    x, y = torch.empty(64), torch.empty(64)
    values = (1, 2, 7, 16, 32, 2**31, 2**31 + 16, -16, -1)
    for example, other in itertools.product(values, values):
        handle = launchkit.freeze(
            sample_kernels.copy, (1,), x, y, example, 2, BLOCK=16, varying=["n"]
        )
        same = triton_launch(sample_kernels.copy, (1,), (x, y, other, 2), {"BLOCK": 16})
        ours = outcome(functools.partial(handle, other))
        assert (ours is FrozenArgumentError) == (same is not handle.compiled), (example, other)


def test_calls_take_neither_run_of_triton(each_core, monkeypatch):
    x, y = torch.empty(64), torch.empty(64)
    handle = launchkit.freeze(
        sample_kernels.copy, lambda meta: (meta["n"],), x, y, 7, 2, BLOCK=16, varying=["y_ptr", "n"]
    )
    if each_core == "c":
        monkeypatch.setattr(type(handle), "_call", None)  # not even launchkit's Python
    with counted_runs() as runs:
        for n in (7, 9, 33):
            hostonly.clear()
            assert handle(y, n) is handle.compiled
            (launch,) = hostonly.launches()
            assert launch.grid == (n, 1, 1)
    assert runs.total == 0


def test_freezing_launches_nothing():
    x = torch.empty(64)
    tuned = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    launchkit.freeze(tuned, (1,), x, x, 64, 1)
    launchkit.freeze(sample_kernels.copy, (1,), x, x, 64, 1, BLOCK=16)
    assert hostonly.launches() == []


def test_an_autotuned_kernel_is_frozen_with_its_config():
    x, y = torch.empty(64), torch.empty(64)
    tuned = launchkit.autotuned(sample_kernels.configs(32, 16, num_warps=2), ["n"])(
        sample_kernels.copy
    )
    grid = launchkit.grid(launchkit.cdiv("n", "BLOCK"), "stride")
    handle = launchkit.freeze(tuned, grid, x, y, 100, stride=3, varying=("x_ptr", "n"))
    assert handle.config is tuned.configs[0]
    assert dict(handle.frozen) == {"y_ptr": y, "stride": 3, "BLOCK": 32}
    assert handle.options["num_warps"] == 2
    assert handle.varying == ("x_ptr", "n")
    assert handle.grid is grid
    assert "takes x_ptr, n; 3 arguments frozen" in repr(handle)
    for n in (100, 34, 999):
        expected = outcome(functools.partial(triton_launch, tuned, grid, (y, y, n, 3), {}))
        ours = outcome(functools.partial(handle, n=n, x_ptr=y))
        assert ours == expected
        assert ours[1][0].grid == (-(-n // 32), 3, 1)


@pytest.mark.parametrize("order", ["outside", "inside"])
def test_heuristics_are_asked_at_each_call_and_must_say_what_was_frozen(order):
    heuristic = triton.heuristics({"SIZE": lambda args: 16 if args["n"] % 2 else 32})
    configs = [triton.Config({"MODE": mode}, num_warps=2) for mode in ("shift", "plain")]
    tune = launchkit.autotuned(configs=configs, key=["flag"])
    kernel = (
        heuristic(tune(sample_kernels.mixed))
        if order == "outside"
        else tune(heuristic(sample_kernels.mixed))
    )
    x = torch.empty(64)
    handle = launchkit.freeze(kernel, (2,), x, x, 6, False, 0.5, varying=["b_ptr", "n"])
    assert handle.obstacle is None
    assert (handle.frozen["SIZE"], handle.frozen["MODE"]) == (32, "shift")
    expected = outcome(functools.partial(triton_launch, kernel, (2,), (x, x, 10, False, 0.5), {}))
    assert outcome(functools.partial(handle, x, 10)) == expected
    with pytest.raises(FrozenArgumentError, match="heuristic SIZE 32, and got 16"):
        handle(x, 7)


def test_frozen_heuristics_are_not_asked_when_nothing_varies():
    asked = []
    heuristic = triton.heuristics({"SIZE": lambda args: asked.append(1) or 16})
    x = torch.empty(64)
    handle = launchkit.freeze(heuristic(sample_kernels.mixed), (2,), x, x, 6, False, 0.5, "plain")
    del asked[:]
    assert handle() is handle.compiled
    assert asked == []


def test_grid_function_gets_tritons_mapping():
    seen = []
    x, y = torch.empty(64), torch.empty(64)

    def grid(meta):
        seen.append(dict(meta))
        return (3,)

    handle = launchkit.freeze(
        sample_kernels.copy, grid, x, x, 7, 2, BLOCK=16, varying=["n", "y_ptr"]
    )
    assert seen == []
    handle(9, y)
    triton_launch(sample_kernels.copy, grid, (x, y, 9, 2), {"BLOCK": 16})
    assert list(seen[0]) == list(seen[1]) == ["x_ptr", "y_ptr", "n", "stride", "BLOCK"]
    assert all(seen[0][name] is seen[1][name] for name in seen[0])


@pytest.mark.parametrize(
    "grid", [(0,), (2, 0), (2**31, 2), (-1,), (1, 2, 3, 4), (2.0,), (), [5], (2**40,), "ab"]
)
def test_odd_grids_come_to_what_triton_makes_of_them(grid):
    x = torch.empty(64)
    expected = outcome(
        functools.partial(triton_launch, sample_kernels.copy, grid, (x, x, 7, 2), {"BLOCK": 16})
    )
    for given in (grid, lambda meta: grid):
        handle = launchkit.freeze(sample_kernels.copy, given, x, x, 7, 2, BLOCK=16)
        for _ in range(2):
            assert outcome(handle) == expected


def test_declared_grid_of_frozen_arguments_alone_is_evaluated_once():
    x = torch.empty(64)
    grid = launchkit.grid("n", launchkit.cdiv("stride", 1) * 2)
    handle = launchkit.freeze(sample_kernels.copy, grid, x, x, 7, 2, BLOCK=16, varying=["x_ptr"])
    assert handle.grid is grid
    handle(torch.empty(64))
    assert hostonly.launches()[-1].grid == (7, 4, 1)
    with pytest.raises(launchkit.errors.GridNameError):
        launchkit.freeze(sample_kernels.copy, launchkit.grid("m"), x, x, 7, 2, BLOCK=16)
