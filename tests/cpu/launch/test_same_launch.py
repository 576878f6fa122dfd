"""launchkit launches exactly what Triton launches: kernel, grid and every parameter byte."""

from __future__ import annotations

import copy
import dataclasses
import random

import pytest
import sample_kernels
import torch
import triton

import launchkit
from launchkit import hostonly
from launchkit.benchmarks.differential.cases import CASES
from launchkit.benchmarks.differential.compare import compare
from launchkit.dispatch import launch_counts

pytestmark = pytest.mark.usefixtures("each_core", "host")

SETS = 300
"""Of each case and core; `launchkit bench differential` makes any number."""

# Here most calls hold what the guard does not know.
UNKNOWN = ("anything", "constants")


def last_launch():
    return hostonly.launches()[-1]


def autotuned_pair(kernel, keys, configs):
    return (
        launchkit.autotuned(configs=configs, key=keys)(kernel),
        triton.autotune(configs=configs, key=keys)(kernel),
    )


@pytest.mark.parametrize("name", CASES)
def test_random_calls_launch_as_triton_does_and_need_triton_once_a_kind(name):
    with launchkit.count_launches():
        launchkit.stats(reset=True)
        found = compare(CASES[name](), SETS, random.Random(name))
        rows = launchkit.stats().values()
    assert found.differences == []
    assert found.launched > SETS // 3
    # Each call was counted, as fast, as slow or as one that raised.
    fast, slow = sum(row.fast for row in rows), sum(row.slow for row in rows)
    assert fast + slow == found.launched + found.nothing_launched
    assert fast + slow + found.raised.total() == found.calls == SETS
    if name not in UNKNOWN:
        # A guard that misses where it need not would run Triton more often.
        assert slow <= len(found.kinds) < SETS * 2 // 3
        assert sum(row.through_triton.get(launch_counts.FIRST, 0) for row in rows) == slow


def with_another_launch(pair, change):
    """The pair, but launchkit's calls are other ones: ``change(grid, args, kwargs)``."""
    ours = pair.ours

    def launch(grid, /, *args, **kwargs):
        grid, args, kwargs = change(grid, args, kwargs)
        return ours(grid, *args, **kwargs)

    return dataclasses.replace(pair, ours=launch)


def swapped(grid, args, kwargs):
    named = dict(zip(("x_ptr", "y_ptr"), args, strict=False)) | kwargs
    if {"x_ptr", "y_ptr"} <= named.keys():
        named["x_ptr"], named["y_ptr"] = named["y_ptr"], named["x_ptr"]
    return grid, args[2:], named


@pytest.mark.parametrize(
    ("case", "change"),
    [
        ("unspecialized", swapped),
        ("scalars", lambda grid, args, kwargs: (grid, args, {**kwargs, "num_warps": 8})),
        ("options", lambda grid, args, kwargs: ((9, 9, 9), args, kwargs)),
        ("options", lambda grid, args, kwargs: (grid, args, {**kwargs, "launch_pdl": True})),
        ("integers", lambda grid, args, kwargs: (grid, (), {})),
    ],
)
def test_another_launch_than_tritons_is_a_difference_that_shows_both(case, change):
    found = compare(with_another_launch(CASES[case](), change), 40, random.Random(case))
    assert len(found.differences) > 10
    assert all("launchkit: " in text and "Triton: " in text for text in found.differences)


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
