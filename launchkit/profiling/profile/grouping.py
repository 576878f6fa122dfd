"""Launches gathered by op, by layer and by step. Above rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

from launchkit.profiling.profile.rows import GroupRow, driver_split, figures
from launchkit.profiling.recording.series import Series, Times
from launchkit.profiling.recording.tally import RangeNode


def group_row(group: str | int | None, series: Series, wall_us: float | None = None) -> GroupRow:
    """Return the row of a group's launches."""
    known = "driver" in series.phases
    driver_us = driver_split(series)[0] / 1000 if known else None
    return GroupRow(**figures(series), group=group, driver_us=driver_us, wall_us=wall_us)


def step_rows(
    nodes: Sequence[RangeNode], name: str, launch_added_ns: float
) -> tuple[GroupRow, ...]:
    """Return a row for each visit of the ranges ``name``, with the launches begun during it."""
    visits = sorted(_visits_of(nodes, name))
    by_thread: dict[int, list[int]] = {}
    for place, (_, thread, _, _) in enumerate(visits):
        by_thread.setdefault(thread, []).append(place)
    found = [Series() for _ in visits]
    starts = {
        thread: [visits[place][0] for place in places] for thread, places in by_thread.items()
    }
    for start_ns, thread, ns, phases in single_launches(nodes):
        before = bisect_right(starts.get(thread, ()), start_ns) - 1
        place = by_thread[thread][before] if before >= 0 else -1
        if place >= 0 and start_ns < visits[place][3]:
            found[place].add(_times(ns), {key: _times(each) for key, each in phases.items()}, 1)
    return tuple(
        group_row(step, series, max(0.0, length_ns - series.launches * launch_added_ns) / 1000)
        for step, (series, (_, _, length_ns, _)) in enumerate(zip(found, visits, strict=True))
    )


def single_launches(
    nodes: Sequence[RangeNode],
) -> Iterator[tuple[int, int, int, dict[str, int]]]:
    """Yield (start, thread, ns, ns of its phases) of every launch that was kept singly."""
    for node in nodes:
        for subject, series in node.series.items():
            if subject.kernel is None:
                continue
            rows = zip(
                series.started_ns, series.thread, series.total.samples, series.phase_at, strict=True
            )
            for start_ns, thread, ns, place in rows:
                yield start_ns, thread, ns, phases_at(series, place)


def phases_at(series: Series, place: int) -> dict[str, int]:
    """Return the phases of one launch, of which ``place`` is that in ``Series.phase_at``."""
    if place < 0:
        return {}
    return {name: times.samples[place] for name, times in series.phases.items()}


def _visits_of(nodes: Sequence[RangeNode], name: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield start, thread, length without the recorder's share, and end of each visit."""
    for node in nodes:
        if node.path[-1:] == (name,):
            visits = node.visits
            rows = zip(
                visits.started_ns, visits.thread, visits.length_ns, visits.recorder_ns, strict=True
            )
            for start_ns, thread, length_ns, recorder_ns in rows:
                yield start_ns, thread, length_ns, start_ns + length_ns + recorder_ns


def _times(ns: int) -> Any:
    times = Times(1, ns)
    times.samples.append(ns)
    return times
