"""What the aligned step's copies promise, run in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``place``: see ``copy_bytes_promises``.
Every check compares whole caches with the reference's, byte by byte.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from copy_callers import block_caller
from copy_worlds import SMALL, Cache, ints, make_world, random_bytes

from launchkit.kernels.state_copy.align import precopy_mamba_align_fused_kernel
from launchkit.kernels.state_copy.launches import precopy_align
from launchkit.kernels.state_copy.layout import StateTensor, block_tables, state_table
from launchkit.kernels.state_copy.reference import StateCopy, precopy_reference

LAYOUTS = pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])


def check_precopy(place, world, src, dst, bias, mapping=None, by_slot=True, shape=SMALL):
    """Copy by the kernel and by the reference; return what the reference decided."""
    rows = range(len(src)) if mapping is None else mapping
    copies = precopy_reference(rows, dst, src, bias, by_slot)
    before, expected = [raw.clone() for raw in world.raws], world.expected(copies)
    arguments = [ints(values, place.device) for values in (dst, src, bias)]
    given = None if mapping is None else ints(mapping, place.device)
    for _ in range(place.repeats):
        world.restore(before)
        precopy_align(*arguments, world.tables, world.table, len(rows), given, by_slot, shape=shape)
        assert world.holds(expected)
    return copies


@LAYOUTS
@pytest.mark.parametrize("bias", range(5))
def test_every_token_bias_moves_what_is_left_of_the_window(place, dim_first, bias):
    world = make_world(place.device, Cache(dim_first, layers=1, blocks=15), rows=2, columns=7)
    assert check_precopy(place, world, [0, 1], [6, 0], [bias, bias])


@LAYOUTS
@pytest.mark.parametrize("elem", [1, 2, 4, 8])
def test_elements_of_every_size_are_copied(place, dim_first, elem):
    cache = Cache(dim_first, layers=1, conv_elem=elem, temporal_elem=elem, width=3, dim=7)
    cache = replace(cache, dim=8 if elem < 8 else 7)
    world = make_world(place.device, cache, rows=2)
    assert check_precopy(place, world, [0, 2], [3, 0], [1, 0])


def test_fresh_requests_and_those_that_stay_are_left_alone(place):
    world = make_world(place.device)
    copies = check_precopy(place, world, [-1, 2, 1, 3], [1, 2, 1, 0], [0, 0, 1, 0])
    assert [copy.row for copy in copies] == [3]
    assert check_precopy(place, world, [0, 1], [1, 3], [-1, -2]) == []


@pytest.mark.parametrize("by_slot", [True, False], ids=["by slot", "by row"])
def test_slots_in_any_order_with_rows_that_are_skipped(place, by_slot):
    world = make_world(place.device, rows=5, columns=3)
    mapping = [3, -1, 0, 4]
    src, dst, bias = [0, 9, 9, 1, 0], [2, 9, 9, 0, 1], [1, 0, 0, 0, 1]
    copies = check_precopy(place, world, src, dst, bias, mapping, by_slot)
    assert [copy.row for copy in copies] == ([3, 0, 4] if by_slot else [0, 2, 3])


def test_groups_have_tables_of_their_own(place):
    world = make_world(place.device, Cache(groups=2, layers=3), rows=2)
    assert world.rows[0] != world.rows[1]
    assert check_precopy(place, world, [0, 1], [1, 3], [1, 2])


@LAYOUTS
def test_columns_of_one_block_are_moved_within_it(place, dim_first):
    cache = Cache(dim_first, width=6, dim=40)
    world = make_world(place.device, cache, rows=2, alias=[(0, 3, 0), (1, 2, 1)])
    assert len(check_precopy(place, world, [0, 1], [3, 2], [1, 2])) == 2


@LAYOUTS
def test_a_block_that_aliases_itself_without_a_bias_stays(place, dim_first):
    world = make_world(place.device, Cache(dim_first), rows=1, alias=[(0, 3, 0)])
    before = [raw.clone() for raw in world.raws]
    check_precopy(place, world, [0], [3], [0])
    assert world.holds(before)


def test_rows_of_a_dim_first_state_may_lie_apart(place):
    world = make_world(place.device, Cache(dim_first=True, row_pad=3, width=5, dim=9, page_pad=12))
    assert check_precopy(place, world, [0, 1, 2, 1], [1, 0, 3, 2], [0, 1, 0, 2])


@LAYOUTS
@pytest.mark.parametrize("pad", [1, 3, 4, 8])
def test_pages_of_any_size_and_bases_of_any_alignment(place, dim_first, pad):
    """Blocks lie at other places within 8 bytes than their neighbours, states at odd addresses."""
    world = make_unaligned(place, dim_first, pad)
    assert check_precopy(place, world, [0, 1, 2, 0], [1, 3, 0, 2], [0, 1, 0, 2])


def make_unaligned(place, dim_first, pad):
    """Return a world of bytes whose first page starts ``pad`` bytes further in its buffer."""
    cache = Cache(dim_first, conv_elem=1, temporal_elem=1, dim=23, temporal=(131,), page_pad=pad)
    world = make_world(place.device, cache)
    raws = [random_bytes(raw.numel() + 16, 50).to(place.device) for raw in world.raws]
    inner = [raw[pad : pad + old.numel()] for raw, old in zip(raws, world.raws, strict=True)]
    states = [
        StateTensor(page.as_strided(old.tensor.shape, old.tensor.stride(), offset), old.is_conv)
        for page, pair in zip(
            inner, zip(world.states[::2], world.states[1::2], strict=True), strict=True
        )
        for old, offset in zip(pair, (pad, pad + cache.conv_bytes), strict=True)
    ]
    return replace(world, raws=inner, states=states, table=state_table(states, dim_first))


def test_requests_beyond_their_number_are_not_touched(place):
    world = make_world(place.device)
    expected = world.expected(precopy_reference([0, 1], [1, 2], [0, 0], [0, 0]))
    columns = [ints(values, place.device) for values in ([1, 2, 3, 3], [0] * 4, [0] * 4)]
    states, tables = world.table, world.tables
    precopy_mamba_align_fused_kernel[(4, len(states))](
        *columns, *states.with_tables(tables), ints([0, 1, 2, 3], place.device), 2,
        COPY_BLOCK_SIZE=64, CONV_STATE_DIM_FIRST=False,
    )  # fmt: skip
    assert world.holds(expected)


@LAYOUTS
@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("options", [{}, {"TILE_CONV": True}], ids=["plain", "conv in tiles"])
def test_a_grid_of_requests_by_states_by_tiles_copies_the_same(place, dim_first, tiles, options):
    world = make_world(place.device, Cache(dim_first, dim=40), alias=[(2, 3, 0)])
    expected = world.expected(precopy_reference([0, 1, 2], [1, 2, 3], [0, 1, 0], [0, 2, 1]))
    columns = [ints(values, place.device) for values in ([1, 2, 3], [0, 1, 0], [0, 2, 1])]
    states, tables = world.table, world.tables
    precopy_mamba_align_fused_kernel[(3, len(states), tiles)](
        *columns, *states.with_tables(tables), None, 3, COPY_BLOCK_SIZE=16,
        CONV_STATE_DIM_FIRST=dim_first, HAS_IDX_MAPPING=False, TEMPORAL_TILES=tiles, **options,
    )  # fmt: skip
    assert world.holds(expected)


@LAYOUTS
def test_copies_that_follow_each_other_see_what_the_last_one_wrote(place, dim_first):
    cache = Cache(dim_first, dim=200 if place.interpreted else 8192, temporal=(40, 50, 16))
    world = make_world(place.device, cache, rows=2, columns=8)
    before = [raw.clone() for raw in world.raws]
    steps = [(column, column + 1, column % 2) for column in range(6)]
    columns = [[ints([n] * 2, place.device) for n in (dst, src, bias)] for src, dst, bias in steps]
    copies = [
        copy
        for src, dst, bias in steps
        for copy in precopy_reference([0, 1], [dst] * 2, [src] * 2, [bias] * 2)
    ]
    expected = world.expected(copies)
    shape = SMALL if place.interpreted else None
    for _ in range(place.repeats):
        world.restore(before)
        for step in columns:
            precopy_align(*step, world.tables, world.table, 2, shape=shape)
        assert world.holds(expected)


@LAYOUTS
def test_a_kernel_of_somebody_else_copies_blocks(place, dim_first):
    world = make_world(place.device, Cache(dim_first))
    expected = world.expected([StateCopy(1, 0, 2, 1)])
    states, tables = world.table, world.tables
    block_caller[(len(states),)](
        *states.with_tables(tables), 1, 0, 2, 1, DIM_FIRST=dim_first,
    )  # fmt: skip
    assert world.holds(expected)


@LAYOUTS
@pytest.mark.parametrize("tiles", [8, 16, 32])
def test_any_number_of_tiles_moves_the_same_bytes(place, dim_first, tiles):
    cache = Cache(dim_first, layers=1, temporal=(11, 7, 40), dim=20)
    world = make_world(place.device, cache, rows=1)
    assert check_precopy(place, world, [0], [2], [1], shape=replace(SMALL, tiles=tiles))


def test_no_requests_launch_nothing(place, monkeypatch):
    from launchkit.kernels.state_copy import launches

    monkeypatch.setattr(launches, "launch", None)
    world = make_world(place.device)
    none = ints([], place.device)
    precopy_align(none, none, none, world.tables, world.table, 0, none)


def test_blocks_beyond_two_to_the_31_bytes_are_reached(place):
    page = 2**29 + 16
    raw = torch.empty(5 * page, dtype=torch.uint8, device=place.device)
    pages = raw.as_strided((5, 40), (page, 1))
    pages[:] = random_bytes(200, 7).view(5, 40).to(place.device)
    conv = pages.as_strided((5, 4, 5), (page, 5, 1))
    temporal = pages.as_strided((5, 20), (page, 1), 20)
    states = state_table([StateTensor(conv, True), StateTensor(temporal, False)])
    tables = block_tables([ints([[1, 4]], place.device)])
    expected = pages.clone()
    expected[4, :15], expected[4, 20:] = pages[1, 5:20], pages[4, 20:]
    one = ints([1], place.device)
    precopy_align(one, ints([0], place.device), one, tables, states, 1, shape=SMALL)
    assert torch.equal(pages, expected)


@pytest.mark.parametrize("tiles", [1, 16])
def test_random_steps_move_the_bytes_that_the_reference_moves(place, tiles):
    for seed in range(2 if place.interpreted else 40):
        pick = torch.Generator().manual_seed(1000 * tiles + seed)

        def draw(low, high, count, pick=pick):
            return torch.randint(low, high, (count,), generator=pick).tolist()

        width, groups, dim, elem = (*draw(1, 7, 1), *draw(1, 4, 1), *draw(1, 30, 1), *draw(0, 3, 1))
        cache = Cache(
            dim_first=bool(seed % 2), layers=3, groups=groups, blocks=33, width=width,
            dim=dim * 4, temporal=(dim, 8), conv_elem=2**elem, page_pad=8,
        )  # fmt: skip
        world = make_world(place.device, cache, rows=4, columns=8, seed=seed)
        src, dst = draw(-1, 5, 4), draw(0, 8, 4)
        bias = draw(0, min(width, 3) + 1, 4)
        mapping = [*draw(-1, 1, 1), 2, 1, 3]
        check_precopy(place, world, src, dst, bias, mapping, shape=replace(SMALL, tiles=tiles))
