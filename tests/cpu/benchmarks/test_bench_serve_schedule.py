"""The served benchmark's requests, scheduler and batches: what every schedule keeps to."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launchkit.benchmarks.serve.batch import StepTensors
from launchkit.benchmarks.serve.requests import Workload, draw_requests, every_kind
from launchkit.benchmarks.serve.scheduler import Scheduler

UNHURRIED = settings(deadline=None, max_examples=60)
"""However busy the machine is."""

WORKLOADS = st.builds(
    Workload,
    concurrency=st.integers(1, 6), requests=st.integers(1, 14), input_tokens=st.integers(1, 40),
    output_tokens=st.integers(1, 9), rate=st.none() | st.floats(0.05, 8.0),
    step_tokens=st.integers(6, 40),
)  # fmt: skip
SEEDS = st.integers(0, 2**32 - 1)


def steps_of(workload, seed):
    requests = draw_requests(workload, 100, seed)
    return requests, list(Scheduler(workload, requests))


@UNHURRIED
@given(WORKLOADS, SEEDS)
def test_every_request_gets_exactly_its_tokens(workload, seed):
    requests, steps = steps_of(workload, seed)
    gained, computed = Counter(), Counter()
    for step in steps:
        for row in step.rows:
            number = row.request.number
            assert row.computed == computed[number]
            assert row.tokens >= 1
            assert row.decodes == (row.computed >= len(row.request.prompt))
            computed[number] += row.tokens
            gained[number] += row.gives_token
    for request in requests:
        assert gained[request.number] == request.output_tokens
        # Each token of the prompt once, and of the answer each but the last.
        total = len(request.prompt) + request.output_tokens - 1
        assert computed[request.number] == total <= workload.most_tokens


@UNHURRIED
@given(WORKLOADS, SEEDS)
def test_no_step_has_more_requests_or_tokens_than_it_may(workload, seed):
    _, steps = steps_of(workload, seed)
    for step in steps:
        assert 1 <= len(step.rows) <= workload.concurrency
        assert sum(row.tokens for row in step.rows) <= workload.step_tokens
        assert [row.decodes for row in step.rows] == sorted(
            (row.decodes for row in step.rows), reverse=True
        )
        assert step.decodes == sum(row.decodes for row in step.rows)


@UNHURRIED
@given(WORKLOADS, SEEDS)
def test_slots_are_kept_while_a_request_runs_and_never_shared(workload, seed):
    requests, steps = steps_of(workload, seed)
    slot_of, first, last = {}, {}, {}
    for step in steps:
        slots = [row.slot for row in step.rows]
        assert len(set(slots)) == len(slots)
        assert set(slots) <= set(range(workload.concurrency))
        for row in step.rows:
            assert slot_of.setdefault(row.request.number, row.slot) == row.slot
            first.setdefault(row.request.number, step.number)
            last[row.request.number] = step.number
    assert len(slot_of) == len(requests)
    for one in slot_of:
        for other in slot_of:
            if one < other and slot_of[one] == slot_of[other]:
                assert last[one] < first[other] or last[other] < first[one]


@UNHURRIED
@given(WORKLOADS, SEEDS)
def test_a_running_request_decodes_in_every_step(workload, seed):
    _, steps = steps_of(workload, seed)
    running = {}
    for step in steps:
        decoding = {row.request.number for row in step.rows if row.decodes}
        assert decoding == set(running)
        for row in step.rows:
            if row.gives_token:
                number = row.request.number
                running[number] = running.get(number, 0) + 1
                if running[number] == row.request.output_tokens:
                    del running[number]
    assert not running


@UNHURRIED
@given(WORKLOADS, SEEDS)
def test_requests_arrive_once_in_order_and_not_early(workload, seed):
    requests, steps = steps_of(workload, seed)
    arrived = [request.number for step in steps for request in step.arrived]
    assert arrived == [request.number for request in requests]
    there = 0
    for step in steps:
        there += len(step.arrived)
        assert all(request.arrival_step <= step.number for request in step.arrived)
        if workload.rate is None:
            assert there <= workload.concurrency
        there -= sum(
            row.gives_token and row.computed + row.tokens
            == len(row.request.prompt) + row.request.output_tokens - 1
            for row in step.rows
        )  # fmt: skip
    assert there == 0
    assert [step.number for step in steps] == sorted({step.number for step in steps})


@UNHURRIED
@given(WORKLOADS, st.integers(2, 30))
def test_what_is_compiled_first_has_every_kind_of_batch(workload, block_size):
    def kinds_of(drawn, requests):
        columns = -(-workload.most_tokens // block_size)
        # As an engine has it: slots for four at least.
        tensors = StepTensors(8, 40, max(columns, 20), block_size, 1, 16, "cpu", 0)
        for step in Scheduler(drawn, requests):
            batch = tensors.fill(step, lambda row: row.request.prompt[0])
            pieces = batch.rows - batch.decodes
            yield "moves" if batch.moves else None
            yield ("decodes",) if batch.decodes else None
            yield (min(pieces, 2), batch.has_initial is not None) if pieces else None

    found = {kind for small in every_kind(workload) for kind in kinds_of(*small)}
    for seed in range(3):
        assert set(kinds_of(workload, draw_requests(workload, 100, seed))) <= found | {None}


def test_a_schedule_depends_on_its_seed_alone():
    workload = Workload(3, 9, 20, 4, rate=0.5, step_tokens=16)

    def drawn(seed):
        return [
            (step.number, [(row.slot, row.computed, row.tokens) for row in step.rows])
            for step in steps_of(workload, seed)[1]
        ]

    assert drawn(4) == drawn(4)
    assert drawn(4) != drawn(5)


def test_arrivals_come_at_their_rate():
    requests = draw_requests(Workload(2, 4000, 1, 1, rate=0.25), 10, seed=3)
    assert requests[-1].arrival_step / len(requests) == pytest.approx(4.0, rel=0.1)


@UNHURRIED
@given(WORKLOADS, SEEDS, st.integers(1, 12))
def test_batches_say_what_the_step_holds(workload, seed, block_size):
    _, steps = steps_of(workload, seed)
    columns = -(-workload.most_tokens // block_size)
    tensors = StepTensors(
        workload.concurrency, workload.step_tokens, columns, block_size, 3, 16, "cpu", seed
    )
    owners = {}
    for step in steps[:8]:
        batch = tensors.fill(step, lambda row: row.request.prompt[0])
        rows = step.rows
        lengths = np.array([row.tokens for row in rows])
        assert (batch.rows, batch.tokens) == (len(rows), lengths.sum())
        starts = batch.query_start.numpy()
        assert (np.diff(starts) == lengths).all()
        assert starts[0] == 0
        assert (batch.last.numpy() == starts[1:] - 1).all()
        assert batch.seq_lens.tolist() == [row.computed + row.tokens for row in rows]
        assert batch.ids.tolist() == [
            row.request.prompt[0] for row in rows for _ in range(row.tokens)
        ]
        pieces = rows[batch.decodes :]
        assert (batch.metadata is None) == (not pieces)
        if pieces:
            bounds = np.cumsum([0, *(row.tokens for row in pieces)])
            assert batch.metadata.cu_seqlens.tolist() == bounds.tolist()
        initial = [row.computed > 0 for row in pieces]
        found = batch.has_initial
        assert (found.tolist() == initial) if any(initial) else found is None
        columns_of = [  # of the last token, before the step and after it
            [(row.computed - 1) // block_size, (row.computed + row.tokens - 1) // block_size]
            for row in rows if row.computed
        ]  # fmt: skip
        assert batch.moves == any(before != after for before, after in columns_of)
        for place, row in enumerate(rows):
            assert batch.slots[place] == row.slot
            assert batch.computed[row.slot] == row.computed
            # The column of the last computed token.
            held = [column for column in range(columns)
                    if column * block_size < row.computed <= (column + 1) * block_size]  # fmt: skip
            assert [int(batch.columns[row.slot])] == (held or [-1])
            for group, table in enumerate(tensors.tables):
                for block in table[place].tolist():
                    assert block > 0
                    assert owners.setdefault((group, block), row.slot) == row.slot
