"""launchkit launches exactly what Triton launches: kernel, grid and every parameter byte."""

from __future__ import annotations

import copy
import random

import pytest
import sample_kernels
import torch
import triton

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("host")

SETS = 1000
# Five classes of ints and few of everything else: each combination is one compilation.
INTS = (1, 16, 48, 0, 7, -3, 2**31 - 1, 2**31, 2**40, -(2**31) - 1, -(2**63))
FEW_INTS = (1, 16, 7)


def tensor(rng, offsets=(0, 0, 1)):
    """A view that starts at a random element, so that its address is 16-byte aligned or not."""
    return torch.empty(64)[rng.choice(offsets) :]


def copy_arguments(rng):
    values = {
        "x_ptr": tensor(rng),
        "y_ptr": tensor(rng),
        "n": rng.choice(INTS),
        "stride": rng.choice(FEW_INTS),
        "BLOCK": 16,
    }
    return values, {}


def mixed_arguments(rng):
    values = {
        "a_ptr": rng.choice((None, torch.empty(64))),
        "b_ptr": torch.empty(64, dtype=rng.choice((torch.float32, torch.float16))),
        "n": rng.choice((1, 16, 32, 7, -5)),
        "flag": rng.choice((True, False)),
        "alpha": rng.choice((0.0, -0.0, 1.5, float("nan"), 1e300)),
        "MODE": rng.choice(("shift", "plain")),
    }
    if rng.random() < 0.3:
        values["SIZE"] = 16
    options = {} if rng.random() < 0.7 else {"num_warps": 2}
    return values, options


def unspecialized_arguments(rng):
    return {
        "x_ptr": tensor(rng),
        "y_ptr": tensor(rng),
        "n": rng.choice((*INTS, 2**63, 2**64 - 1)),
        "m": rng.choice(FEW_INTS),
    }, {}


def typed_arguments(rng):
    return {
        "x_ptr": tensor(rng, offsets=(0,)),
        "n": rng.choice((1, 16, 7, 2**40)),
        "m": rng.choice((1, 16, 7)),
        "alpha": rng.choice((1.0, -2.5, 3)),
        "half": rng.choice((0.5, 65504.0)),
        "double": rng.choice((1e300, 2.0)),
    }, {}


KERNELS = {
    "copy": (sample_kernels.copy, copy_arguments),
    "mixed": (sample_kernels.mixed, mixed_arguments),
    "unspecialized": (sample_kernels.unspecialized, unspecialized_arguments),
    "typed": (sample_kernels.typed, typed_arguments),
}


def split(rng, values):
    """Pass the first few arguments by position, the rest by keyword in any order."""
    names = list(values)
    cut = rng.randrange(len(names) + 1)
    named = names[cut:]
    rng.shuffle(named)
    return [values[name] for name in names[:cut]], {name: values[name] for name in named}


def random_grid(rng):
    shape = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(1, 4)))
    return rng.choice((shape, list(shape), lambda meta: shape))


def last_launch():
    return hostonly.launches()[-1]


@pytest.mark.parametrize("name", KERNELS)
def test_jit_kernels_launch_as_triton_does(name):
    kernel, make = KERNELS[name]
    rng = random.Random(f"jit {name}")
    for _ in range(SETS):
        values, options = make(rng)
        grid = random_grid(rng)
        args, kwargs = split(rng, values)
        ours = launchkit.launch(kernel, grid, *args, **kwargs, **options)
        our_launch = last_launch()
        theirs = kernel[grid](*args, **kwargs, **options)
        assert ours is theirs
        assert our_launch == last_launch(), values


def autotuned_pair(kernel, keys, configs):
    return (
        launchkit.autotuned(configs=configs, key=keys)(kernel),
        triton.autotune(configs=configs, key=keys)(kernel),
    )


@pytest.mark.parametrize("spelling", ["function", "subscript"])
def test_autotuned_kernels_launch_as_triton_does(spelling):
    ours, theirs = autotuned_pair(sample_kernels.copy, ["n"], sample_kernels.configs(16, 32))
    rng = random.Random(f"autotuned {spelling}")
    for _ in range(SETS):
        values, _ = copy_arguments(rng)
        del values["BLOCK"]
        args, kwargs = split(rng, values)
        grid = random_grid(rng)
        if spelling == "function":
            compiled = launchkit.launch_autotuned(ours, grid, *args, **kwargs)
        else:
            compiled = ours[grid](*args, **kwargs)
        our_launch = last_launch()
        assert theirs[grid](*args, **kwargs) is compiled
        assert our_launch == last_launch(), values
        assert ours.best_config is theirs.best_config


