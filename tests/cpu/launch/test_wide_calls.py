"""Calls with more arguments than Python passes one by one: tuples and dictionaries, in any turn."""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import random
import sys

import odd_kernels
import pytest
import torch
import triton
from launching import counted_runs, outcome, triton_launch

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core", "host")

NAMES = [f"n{index}" for index in range(30)]


def arguments(seed=0):
    """Every argument of ``wide``; large ints, so that each call has objects of its own."""
    rng = random.Random(seed)
    values = {name: rng.choice((1, 16, 7)) + 4096 for name in NAMES}
    return {"x_ptr": torch.empty(64), **values, "C0": rng.choice((1, 3)), "C1": 2}


def tuned():
    return launchkit.autotuned([triton.Config({"C1": 2}), triton.Config({"C1": 4})], ["n0"])(
        odd_kernels.wide
    )


def ways(kernel):
    """Ways to launch, each as a function of (grid, args, kwargs)."""
    return [
        lambda grid, args, kwargs: launchkit.launch(kernel, grid, *args, **kwargs),
        lambda grid, args, kwargs: functools.partial(launchkit.launch, kernel)(
            grid, *args, **kwargs
        ),
        lambda grid, args, kwargs: functools.partial(launchkit.launch, kernel, grid, **kwargs)(
            *args
        ),
        lambda grid, args, kwargs: launchkit.launch.__call__(kernel, grid, *args, **kwargs),
    ]


def test_every_split_into_positions_and_keywords_is_the_same_launch():
    rng, ways_in = random.Random(3), ways(odd_kernels.wide)
    values = arguments()
    expected = outcome(lambda: triton_launch(odd_kernels.wide, (3,), list(values.values()), {}))
    for cut in [*range(len(values) + 1)] * 2:
        names = list(values)
        rest = names[cut:]
        rng.shuffle(rest)
        args, kwargs = [values[name] for name in names[:cut]], {n: values[n] for n in rest}
        launch = rng.choice(ways_in)
        assert outcome(lambda: launch((3,), args, kwargs)) == expected, (cut, rest)  # noqa: B023


def test_wide_and_narrow_calls_in_any_turn_launch_what_they_say():
    narrow, wide = odd_kernels.scalar, odd_kernels.wide
    mine = tuned()
    x = torch.empty(64)

    def calls(seed):
        values = arguments(seed)
        fewer = {name: value for name, value in values.items() if name != "C1"}
        return [
            (lambda: launchkit.launch(narrow, (1,), x, 5), narrow, (x, 5), {}),
            (lambda: launchkit.launch(narrow, (1,), x_ptr=x, value=5), narrow, (x, 5), {}),
            (lambda: launchkit.launch(wide, (1,), **values), wide, (), values),
            (lambda: launchkit.launch(wide, (1,), *values.values()), wide, (), values),
            (lambda: mine[(1,)](**fewer), wide, (), values),
            (lambda: launchkit.launch_autotuned(mine, (1,), **fewer), wide, (), values),
        ]

    rng = random.Random(4)
    for seed in range(60):
        ours, kernel, args, kwargs = rng.choice(calls(seed))
        (expected,) = outcome(lambda: triton_launch(kernel, (1,), args, kwargs))[1]  # noqa: B023
        (found,) = outcome(ours)[1]
        assert (found.kernel, found.params) == (expected.kernel, expected.params)


def test_wide_calls_are_hits_however_their_names_are_spelled():
    values = arguments()
    launchkit.launch(odd_kernels.wide, (1,), **values)
    fresh = {"".join(list(name)): value for name, value in values.items()}
    assert list(fresh)[1] is not list(values)[1]
    reverse = dict(reversed(values.items()))
    with counted_runs() as runs:
        for given in itertools.islice(itertools.cycle((values, fresh, reverse)), 20):
            launchkit.launch(odd_kernels.wide, (1,), **given)
    assert runs.total == 0


@pytest.mark.parametrize("extra", [{1: 2}, {"n0": 1}, {"unheard": 1}], ids=str)
def test_wrong_wide_calls_raise_what_triton_raises(extra):
    values = arguments()
    for _ in range(3):
        launchkit.launch(odd_kernels.wide, (1,), **values)
        x = values["x_ptr"]
        rest = {name: value for name, value in values.items() if name != "x_ptr"}
        given = {**rest, **extra}
        expected = outcome(lambda: triton_launch(odd_kernels.wide, (1,), (x, 5), given))  # noqa: B023
        found = outcome(lambda: launchkit.launch(odd_kernels.wide, (1,), x, 5, **given))  # noqa: B023
        assert found is expected
        assert issubclass(found, Exception)


def call_with(function, args, kwargs):
    """Call with this very dictionary, as only C code can."""
    call = ctypes.pythonapi.PyObject_Call
    call.restype = ctypes.py_object
    return call(*map(ctypes.py_object, (function, args, kwargs)))


def test_dictionary_that_the_grid_function_empties_gives_its_values_first():
    expected = outcome(lambda: triton_launch(odd_kernels.wide, (2,), (), arguments()))
    launchkit.launch(odd_kernels.wide, (2,), **arguments())
    kwargs, kept = {}, []

    def grid(meta):
        kept.append(meta["x_ptr"])  # else its memory would go before the launch
        kwargs.clear()
        gc.collect()
        return (2,)

    for _ in range(3):
        kwargs.update(arguments())
        found = outcome(lambda: call_with(launchkit.launch, (odd_kernels.wide, grid), kwargs))
        assert kwargs == {}
        assert found[0] is expected[0]
        assert found[1][0].params[1:] == expected[1][0].params[1:]


def test_wide_calls_leak_no_references():
    values = arguments()
    kernel = tuned()
    fewer = {name: value for name, value in values.items() if name != "C1"}
    things = [*values.values(), values, fewer, odd_kernels.wide, kernel, (1,)]
    calls = [
        lambda: launchkit.launch(odd_kernels.wide, (1,), **values),
        lambda: launchkit.launch(odd_kernels.wide, (1,), *values.values()),
        lambda: kernel[(1,)](**fewer),
        lambda: call_with(launchkit.launch, (odd_kernels.wide, (1,)), values),
    ]
    for call in calls * 3:
        call()
    for call in calls:
        before = [sys.getrefcount(thing) for thing in things]
        for _ in range(100):
            call()
        hostonly.clear()
        after = [sys.getrefcount(thing) for thing in things]
        changes = [b - a for a, b in zip(before, after, strict=True)]
        assert all(abs(change) < 20 for change in changes), (call, changes)
