"""What the aligned step decides, before and after it; run in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``place``: see ``copy_bytes_promises``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from copy_worlds import SMALL, Cache, ints, make_world

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.launches import postprocess_align, preprocess_align
from launchkit.kernels.state_copy.reference import postprocess_reference, preprocess_reference


def check_postprocess(
    place, world, accepted, columns, counts, block_size=16, mapping=None, by_slot=True,
    precomputed=False, shape=SMALL,
):  # fmt: skip
    """Compare a step's end with the reference; counts: (scheduled, computed, draft) by slot.

    Returns the copies and the accepted tokens of the reference.
    """
    rows = range(len(accepted)) if mapping is None else mapping
    after = [c + s - d + a - 1 for (s, c, d), a in zip(counts, accepted, strict=True)]
    copies, kept = postprocess_reference(rows, accepted, columns, after, block_size, by_slot)
    before, expected = [raw.clone() for raw in world.raws], world.expected(copies)
    scheduled, computed, draft = (
        ints(list(each), place.device) for each in zip(*counts, strict=True)
    )
    snapshot = ints(accepted, place.device)
    if precomputed:
        scheduled, computed, draft = None, ints(after, place.device), None
    given = None if mapping is None else ints(mapping, place.device)
    for _ in range(place.repeats):
        world.restore(before)
        live = snapshot.clone()
        postprocess_align(
            snapshot, ints(columns, place.device), scheduled, computed, draft, world.tables,
            world.table, live, len(rows), block_size, given, by_slot, shape=shape,
        )  # fmt: skip
        assert world.holds(expected)
        assert live.tolist() == kept
        assert snapshot.tolist() == accepted
    return copies, kept


@pytest.mark.parametrize("precomputed", [False, True], ids=["counted", "precomputed"])
def test_states_are_kept_where_accepted_tokens_reach_a_blocks_end(place, precomputed):
    world = make_world(place.device, rows=4, columns=5, cache=Cache(layers=1, blocks=21))
    counts = [(5, 60, 2), (3, 30, 0), (8, 45, 3), (6, 10, 0)]
    copies, accepted = check_postprocess(
        place, world, [3, 2, 4, 2], [3, 2, 3, 1], counts, precomputed=precomputed
    )
    assert [(copy.row, copy.dst_col, copy.token_bias) for copy in copies] == [(0, 3, 1), (3, 0, 0)]
    assert accepted == [1, 2, 4, 2]


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_a_state_is_moved_on_within_its_own_block(place, dim_first):
    cache = Cache(dim_first, width=6, dim=40, blocks=21)
    world = make_world(place.device, cache, rows=2, columns=9)
    _, accepted = check_postprocess(
        place, world, [4, 6], [3, 3], [(5, 61, 4), (5, 58, 4)], shape=replace(SMALL, tiles=16)
    )
    assert accepted == [1, 1]


def test_a_block_that_two_columns_hold_does_not_reset_the_accepted_tokens(place):
    world = make_world(place.device, rows=2, columns=5, alias=[(0, 3, 2), (1, 3, 2)])
    copies, accepted = check_postprocess(place, world, [3, 3], [2, 3], [(5, 60, 2)] * 2)
    assert [copy.src_col for copy in copies] == [2, 3]
    assert accepted == [3, 1]


def test_a_state_in_place_without_a_bias_resets_the_accepted_tokens_only(place):
    world = make_world(place.device, rows=1)
    copies, accepted = check_postprocess(place, world, [2], [0], [(6, 10, 0)])
    assert (copies, accepted) == ([], [1])


def test_requests_without_a_state_or_a_whole_block_are_left_alone(place):
    world = make_world(place.device, rows=3)
    copies, accepted = check_postprocess(
        place, world, [2, 3, 1], [-1, 0, 1], [(6, 10, 0), (3, 2, 0), (1, 0, 1)]
    )
    assert (copies, accepted) == ([], [2, 3, 1])


@pytest.mark.parametrize("by_slot", [True, False], ids=["by slot", "by row"])
@pytest.mark.parametrize("precomputed", [False, True], ids=["counted", "precomputed"])
def test_a_step_ends_by_slots_in_any_order(place, by_slot, precomputed):
    world = make_world(place.device, Cache(layers=1, blocks=21), rows=5)
    counts = [(2, 15, 0), (9, 9, 9), (6, 10, 0), (9, 9, 9), (3, 13, 0)]
    copies, _ = check_postprocess(
        place, world, [2, 5, 2, 5, 1], [1, 0, 2, 0, 3], counts, 16, [4, -1, 0, 2], by_slot,
        precomputed,
    )  # fmt: skip
    assert [copy.row for copy in copies] == ([4, 2] if by_slot else [0, 3])


@pytest.mark.parametrize("tiles", [1, 16])
def test_random_steps_end_as_the_reference_says(place, tiles):
    for seed in range(2 if place.interpreted else 40):
        pick = torch.Generator().manual_seed(77 * tiles + seed)

        def draw(low, high, count=5, pick=pick):
            return torch.randint(low, high, (count,), generator=pick).tolist()

        cache = Cache(bool(seed % 2), groups=2, blocks=61, width=5, dim=24)
        world = make_world(place.device, cache, rows=5, columns=12, seed=seed)
        draft = draw(0, 4)
        accepted = [int(count * 0.7) + 1 for count in draft]
        computed, scheduled = draw(0, 20), [1 + count for count in draft]
        counts = list(zip(scheduled, computed, draft, strict=True))
        check_postprocess(
            place, world, accepted, draw(-1, 6), counts, 4, [2, 0, -1, 4, 1], bool(seed % 3),
            bool(seed % 2), replace(SMALL, tiles=tiles),
        )  # fmt: skip


def check_preprocess(place, mapping, columns, computed, starts, accepted, block_size=16):
    """Compare a step's preparation with the reference; return the reference's."""
    other = [99 - slot for slot in range(len(columns))]
    expected = preprocess_reference(
        mapping, columns, computed, starts, accepted, other, other, block_size
    )
    state_idx, counts, src_col, src_off = (
        ints(values, place.device) for values in (columns, accepted, other, other)
    )
    mapped = ints([*mapping, 0, 1], place.device)  # rows beyond the requests
    preprocess_align(
        mapped, state_idx, ints(computed, place.device), ints([*starts, 7, 7], place.device),
        counts, src_col, src_off, len(mapping), block_size,
    )  # fmt: skip
    found = tuple(tensor.tolist() for tensor in (state_idx, counts, src_col, src_off))
    assert found == expected
    return expected


def test_a_step_advances_columns_and_remembers_where_states_are(place):
    columns, accepted, src_col, src_off = check_preprocess(
        place, [2, 0, -1, 3], [0, 5, -1, 1], [16, 7, 0, 20], [0, 16, 17, 18, 30], [3, 9, 0, 2]
    )
    assert columns == [1, 5, 0, 1]
    assert accepted == [1, 9, 0, 2]
    assert src_col == [0, 98, -1, 1]
    assert src_off == [2, 98, 0, 1]


def test_random_preparations_match_the_reference(place):
    for seed in range(6):
        pick = torch.Generator().manual_seed(seed)

        def draw(low, high, count, pick=pick):
            return torch.randint(low, high, (count,), generator=pick)

        slots = 300
        mapping = torch.randperm(slots, generator=pick)[: 40 * seed + 1]
        mapping[draw(0, 4, len(mapping)) == 0] = -1
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), draw(1, 90, len(mapping))])
        check_preprocess(
            place, mapping.tolist(), draw(-1, 9, slots).tolist(), draw(0, 500, slots).tolist(),
            starts.cumsum(0).tolist(), draw(0, 5, slots).tolist(), 64,
        )  # fmt: skip


def test_no_requests_end_or_start_a_step_without_a_launch(place, monkeypatch):
    from launchkit.kernels.state_copy import launches

    monkeypatch.setattr(launches, "launch", None)
    world = make_world(place.device)
    none = ints([], place.device)
    zero = ints([0], place.device)
    preprocess_align(none, none, none, zero, none, none, none, 0, 16)
    live = ints([5], place.device)
    postprocess_align(zero, none, none, none, none, world.tables, world.table, live, 0, 16)


def test_a_snapshot_that_is_written_and_half_given_counts_are_refused(place):
    world = make_world(place.device)
    one, out = ints([1], place.device), ints([1], place.device)
    rest = (world.tables, world.table)
    with pytest.raises(
        UsageError, match="num_accepted_tokens_out shares memory with num_accepted_tokens"
    ):
        postprocess_align(one, one, one, one, one, *rest, one, 1, 16)
    with pytest.raises(UsageError, match="num_draft_tokens is None"):
        postprocess_align(one, one, one, one, None, *rest, out, 1, 16)
    with pytest.raises(UsageError, match="state_idx has shape"):
        postprocess_align(one, one[:0], one, one, one, *rest, out, 1, 16)
