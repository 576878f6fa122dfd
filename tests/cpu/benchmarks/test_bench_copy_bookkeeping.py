"""The rows of the host benchmark do what their labels say."""

from __future__ import annotations

import pytest

from launchkit.benchmarks.copy import bookkeeping

LAYERS, REQS = 3, 5


@pytest.fixture
def rows(host):
    return bookkeeping.rows(LAYERS, REQS, device="cpu")


def launches_of(host, rows, op, variant):
    (row,) = [r for r in rows if (r.labels["op"], r.labels["variant"]) == (op, variant)]
    host.clear()
    row.loop(2)
    return [launch.grid for launch in host.launches()]


def test_every_row_is_labelled_with_its_case(rows):
    assert all((row.labels["layers"], row.labels["reqs"]) == (LAYERS, REQS) for row in rows)
    assert len({(row.labels["op"], row.labels["variant"]) for row in rows}) == len(rows) == 8


def test_states_move_in_one_launch_where_all_move_and_in_none_else(host, rows):
    states = LAYERS * 2
    for variant, grid in (
        (bookkeeping.STATE_BY_STATE, (states * REQS, 1, 1)),
        (bookkeeping.BATCHED, (states * REQS, 1, 1)),
        (bookkeeping.FUSED, (states, REQS, 1)),
    ):
        assert launches_of(host, rows, bookkeeping.MOVES, variant) == [grid] * 2
        assert launches_of(host, rows, bookkeeping.QUIET, variant) == []
    assert len(launches_of(host, rows, bookkeeping.AFTER, bookkeeping.FUSED)) == 2
    assert launches_of(host, rows, bookkeeping.STAGE, bookkeeping.FUSED) == []


def test_variants_collect_the_same_copies(host):
    collected = []
    case = bookkeeping.Bookkeeping(LAYERS, REQS, "cpu")
    for variant in (bookkeeping.STATE_BY_STATE, bookkeeping.BATCHED):
        case.batch.num_accepted_tokens_cpu[:] = 2
        case.preprocess(variant, 1)
        copies = case.buffers.preprocess
        columns = (copies.src_ptrs.np, copies.dst_ptrs.np, copies.sizes.np)
        collected.append([column[: copies.offset].tolist() for column in columns])
        assert case.batch.num_accepted_tokens_cpu.tolist() == [1] * REQS
    assert collected[0] == collected[1]
