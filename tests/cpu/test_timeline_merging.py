"""Captures of several ranks as one timeline: one clock, and no number for two things."""

from __future__ import annotations

import json

import pytest

from launchkit.errors import UsageError
from launchkit.profiling.timeline import merge_timelines, read_timeline


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
