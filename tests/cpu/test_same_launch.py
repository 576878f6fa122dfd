"""launchkit launches exactly what Triton launches: kernel, grid and every parameter byte."""

from __future__ import annotations

import copy
import functools
import random

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core", "host")

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


def split(rng, values, most=None):
    """Pass the first few arguments, ``most`` at most, by position, the rest by keyword."""
    names = list(values)
    cut = rng.randrange((len(names) if most is None else most) + 1)
    named = names[cut:]
    rng.shuffle(named)
    return [values[name] for name in names[:cut]], {name: values[name] for name in named}


def random_grid(rng):
    shape = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(1, 4)))
    return rng.choice((shape, list(shape), lambda meta: shape))


def last_launch():
    return hostonly.launches()[-1]


def assert_same_launches(calls, ours, theirs):
    """Make each call both ways: same launches, and ours need Triton once a variant at most.

    A call is (grid, args, kwargs, key); a variant is a compiled kernel and the key for which it
    was chosen. A guard that misses where it need not would run Triton more often.
    """
    slow, variants = 0, set()
    for grid, args, kwargs, key in calls:
        hostonly.clear()
        with counted_runs() as runs:
            compiled = ours(grid, *args, **kwargs)
        launched = hostonly.launches()
        hostonly.clear()
        assert theirs(grid, *args, **kwargs) is compiled
        assert launched == hostonly.launches(), (args, kwargs)
        assert len(launched) == 1
        slow += runs.total > 0
        variants.add((compiled, key))
    assert slow <= len(variants) <= SETS // 5


def subscript(kernel):
    """``kernel[grid](...)``, as a function of the grid and the arguments."""
    return lambda grid, *args, **kwargs: kernel[grid](*args, **kwargs)


def finer(name, values):
    """What a plan tells apart though Triton does not: the live types behind a declared type."""
    return (type(values["alpha"]), values["n"].bit_length() > 31) if name == "typed" else None


@pytest.mark.parametrize("name", KERNELS)
def test_jit_kernels_launch_as_triton_does(name):
    kernel, make = KERNELS[name]
    rng = random.Random(f"jit {name}")

    def calls():
        for _ in range(SETS):
            values, options = make(rng)
            args, kwargs = split(rng, values)
            yield random_grid(rng), args, {**kwargs, **options}, finer(name, values)

    ours = functools.partial(launchkit.launch, kernel)
    assert_same_launches(calls(), ours, subscript(kernel))


def autotuned_pair(kernel, keys, configs):
    return (
        launchkit.autotuned(configs=configs, key=keys)(kernel),
        triton.autotune(configs=configs, key=keys)(kernel),
    )


@pytest.mark.parametrize("spelling", ["function", "subscript"])
def test_autotuned_kernels_launch_as_triton_does(spelling):
    ours, theirs = autotuned_pair(sample_kernels.copy, ["n"], sample_kernels.configs(16, 32))
    rng = random.Random(f"autotuned {spelling}")

    def calls():
        for _ in range(SETS):
            values, _ = copy_arguments(rng)
            del values["BLOCK"]
            args, kwargs = split(rng, values)
            yield random_grid(rng), args, kwargs, values["n"]
            assert ours.best_config is theirs.best_config

    launch = functools.partial(launchkit.launch_autotuned, ours)
    launch = subscript(ours) if spelling == "subscript" else launch
    assert_same_launches(calls(), launch, subscript(theirs))


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

    def calls():
        for _ in range(SETS):
            values, _ = mixed_arguments(rng)
            values.pop("SIZE", None)
            del values["MODE"]
            values["n"] = rng.choice((1, 2, 3, 16))
            yield random_grid(rng), (), values, values["n"]

    launch = functools.partial(launchkit.launch_autotuned, ours)
    assert_same_launches(calls(), launch, subscript(theirs))


# Lists of configs; alpha and flag are no constexprs.
SUPPLYING = [
    [{"MODE": "plain"}, {"MODE": "shift"}],
    [{"MODE": "plain", "alpha": 0.25}, {"MODE": "plain", "alpha": 0.5}],
    [{"MODE": "shift", "alpha": 1, "SIZE": 32}],
    [{"MODE": "shift", "alpha": 0.5}, {"MODE": "shift", "alpha": 0.5, "SIZE": 32}],
    [{"MODE": "shift", "flag": True, "alpha": -0.0}, {"MODE": "plain", "flag": 3, "alpha": 0.5}],
]


def test_config_lists_that_supply_other_arguments_than_before_launch_as_triton_does():
    ours, theirs = autotuned_pair(sample_kernels.mixed, ["n"], [triton.Config({"MODE": "plain"})])
    rng = random.Random("supplying")

    def calls():
        for index in range(SETS):
            supplying = SUPPLYING[index // 100 % len(SUPPLYING)]
            if index % 100 == 0:
                ours.configs = [triton.Config(values) for values in supplying]
                theirs.configs = ours.configs
                theirs.cache.clear()  # Triton would go on with what the old list gave
            values, _ = mixed_arguments(rng)
            values["n"] = rng.choice((1, 16, 7))
            supplied = {name for config in supplying for name in config}
            # What comes behind a supplied parameter cannot be passed by position.
            leading = [name in supplied for name in values].index(True)
            given = {name: value for name, value in values.items() if name not in supplied}
            args, kwargs = split(rng, given, leading)
            yield random_grid(rng), args, kwargs, (index // 100, values["n"])

    launch = functools.partial(launchkit.launch_autotuned, ours)
    assert_same_launches(calls(), launch, subscript(theirs))


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
