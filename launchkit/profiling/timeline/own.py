"""Saved profiles of ``profile_launches`` as timelines. Above the leaves only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from launchkit.errors import BadDocumentError, TimelineError
from launchkit.profiling import profile_file
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.model import Source, Timeline, table_of
from launchkit.profiling.timeline.nsys_tables import Progress

if TYPE_CHECKING:
    from launchkit.profiling.profile_schema import LaunchesPart, ProfileDocument, RangePart

DOMAIN = "launchkit"
REPLAY = "op replay"
"""Category of the ranges that are replays of planned ops."""

_SPLIT = {"find": "find_ns", "grid": "grid_ns", "driver": "driver_ns"}


def read_own(path: str | os.PathLike[str], progress: Progress | None = None) -> Timeline:
    """Return the timeline of a profile that ``LaunchProfile.save`` wrote.

    Launches that were kept singly are ``calls`` of the kind launch, named by their kernel, with
    the columns ``find_ns``, ``grid_ns`` and ``driver_ns`` (null where they are not known) and
    ``op`` (the planned op that replayed it). Visits of ranges and replays of ops are ``ranges``; a
    range's payload is its layer. What was only counted is in ``counts``. Time 0 is the recording's
    start. Raises TimelineError for a file that cannot be used.
    """
    source = os.fspath(path)
    try:
        document = profile_file.read(source)
    except BadDocumentError as error:
        advice = "Upgrade launchkit." if error.newer else "Save the profile again."
        raise TimelineError(source, error.reason, advice) from None
    timeline = _timeline(source, document)
    if progress is not None:
        rows = timeline.ranges.height + timeline.calls.height
        progress("launches and ranges", rows, rows)
    return timeline


def _timeline(path: str, document: ProfileDocument) -> Timeline:
    process, counts = document.process, RowCounts()
    ranges = [_visits(document, part) for part in document.ranges]
    replays = [part for part in document.launches if part.kernel is None]
    launches = [part for part in document.launches if part.kernel is not None]
    ranges += [_replays(document, part) for part in replays]
    calls = [_launches(document, part) for part in launches]
    _count(counts, document, replays, launches)
    threads = [{"thread": each.native_id, "name": each.name} for each in document.threads]
    known = {"process": process.pid, "name": "", "rank": process.rank}
    return Timeline(
        _source(path, document),
        ranges=table_of("ranges", _concatenated(ranges)),
        calls=table_of("calls", _concatenated(calls)),
        processes=table_of("processes", [known]),
        threads=table_of("threads", [{"process": process.pid, **each} for each in threads]),
        counts=counts,
        warnings=tuple(_warnings(document)),
    )


def _source(path: str, document: ProfileDocument) -> Source:
    process = document.process
    return Source(
        path,
        "launchkit",
        product="launchkit",
        schema=str(profile_file.SCHEMA),
        utc_epoch_ns=process.utc_ns or None,
        duration_ns=max(0, process.end_ns - process.start_ns),
        host_only=True,
        calibration={**document.calibration, "sample_every": float(document.sample_every)},
    )


def _warnings(document: ProfileDocument) -> Iterator[str]:
    if document.sample_every > 1:
        yield (
            f"a sample: one of {document.sample_every} launches was recorded, on average, and no "
            "time of a range"
        )
    if document.mode == "host-only":
        yield "host-only: no driver was called, so the driver's share is not that of a GPU"
    if document.lost:
        yield f"{document.lost} launches could not be recorded"


def _visits(document: ProfileDocument, part: RangePart) -> pl.DataFrame:
    layer = None if part.layer is None else str(part.layer)
    return _spans(document, part.name, part.op, layer, part.started_ns, part.length_ns, part.thread)


def _replays(document: ProfileDocument, part: LaunchesPart) -> pl.DataFrame:
    name = part.op or ""
    return _spans(document, name, REPLAY, None, part.started_ns, part.each_ns, part.thread)


def _spans(
    document: ProfileDocument,
    name: str,
    category: str | None,
    payload: str | None,
    started_ns: Sequence[int],
    length_ns: Sequence[int],
    threads: Sequence[int],
) -> pl.DataFrame:
    if not threads:
        return pl.DataFrame()
    began = _since_start(document, started_ns)
    return pl.DataFrame({"start_ns": began, "end_ns": began + _lengths(length_ns)}).with_columns(
        _native(document, threads).alias("thread"),
        pl.lit(document.process.pid, dtype=pl.Int64).alias("process"),
        pl.lit(DOMAIN).alias("domain"),
        pl.lit(name).alias("name"),
        pl.lit(category, dtype=pl.String).alias("category"),
        pl.lit("push_pop").alias("kind"),
        pl.lit(payload, dtype=pl.String).alias("payload"),
    )


def _launches(document: ProfileDocument, part: LaunchesPart) -> pl.DataFrame:
    if not part.thread:
        return pl.DataFrame()
    began = _since_start(document, part.started_ns)
    place = pl.Series(part.phase_at, dtype=pl.Int64)
    place = place.set(place < 0, None)
    split = {
        column: pl.Series(part.phases[name].each_ns, dtype=pl.Int64).gather(place)
        if name in part.phases
        else pl.Series([None] * len(place), dtype=pl.Int64)
        for name, column in _SPLIT.items()
    }
    spans = {"start_ns": began, "end_ns": began + _lengths(part.each_ns), **split}
    return pl.DataFrame(spans).with_columns(
        _native(document, part.thread).alias("thread"),
        pl.lit(document.process.pid, dtype=pl.Int64).alias("process"),
        pl.lit(part.kernel).alias("name"),
        pl.lit("launch").alias("kind"),
        pl.lit("runtime").alias("layer"),
        pl.lit(part.op, dtype=pl.String).alias("op"),
    )


def _since_start(document: ProfileDocument, times_ns: Sequence[int]) -> pl.Series:
    return pl.Series(times_ns, dtype=pl.Int64) - document.process.start_ns


def _lengths(times_ns: Sequence[int]) -> pl.Series:
    """Return times of which the recorder's share was taken off: none below 0."""
    return pl.Series(times_ns, dtype=pl.Int64).clip(lower_bound=0)


def _native(document: ProfileDocument, threads: Sequence[int]) -> pl.Series:
    ids = pl.Series([each.native_id for each in document.threads], dtype=pl.Int64)
    return ids.gather(pl.Series(threads, dtype=pl.UInt32))


def _concatenated(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    filled = [frame for frame in frames if frame.height]
    return pl.concat(filled) if filled else pl.DataFrame()


def _count(
    counts: RowCounts,
    document: ProfileDocument,
    replays: Sequence[LaunchesPart],
    launches: Sequence[LaunchesPart],
) -> None:
    visited = sum(part.calls for part in document.ranges)
    kept = sum(len(part.thread) for part in document.ranges)
    counts.add("ranges", read=visited, used=kept, dropped={"kept as totals only": visited - kept})
    for table, parts in (("replays", replays), ("launches", launches)):
        made, failed = sum(part.launches for part in parts), sum(part.failed for part in parts)
        singly = sum(len(part.thread) for part in parts)
        dropped = {"kept as totals only": made - singly, "that failed": failed}
        counts.add(table, read=made + failed, used=singly, dropped=dropped)