def heuristic_layers(order, wrap):
    heuristic = triton.heuristics({"SIZE": lambda args: 16 if args["n"] % 2 else 32})
    configs = [triton.Config({"MODE": mode}, num_warps=2) for mode in ("shift", "plain")]
    tuned = wrap(configs=configs, key=["n"])
    if order == "heuristics outside":
        return heuristic(tuned(sample_kernels.mixed))
    return tuned(heuristic(sample_kernels.mixed))


@pytest.mark.parametrize("order", ["heuristics outside", "heuristics inside"])
def test_kernels_under_heuristics_launch_as_triton_does(order):
    ours = heuristic_layers(order, launchkit.autotuned)
    theirs = heuristic_layers(order, triton.autotune)
    rng = random.Random(order)
    for _ in range(SETS):
        values, _ = mixed_arguments(rng)
        values.pop("SIZE", None)
        mode = values.pop("MODE")
        assert mode
        values["n"] = rng.choice((1, 2, 3, 16))
        grid = random_grid(rng)
        compiled = launchkit.launch_autotuned(ours, grid, **values)
        our_launch = last_launch()
        assert theirs[grid](**values) is compiled
        assert our_launch == last_launch(), values


def test_hits_take_neither_autotuner_run_nor_jitfunction_run(monkeypatch):
    ours, _ = autotuned_pair(sample_kernels.copy, ["n"], sample_kernels.configs(16, 32))
    x, y = torch.empty(64), torch.empty(64)
    first = ours[(2,)](x, y, 64, stride=1)

    def forbidden(*args, **kwargs):
        raise AssertionError("a hit went through Triton's run")

    monkeypatch.setattr(triton.runtime.autotuner.Autotuner, "run", forbidden)
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "run", forbidden)
    assert ours[(2,)](x, y, 64, stride=1) is first
    assert launchkit.launch_autotuned(ours, lambda meta: (meta["BLOCK"],), x, y, 64, 1) is first
    assert last_launch().grid == (16, 1, 1)


def test_grid_callable_gets_tritons_mapping_of_all_arguments():
    seen = []
    ours, theirs = autotuned_pair(sample_kernels.copy, ["n"], sample_kernels.configs(32, 16))
    x, y = torch.empty(64), torch.empty(64)

    def grid(meta):
        seen.append(dict(meta))
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    for _ in range(2):
        launchkit.launch_autotuned(ours, grid, x, y, n=64, stride=2)
    theirs[grid](x, y, n=64, stride=2)
    assert (
        list(seen[0])
        == list(seen[1])
        == list(seen[2])
        == ["x_ptr", "y_ptr", "n", "stride", "BLOCK"]
    )
    assert seen[1]["x_ptr"] is x
    assert [mapping["BLOCK"] for mapping in seen] == [32, 32, 32]


@pytest.mark.parametrize("grid", [(0,), (3, 0, 2), (1, 0)])
def test_empty_grid_launches_nothing_and_returns_the_kernel(grid):
    x, y = torch.empty(64), torch.empty(64)
    expected = launchkit.launch(sample_kernels.copy, (1,), x, y, 64, 1, BLOCK=16)
    hostonly.clear()
    assert launchkit.launch(sample_kernels.copy, grid, x, y, 64, 1, BLOCK=16) is expected
    assert hostonly.launches() == []


def test_copied_kernel_gets_its_own_launcher():
    kernel, _ = autotuned_pair(sample_kernels.copy, ["n"], sample_kernels.configs(16, 32))
    x, y = torch.empty(64), torch.empty(64)
    launchkit.launch_autotuned(kernel, (1,), x, y, 64, 2)
    other = copy.copy(kernel)
    other.configs = sample_kernels.configs(32)
    launchkit.launch_autotuned(other, lambda meta: (meta["BLOCK"],), x, y, 64, 2)
    assert last_launch().grid == (32, 1, 1)
    launchkit.launch_autotuned(kernel, lambda meta: (meta["BLOCK"],), x, y, 64, 2)
    assert last_launch().grid == (16, 1, 1)
