"""profile_launches of planned ops: each launch of a replay, and the replay as a whole."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
from sample_ops import counted, launched, same_launches

import launchkit
from launchkit import clock
from launchkit.profiling import annotate, profile_launches

pytestmark = pytest.mark.usefixtures("c_core", "host")


def copying(x, out, *rest, **options):
    between = torch.empty_like(x)
    for source, target in ((x, between), (between, out)):
        launchkit.launch(sample_kernels.copy, (7,), source, target, 100, 1, BLOCK=16)


@pytest.fixture
def x():
    return torch.empty(100)


@pytest.fixture
def op(x):
    """A planned op that is replayed from here on."""
    planned, _ = counted(copying)
    while planned.op_plans.replays < 2:
        planned(x, x)
    return planned


def test_each_launch_of_a_replay_is_recorded_with_the_op_and_the_kernel(op, x):
    before = op.op_plans.replays
    with profile_launches() as profile, annotate("layer", layer=3):
        for _ in range(5):
            op(x, x)
    assert op.op_plans.replays == before + 5
    (row,) = profile.rows
    assert (row.path, row.layer, row.kernel) == (("layer",), 3, "sample_kernels.copy")
    assert row.op == op.op_plans.name == f"sample_ops.{op.__qualname__}"
    assert (row.launches, row.failed, row.dropped) == (10, 0, 0)
    assert row.phases["find"] is None
    assert row.phases["driver"].launches == 10
    assert row.phases["driver"].total_us == pytest.approx(row.total_us)


def test_replay_as_a_whole_has_its_phases(op, x):
    with profile_launches() as profile:
        for _ in range(5):
            op(x, x)
    (replay,), (row,) = profile.ops, profile.rows
    assert (replay.op, replay.launches, replay.path) == (row.op, 5, ())
    assert {name: phase.launches for name, phase in replay.phases.items()} == {
        "find": 5,
        "prepare": 5,
        "launches": 5,
    }
    rounding_us = 5 * 0.002
    phases_us = sum(phase.total_us for phase in replay.phases.values())
    assert phases_us <= replay.total_us + rounding_us
    assert replay.phases["launches"].total_us == pytest.approx(row.total_us, abs=rounding_us)


def test_range_holds_the_whole_time_of_the_replays_in_it_once(op, x):
    with profile_launches() as profile, annotate("outer"):
        with annotate("inner"):
            for _ in range(50):
                op(x, x)
        launchkit.launch(sample_kernels.copy, (7,), x, x, 100, 1, BLOCK=16)
    (replay,) = profile.ops
    alone = next(row for row in profile.rows if row.op is None)
    ranges = {row.path: row for row in profile.ranges}
    assert ranges["outer", "inner"].launches == 100
    assert ranges["outer", "inner"].total_us == pytest.approx(replay.total_us, abs=0.2)
    assert ranges["outer",].total_us == pytest.approx(replay.total_us + alone.total_us, abs=0.2)
    assert profile.threads[0].total_us == pytest.approx(ranges["outer",].total_us)
    assert profile.threads[0].launches == 101


def test_launches_of_an_op_that_runs_as_it_is_are_not_the_ops(x):
    planned, runs = counted(copying)
    with profile_launches() as profile:
        while planned.op_plans.replays < 2:
            planned(x, x)
    by_op = {row.op: row.launches for row in profile.rows}
    assert by_op == {None: 2 * len(runs), planned.op_plans.name: 4}
    assert [row.launches for row in profile.ops] == [2]


def test_recorded_replay_launches_what_an_unrecorded_one_does(op, x):
    _, expected = launched(lambda: op(x, x))
    with profile_launches():
        _, seen = launched(lambda: op(x, x))
    same_launches(seen, expected)


def test_replays_of_two_ops_are_told_apart(op, x):
    def other(x, out):
        launchkit.launch(sample_kernels.copy, (7,), x, out, 100, 1, BLOCK=16)

    other = launchkit.planned(other)
    while other.op_plans.replays < 1:
        other(x, x)
    with profile_launches() as profile:
        op(x, x)
        other(x, x)
    counts = {row.op: row.launches for row in profile.rows}
    assert counts == {op.op_plans.name: 2, other.op_plans.name: 1}


def test_time_of_what_a_result_is_allocated_by_is_in_the_phase_that_prepares(x):
    def op(x):
        result = torch.empty_like(x)
        launchkit.launch(sample_kernels.copy, (7,), x, result, 100, 1, BLOCK=16)
        return result

    planned = launchkit.planned(op)
    while planned.op_plans.replays < 1:
        planned(x)
    with profile_launches() as profile:
        start_ns = clock.now_ns()
        for _ in range(20):
            planned(x)
        elapsed_us = (clock.now_ns() - start_ns) / 1000
    (replay,) = profile.ops
    assert 0 < replay.phases["prepare"].total_us <= replay.total_us <= elapsed_us


def test_table_names_replays_and_their_kernels(op, x):
    with profile_launches() as profile:
        op(x, x)
    text = " ".join(str(profile).split())
    assert "replayed" in text.replace("│", "").replace(" ", "")
    assert len(profile.table().rows) == 2
