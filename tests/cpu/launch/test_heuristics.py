"""Kernels under @triton.heuristics: the same mappings, values and errors as from Triton."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs, outcome, triton_launch

import launchkit

pytestmark = pytest.mark.usefixtures("each_core", "host")

ORDERS = ["outside", "inside", "alone"]


def layered(order, heuristics, wrap=None):
    """The ``mixed`` kernel with heuristics above or below autotuning, or without it."""
    configs = [triton.Config({"MODE": mode}, num_warps=2) for mode in ("plain", "shift")]
    if order == "alone":
        return triton.heuristics({"MODE": lambda args: "plain", **heuristics})(sample_kernels.mixed)
    tune = (wrap or launchkit.autotuned)(configs, ["n"])
    if order == "outside":
        return triton.heuristics(heuristics)(tune(sample_kernels.mixed))
    return tune(triton.heuristics(heuristics)(sample_kernels.mixed))


def both(order, heuristics, *args, **kwargs):
    """What launchkit made of a call, twice, and what Triton made of it."""
    ours, theirs = layered(order, heuristics), layered(order, heuristics, triton.autotune)
    found = [outcome(lambda: launchkit.launch(ours, (2,), *args, **kwargs)) for _ in range(2)]
    return [*found, outcome(lambda: triton_launch(theirs, (2,), args, kwargs))]


@pytest.mark.parametrize("order", ORDERS)
def test_heuristic_gets_the_mapping_that_triton_gives_it(order):
    seen = []

    def size(args):
        seen.append([name for name in args if args[name] is not None])
        return 16

    both(order, {"SIZE": size}, torch.empty(64), torch.empty(64), 3, flag=True, alpha=0.5)
    assert len(seen) >= 3
    assert set(map(tuple, map(sorted, seen))) == {tuple(sorted(seen[-1]))}


@pytest.mark.parametrize("order", ORDERS)
def test_heuristic_that_changes_its_mind_is_heard_at_each_launch(order):
    sizes = iter([16, 32, 16, 32])
    kernel = layered(order, {"SIZE": lambda args: next(sizes)})
    x = torch.empty(64)
    found = [launchkit.launch(kernel, (2,), None, x, 3, True, 0.5) for _ in range(4)]
    assert found[0] is found[2] is not found[1]
    assert found[1] is found[3]


@pytest.mark.parametrize("order", ORDERS)
def test_value_of_the_heuristic_wins_over_the_callers(order):
    results = both(order, {"SIZE": lambda args: 32}, None, torch.empty(64), 3, True, 0.5, SIZE=16)
    assert results[0] == results[1] == results[2]
    assert not isinstance(results[0], type)


@pytest.mark.parametrize("order", ORDERS)
def test_value_passed_by_position_beside_the_heuristic_raises_what_triton_raises(order):
    arguments = (None, torch.empty(64), 3, True, 0.5, "plain", 16)
    results = both(order, {"SIZE": lambda args: 16}, *arguments)
    assert results == [TypeError] * 3


@pytest.mark.parametrize("order", ORDERS)
def test_error_of_the_heuristic_reaches_the_caller(order):
    def size(args):
        return args["missing"]

    assert both(order, {"SIZE": size}, None, torch.empty(64), 3, True, 0.5) == [KeyError] * 3


@pytest.mark.parametrize("order", ORDERS)
def test_heuristic_may_read_what_other_heuristics_and_the_config_gave(order):
    heuristics = {"SIZE": lambda args: 16, "alpha": lambda args: float(args["SIZE"])}
    if order == "inside":
        heuristics["SIZE"] = lambda args: 16 if args["MODE"] == "plain" else 32
    results = both(order, heuristics, None, torch.empty(64), 3, True)
    assert results[0] == results[1] == results[2]
    assert not isinstance(results[0], type)


@pytest.mark.parametrize("order", ORDERS)
def test_second_launch_takes_neither_of_tritons_runs(order):
    kernel = layered(order, {"SIZE": lambda args: 16})
    x = torch.empty(64)
    launchkit.launch(kernel, (2,), None, x, 3, True, 0.5)
    with counted_runs() as runs:
        launchkit.launch(kernel, (2,), None, x, 3, True, 0.5)
    assert runs.total == 0
