"""The aligned step's copies on a GPU: races, real models' states, and the GPU's own shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from align_promises import *  # noqa: F403  the tests that the interpreter runs too
from align_promises import check_postprocess
from copy_worlds import Cache, ints, make_world
from state_copy_promises import *  # noqa: F403  the tests that the interpreter runs too
from state_copy_promises import check_precopy

from launchkit.benchmarks.copy.pool import Pool
from launchkit.benchmarks.copy.variants import compared, swept
from launchkit.benchmarks.shapes import CACHE_SHAPES
from launchkit.kernels.state_copy.launches import precopy_align
from launchkit.kernels.state_copy.reference import precopy_reference
from launchkit.kernels.state_copy.shapes import copy_options, copy_shape


def real(dim_first, **sizes):
    """Return a cache of a real model's states, two layers of it."""
    return Cache(
        dim_first, blocks=25, width=5, dim=8192, temporal=(32, 128, 128), page_pad=64, **sizes
    )


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_real_states_start_a_step_with_the_default_shape(place, dim_first):
    world = make_world("cuda", real(dim_first), rows=3, columns=8)
    assert check_precopy(place, world, [0, 1, 2], [5, 3, 4], [0, 1, 2], shape=None)


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
@pytest.mark.parametrize("tiles", [1, 16, 64])
def test_real_states_are_moved_within_their_block_without_a_race(place, dim_first, tiles):
    world = make_world("cuda", real(dim_first), rows=3, columns=8)
    shape = replace(copy_shape(2**21), tiles=tiles)
    counts = [(5, 61, 4), (5, 60, 4), (5, 59, 4)]
    _, accepted = check_postprocess(place, world, [4, 4, 5], [3, 3, 3], counts, shape=shape)
    assert accepted == [1, 1, 1]


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_wide_rows_of_a_dim_first_state_are_moved_without_a_race(place, dim_first):
    cache = Cache(dim_first, blocks=9, width=300, dim=1000, conv_elem=2, temporal=(4, 4))
    world = make_world("cuda", cache, rows=1, columns=8, alias=[(0, 5, 0)])
    assert check_precopy(place, world, [0], [5], [2], shape=None)


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_captured_copies_see_what_the_launch_before_them_wrote(dim_first):
    """Each launch may start before the one ahead ends, which in a graph is an edge of its own."""
    world = make_world("cuda", real(dim_first), rows=2, columns=8)
    before = [raw.clone() for raw in world.raws]
    steps = [(column + 1, column, column % 2) for column in range(6)]
    columns = [[ints([value] * 2, "cuda") for value in step] for step in steps]
    copies = [
        copy
        for dst, src, bias in steps
        for copy in precopy_reference([0, 1], [dst] * 2, [src] * 2, [bias] * 2)
    ]
    expected = world.expected(copies)

    def run():
        for step in columns:
            precopy_align(*step, world.tables, world.table, 2)

    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for _ in range(20):
        world.restore(before)
        graph.replay()
        assert world.holds(expected)


def test_launches_start_early_where_the_gpu_can():
    """What torch says of the driver has changed before, and then nothing asked for it."""
    early = torch.cuda.get_device_capability() >= (9, 0)
    assert copy_options(copy_shape(1)).get("launch_pdl", False) is early


@pytest.mark.parametrize("model", CACHE_SHAPES)
def test_every_variant_of_the_benchmark_copies_every_byte(model):
    shape = replace(CACHE_SHAPES[model], layers=2)
    pool = Pool(shape, (3,))
    blocks = pool.sets(3)[1]
    for variant in [*compared(shape), *swept(shape)]:
        pool.spoil(blocks)
        assert not pool.copied(blocks)
        variant.call(pool, blocks)()
        assert pool.copied(blocks), variant.name
