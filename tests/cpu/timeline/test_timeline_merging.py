"""Captures of several ranks as one timeline: one clock, and no number for two things."""

from __future__ import annotations

import json

import pytest

from launchkit.errors import UsageError
from launchkit.profiling.timeline import (
    Source,
    Timeline,
    analyse,
    merge_timelines,
    read_timeline,
    table_of,
    taken_together,
)


@pytest.fixture
def rank(tmp_path):
    """Writes and reads the trace of a rank: a launch and its kernel, so many µs after the others."""

    def made(number, pid=70, late_us=0, base_ns=10**18 + 7):
        start, args = 1000 + late_us, {"correlation": 1}
        events = [
            {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "pid": pid, "tid": pid,
             "ts": start, "dur": 5, "args": args},
            {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": start + 8,
             "dur": 20, "args": {**args, "device": 0, "stream": 7}},
        ]  # fmt: skip
        head = {"baseTimeNanoseconds": base_ns} if base_ns else {}
        path = tmp_path / f"rank{number}.json"
        document = {**head, "distributedInfo": {"rank": number}, "traceEvents": events}
        path.write_text(json.dumps(document))
        return read_timeline(path)

    return made


def test_ranks_stand_on_one_clock_and_keep_their_processes_and_devices_apart(rank):
    merged = merge_timelines([rank(0), rank(1, late_us=30), rank(2, pid=80, late_us=10)])
    calls = merged.calls.select("process", "start_ns", "end_ns", "call_id").rows()
    assert calls == [(70, 0, 5000, 0), (71, 30_000, 35_000, 1), (80, 10_000, 15_000, 2)]
    gpu = merged.gpu.select("process", "device", "name", "start_ns").rows()
    assert gpu == [(70, 0, "k0", 8000), (71, 1, "k1", 38_000), (80, 2, "k2", 18_000)]
    assert dict(merged.processes.select("process", "rank").rows()) == {70: 0, 71: 1, 80: 2}
    assert merged.devices["device"].to_list() == [0, 1, 2]
    assert merged.source.utc_epoch_ns == 10**18 + 7 + 10**6
    assert merged.source.duration_ns == 58_000
    assert merged.counts["events"].read == 6
    assert merged.warnings == ()


def test_captures_without_their_time_begin_together_with_a_warning(rank):
    merged = merge_timelines([rank(0), rank(1, late_us=30, base_ns=None)])
    assert merged.calls["start_ns"].to_list() == [0, 0]
    assert merged.source.utc_epoch_ns is None
    assert merged.warnings == ("the captures begin at 0, not at their times",)


def test_one_capture_stays_as_it_is_and_none_is_refused(rank):
    alone = rank(0)
    merged = merge_timelines([alone])
    assert merged.calls.equals(alone.calls)
    assert merged.gpu.equals(alone.gpu)
    assert merged.source == alone.source
    with pytest.raises(UsageError, match="no capture to merge"):
        merge_timelines([])


def test_what_is_said_of_every_capture_is_said_once(rank):
    one, other = rank(0).warned("both", "one's"), rank(1).warned("both")
    assert merge_timelines([one, other]).warnings == ("both", f"{one.source.path}: one's")


def test_captures_of_one_time_and_kind_belong_together(rank):
    first, second = rank(0), rank(1, late_us=20)
    later, unknown = rank(2, base_ns=10**18 + 10**12), rank(3, base_ns=None)
    assert [
        [timeline.source.path for timeline in group]
        for group in taken_together([unknown, later, second, first])
    ] == [
        [unknown.source.path],
        [later.source.path],
        [second.source.path, first.source.path],
    ]
    assert taken_together([]) == []


def of_process(number, starts_us, kernel="k"):
    """A process whose launches of a kernel take 3 µs each, and begin at these times."""
    rows = [
        {"process": number, "thread": number, "name": kernel, "kind": "launch",
         "start_ns": 1000 * at, "end_ns": 1000 * at + 3000}
        for at in starts_us
    ]  # fmt: skip
    return Timeline(
        Source("", "launchkit", host_only=True),
        calls=table_of("calls", rows),
        processes=table_of("processes", [{"process": number, "rank": number}]),
    )


def test_lateness_is_the_time_after_the_first_process_with_the_same_launch():
    sides = {0: [0, 100, 200, 300], 1: [5, 105, 240, 290], 2: [50, 101, 210, 310]}
    merged = merge_timelines([of_process(number, starts) for number, starts in sides.items()])
    rows = {row["rank"]: row for row in analyse(merged).processes.iter_rows(named=True)}
    # The first launch of a kernel is a cold one.
    late = {
        number: [starts[turn] - min(each[turn] for each in sides.values()) for turn in (1, 2, 3)]
        for number, starts in sides.items()
    }
    for number, times in late.items():
        row = rows[number]
        assert (row["count"], row["total_ns"], row["matched"]) == (4, 12_000, 3)
        assert row["late_median_ns"] == 1000 * sorted(times)[1]
        assert row["late_max_ns"] == 1000 * max(times)
    assert [rows[number]["last_share"] for number in sides] == pytest.approx([0, 2 / 3, 1 / 3])


def test_launches_that_processes_make_unevenly_often_are_not_compared():
    parts = [of_process(0, [0, 10, 20]), of_process(1, [1, 11])]
    rows = analyse(merge_timelines(parts)).processes
    assert rows["count"].to_list() == [3, 2]
    assert rows["matched"].to_list() == [0, 0]
    assert rows["late_median_ns"].to_list() == [None, None]
    assert analyse(of_process(0, [0, 10])).processes.is_empty()
