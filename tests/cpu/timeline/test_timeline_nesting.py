"""Unions of intervals and the innermost range at each time, against plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pl = pytest.importorskip("polars")

from launchkit.profiling.timeline.analysis import intervals, nesting  # noqa: E402

SPANS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), min_size=0, max_size=25
)


def frame(rows, *names):
    schema = dict.fromkeys(names, pl.Int64)
    return pl.DataFrame([tuple(row) for row in rows], schema=schema, orient="row")


@settings(max_examples=40, deadline=None)
@given(SPANS, st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 50)), max_size=10))
def test_covered_is_the_measure_of_the_union(spans, points):
    rows = [(key, start, start + length) for key, start, length in spans]
    islands = intervals.unions(frame(rows, "key", "start_ns", "end_ns"), "key")
    at = frame(points, "key", "at_ns")
    covered = intervals.covered_ns(at, islands, "key", "at_ns").to_list()
    inside = {(key, ns) for key, start, end in rows for ns in range(start, end)}
    assert covered == [sum((key, ns) in inside for ns in range(max(t, 0))) for key, t in points]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=20),
    st.data(),
)
def test_window_extrema_are_those_of_the_rows(values, data):
    cut = st.integers(0, len(values))
    windows = data.draw(st.lists(st.tuples(cut, cut), min_size=1, max_size=10))
    found = intervals.window_extrema(
        frame(values, "a", "b"), frame(windows, "first", "stop"), "a", "b"
    )
    expected = [
        (min(a for a, _ in values[i:j]), max(b for _, b in values[i:j])) if i < j else (None, None)
        for i, j in windows
    ]
    assert found.rows() == expected


def innermost_of(ranges, lane, ns):
    """The order of the range of ``lane`` opened last of those open at ``ns``."""
    orders = [
        order
        for order, (of, _, start, end) in enumerate(ranges)
        if of == lane and start <= ns < end
    ]
    return max(orders, default=None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, n) for n in (1, 2, 20, 12)]), max_size=14))
def test_innermost_is_the_range_opened_last_whether_or_not_ranges_cross(rows):
    spans = [(lane, domain, start, start + length) for lane, domain, start, length in rows]
    names = ("lane", "domain", "start_ns", "end_ns")
    found = nesting.nest(frame(spans, *names))
    ordered = sorted(spans, key=lambda row: (row[0], row[2], -row[3]))
    assert found.ranges.select("lane", "start_ns", "end_ns").rows() == [
        (lane, start, end) for lane, _, start, end in ordered
    ]
    for lane, start, end, top in found.segments.rows():
        for ns in range(start, end):
            assert innermost_of(ordered, lane, ns) == top
    for lane in {row[0] for row in spans}:
        lasting = [row for row in ordered if row[0] == lane and row[2] < row[3]]
        of_lane = found.segments.filter(pl.col("lane") == lane)
        assert of_lane.select((pl.col("end_ns") - pl.col("start_ns")).sum()).item() == (
            max(row[3] for row in lasting) - min(row[2] for row in lasting) if lasting else 0
        )


def crosses(a, b):
    return a[:2] == b[:2] and a[2] < b[2] < a[3] < b[3]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, n) for n in (1, 1, 12, 9)]), max_size=9))
def test_crossing_ranges_are_counted_only_where_some_cross(rows):
    spans = [(lane, domain, start, start + length) for lane, domain, start, length in rows]
    found = nesting.nest(frame(spans, "lane", "domain", "start_ns", "end_ns"))
    assert (found.crossing > 0) == any(crosses(a, b) for a in spans for b in spans)


def test_parent_and_depth_follow_the_ranges_of_all_domains():
    rows = [(0, 0, 0, 100), (0, 1, 10, 90), (0, 0, 20, 30), (0, 1, 30, 30), (1, 0, 5, 6)]
    found = nesting.nest(frame(rows, "lane", "domain", "start_ns", "end_ns")).ranges
    assert found.get_column("parent").to_list() == [None, 0, 1, 1, None]
    assert found.get_column("depth").to_list() == [0, 1, 2, 2, 0]


def test_times_too_far_apart_for_one_number_are_found_all_the_same():
    far = 2**61
    rows = [(0, 10, 20), (3, far, far + 7), (3, far + 9, far + 11)]
    islands = intervals.unions(frame(rows, "key", "start_ns", "end_ns"), "key")
    at = frame([(3, far + 10), (0, 15), (3, 0), (0, far), (1, 15)], "key", "at_ns")
    assert intervals.covered_ns(at, islands, "key", "at_ns").to_list() == [8, 5, 0, 10, 0]
