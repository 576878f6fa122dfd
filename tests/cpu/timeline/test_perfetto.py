"""A timeline as a trace: what viewers ask of the format, and nothing of the timeline lost."""

from __future__ import annotations

import io
import json
import random

import captures
import polars as pl
import pytest
from timelines import P, T, small_timeline

from launchkit.profiling.report.perfetto import write_trace
from launchkit.profiling.timeline import analyse, read_timeline
from launchkit.profiling.timeline.containment import lanes_of


def trace_of(timeline, *more):
    file = io.BytesIO()
    counts = write_trace(timeline, file, *more)
    return json.loads(file.getvalue()), counts


def ns(us: float) -> int:
    return round(us * 1000)


def slices(trace):
    """(pid, tid) -> (start, end, name) of the complete events, in ns."""
    tracks: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            span = (ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), event["name"])
            tracks.setdefault((event["pid"], event["tid"]), []).append(span)
    return tracks


def crossing(spans) -> bool:
    open_ends: list[int] = []
    for start, end, *_ in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if open_ends and end > open_ends[-1]:
            return True
        open_ends.append(end)
    return False


@pytest.fixture(scope="module")
def sample():
    return analyse(read_timeline(captures.nsys_sample()))


@pytest.mark.parametrize("seed", range(20))
def test_spans_on_a_lane_nest_or_are_apart(seed) -> None:
    random.seed(seed)
    starts = [random.randrange(40) for _ in range(60)]
    spans = sorted(
        ((at, at + random.choice([0, 1, 5, 30])) for at in starts), key=lambda s: (s[0], -s[1])
    )
    lanes = list(lanes_of(spans))
    for lane in set(lanes):
        assert not crossing([span for span, on in zip(spans, lanes, strict=True) if on == lane])


def test_spans_that_nest_share_a_lane() -> None:
    assert list(lanes_of([(0, 10), (0, 5), (1, 2), (2, 5), (5, 10), (10, 10), (10, 12)])) == [0] * 7


def test_slices_nest_on_every_track_of_a_sample(sample) -> None:
    trace, _ = trace_of(sample.timeline, sample.gaps)
    assert not any(crossing(spans) for spans in slices(trace).values())


def test_every_row_of_the_timeline_is_an_event_with_its_exact_ns(sample) -> None:
    timeline = sample.timeline
    trace, counts = trace_of(timeline, sample.gaps)
    found = sorted(
        (ns(event["ts"]), ns(event["ts"]) + ns(event.get("dur", 0)))
        for event in trace["traceEvents"]
        if event["ph"] in "Xi"
    )
    tables = (timeline.ranges, timeline.calls, timeline.gpu, timeline.overheads, sample.gaps)
    wanted = sorted(
        row for table in tables for row in table.select("start_ns", "end_ns").iter_rows()
    )
    assert found == wanted
    assert counts["slices"] == len(wanted)


def test_a_flow_leads_from_each_launch_to_each_kernel_it_started(sample) -> None:
    trace, counts = trace_of(sample.timeline)
    events = trace["traceEvents"]
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys() == set(range(1, counts["flows"] + 1))
    assert counts["flows"] == sample.timeline.gpu.height
    tracks = slices(trace)
    correlations = {
        (event["pid"], event["tid"], ns(event["ts"]), event["cat"]): event["args"]["correlation"]
        for event in events
        if event["ph"] == "X" and "correlation" in event["args"]
    }
    for number, start in starts.items():
        end = ends[number]
        at = [(each["pid"], each["tid"], ns(each["ts"])) for each in (start, end)]
        assert all(place[:2] in tracks for place in at)
        assert correlations[(*at[0], "call")] == correlations[(*at[1], "gpu")]
        assert end["bp"] == "e"


def test_tracks_have_the_names_of_threads_processes_and_devices() -> None:
    trace, _ = trace_of(small_timeline())
    titles = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and event["name"].endswith("_name")
    }
    assert titles["process_name", P, 0] == "rank 3 python"
    assert f"main ({T})" in titles.values()
    assert {"started ranges", "stream 7", "GPU 0 GPU of a test"} <= set(titles.values())
    used = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] != "M"}
    assert used == {key[1:] for key in titles if key[0] == "thread_name"}


def test_crossing_and_open_ranges_are_kept_and_told() -> None:
    trace, _ = trace_of(small_timeline())
    by_name = {event["name"]: event for event in trace["traceEvents"]}
    assert by_name["never"]["args"]["never closed"] is True
    assert by_name["crossing"]["tid"] != by_name["step 0"]["tid"]
    assert by_name["layer0"]["tid"] == by_name["step 0"]["tid"] == by_name["cuLaunchKernel"]["tid"]
    assert (by_name["a mark"]["ph"], by_name["a mark"]["s"]) == ("i", "t")


def test_idle_times_stand_under_their_cause() -> None:
    timeline = small_timeline()
    gaps = analyse(timeline).gaps
    trace, _ = trace_of(timeline, gaps)
    found = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "gap"]
    assert sorted(found) == sorted(gaps["cause"].cast(pl.String).to_list())
    assert len(found) == 11  # of 12 kernels, none back to back


def test_ranges_have_their_verdict_beside_them(sample) -> None:
    trace, _ = trace_of(sample.timeline, sample.gaps, sample.verdicts)
    found = {event["name"]: event for event in trace["traceEvents"] if event.get("cat") == "range"}
    assert found["backpressure"]["args"]["verdict"] == "GPU-bound"
    assert "full launch queue" in found["backpressure"]["args"]["why"]
    assert "verdict" not in found["mark"]["args"]


@pytest.mark.parametrize("shift_ns", [-5_000_000, 1_795_968_447_413_515_445])
def test_times_before_0_and_of_an_epoch_keep_their_ns(shift_ns) -> None:
    plain = small_timeline()
    moved = plain.with_tables(
        **{
            name: getattr(plain, name).with_columns(pl.col("start_ns", "end_ns") + shift_ns)
            for name in ("ranges", "calls", "gpu")
        }
    )
    trace, _ = trace_of(moved)
    assert int(trace["otherData"]["origin_ns"]) == shift_ns + plain.span_ns()[0]
    assert sorted(map(sorted, slices(trace).values())) == sorted(
        map(sorted, slices(trace_of(plain)[0]).values())
    )


def test_control_characters_in_names_are_escaped() -> None:
    ranges = [{"process": 1, "name": "a\x00b\x1b[31m\n", "start_ns": 0, "end_ns": 5}]
    timeline = small_timeline(ranges=ranges)
    file = io.BytesIO()
    write_trace(timeline, file)
    assert not any(byte < 32 for byte in file.getvalue().replace(b"\n", b""))
    assert b"a\\u0000b\\u001b[31m" in file.getvalue()


def test_empty_timeline_is_a_trace() -> None:
    empty = {name: [] for name in ("ranges", "calls", "gpu")}
    trace, counts = trace_of(small_timeline(**empty))
    assert counts == {"slices": 0, "flows": 0}
    assert all(event["ph"] == "M" for event in trace["traceEvents"])
