"""Captures of several processes or ranks as one timeline. Above the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from launchkit.errors import UsageError
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.model import TABLES, Source, Timeline, table_of

_TIMES = ("start_ns", "end_ns", "time_ns", "seen_ns")


def taken_together(timelines: Sequence[Timeline]) -> list[list[Timeline]]:
    """Return ``timelines`` in groups that were taken at the same time by the same kind of profiler.

    Those are of one program: its ranks or processes. A capture whose UTC time is not known is
    alone, and so is one that was taken before or after all others. Groups stand in the order of
    their first capture.
    """
    groups: list[list[int]] = []
    reached: dict[str, int] = {}
    newest: dict[str, list[int]] = {}
    spans = [_utc_span(timeline) for timeline in timelines]
    known = [(span, number) for number, span in enumerate(spans) if span is not None]
    for (start_ns, end_ns), number in sorted(known):
        kind = timelines[number].source.format
        if kind not in newest or start_ns > reached[kind]:
            groups.append([])
            newest[kind], reached[kind] = groups[-1], end_ns
        newest[kind].append(number)
        reached[kind] = max(reached[kind], end_ns)
    groups += [[number] for number, span in enumerate(spans) if span is None]
    return [[timelines[number] for number in sorted(group)] for group in sorted(groups, key=min)]


def _utc_span(timeline: Timeline) -> tuple[int, int] | None:
    start_ns = timeline.source.utc_epoch_ns
    if start_ns is None:
        return None
    first_ns, last_ns = timeline.span_ns()
    return start_ns + first_ns, start_ns + max(last_ns, timeline.source.duration_ns or 0)


def merge_timelines(timelines: Sequence[Timeline]) -> Timeline:
    """Return captures that were taken at the same time as one timeline, on the clock of UTC.

    Time 0 is the earliest one's. A process or device whose number an earlier capture has already
    gets a free one, so that nothing of two captures is taken for one; ``processes`` and ``devices``
    have the names. Captures whose UTC time is not known begin together, and a warning says so.
    Raises UsageError for no capture.
    """
    if not timelines:
        raise UsageError("there is no capture to merge. Give one or more.")
    starts = [timeline.source.utc_epoch_ns for timeline in timelines]
    known = [start for start in starts if start is not None]
    aligned = len(known) == len(starts)
    first_ns = min(known, default=0)
    warnings = (
        [] if aligned or len(starts) == 1 else ["the captures begin at 0, not at their times"]
    )
    shared = _shared([timeline.warnings for timeline in timelines])
    warnings += shared
    taken: dict[str, set[int]] = {"process": set(), "device": set()}
    parts: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
    counts, end_ns = RowCounts(), 0
    for timeline, start_ns in zip(timelines, starts, strict=True):
        shift_ns = start_ns - first_ns if aligned and start_ns is not None else 0
        fresh = {column: _fresh(timeline, column, taken[column]) for column in taken}
        for table, frames in parts.items():
            frames.append(_moved(getattr(timeline, table), shift_ns, fresh))
        counts.update(timeline.counts)
        warnings += [
            f"{timeline.source.path}: {each}" for each in timeline.warnings if each not in shared
        ]
        end_ns = max(end_ns, shift_ns + (timeline.source.duration_ns or timeline.span_ns()[1]))
    source = _source([timeline.source for timeline in timelines], first_ns if aligned else None)
    tables = {
        name: table_of(name, pl.concat(frames, how="diagonal_relaxed"))
        for name, frames in parts.items()
    }
    return Timeline(
        replace(source, duration_ns=end_ns), **tables, counts=counts, warnings=tuple(warnings)
    )


def _shared(warnings: Sequence[tuple[str, ...]]) -> list[str]:
    """Return what is said of every capture."""
    return [each for each in warnings[0] if all(each in others for others in warnings)]


def _source(sources: Sequence[Source], utc_epoch_ns: int | None) -> Source:
    if len(sources) == 1:
        return sources[0]
    shared = set.intersection(*(set(source.calibration) for source in sources))
    return replace(
        sources[0],
        path=", ".join(os.path.basename(source.path.rstrip("/")) for source in sources),
        calibration={
            name: sum(source.calibration[name] for source in sources) / len(sources)
            for name in sorted(shared)
        },
        utc_epoch_ns=utc_epoch_ns,
        host_only=all(source.host_only for source in sources),
    )


def _fresh(timeline: Timeline, column: str, taken: set[int]) -> dict[int, int]:
    """Return new numbers for those of a capture that are taken, and take all of its own."""
    frames = [frame for name in TABLES if column in (frame := getattr(timeline, name)).columns]
    own = {number for frame in frames for number in frame[column].drop_nulls().unique().to_list()}
    free = max((0, *taken, *own)) + 1
    fresh = {number: free + place for place, number in enumerate(sorted(own & taken))}
    taken |= {fresh.get(number, number) for number in own}
    return fresh


def _moved(frame: pl.DataFrame, shift_ns: int, fresh: dict[str, dict[int, int]]) -> pl.DataFrame:
    times = [pl.col(name) + shift_ns for name in _TIMES if name in frame.columns]
    numbers = [
        pl.col(column).replace(new)
        for column, new in fresh.items()
        if column in frame.columns and new
    ]
    return frame.with_columns(*times, *numbers)
