"""Saved profiles of ``profile_launches`` as timelines. Above the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from launchkit.errors import BadDocumentError
from launchkit.profiling.names import DOMAIN, REPLAY_CATEGORY
from launchkit.profiling.profile import profile_file
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.model import Source, Timeline, table_of
from launchkit.profiling.timeline.progress import Progress, silent
from launchkit.profiling.timeline.refusing import unusable

if TYPE_CHECKING:
    from launchkit.profiling.profile.schema import LaunchesPart, ProfileDocument, RangePart

_SPLIT = {"find": "find_ns", "grid": "grid_ns", "driver": "driver_ns"}


def read_profile(path: str | os.PathLike[str], progress: Progress | None = None) -> Timeline:
    """Return the timeline of a profile that ``LaunchProfile.save`` wrote.

    Rows stand where they were, so that what happened within a range is within it; what the
    recorder took of a range is in ``recorder_ns``, and what recording added around a call in
    ``added_ns``: neither is part of how long the range lasted.

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
        raise unusable(source, error, "Save the profile again.") from None
    timeline = _timeline(source, document)
    rows = timeline.ranges.height + timeline.calls.height
    (progress or silent)("launches and ranges", rows, rows)
    return timeline


def _timeline(path: str, document: ProfileDocument) -> Timeline:
    process, counts = document.process, RowCounts()
    ranges = [_visits(document, part) for part in document.ranges]
    replays = [part for part in document.launches if part.kernel is None]
    launches = [part for part in document.launches if part.kernel is not None]
    calls = [_launches(document, part) for part in launches]
    ranges += [_replays(document, part, launches) for part in replays]
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
    length = pl.Series(part.length_ns, dtype=pl.Int64)
    recorder = pl.Series(part.recorder_ns or [0] * length.len(), dtype=pl.Int64)
    spans = _Spans(part.started_ns, part.thread, length, length.clip(0) + recorder.clip(0))
    return _spans(document, part.name, part.op, layer, spans)


def _replays(
    document: ProfileDocument, part: LaunchesPart, launches: Sequence[LaunchesPart]
) -> pl.DataFrame:
    length = pl.Series(part.each_ns, dtype=pl.Int64)
    inner = [each for each in launches if (each.range, each.op) == (part.range, part.op)]
    spans = _Spans(part.started_ns, part.thread, length, _whole_replays(part, inner))
    return _spans(document, part.op or "", REPLAY_CATEGORY, None, spans)


def _whole_replays(part: LaunchesPart, launches: Sequence[LaunchesPart]) -> pl.Series:
    """Return how long replays were with the recorder's share: to the end of their last launch.

    A launch that begins later than the recorder can have held a replay up is of another one, which
    was not kept.
    """
    rows = {"thread": part.thread, "at": part.started_ns, "net": part.each_ns}
    replays = pl.DataFrame(rows, schema=_REPLAYS).with_row_index("replay")
    columns = [(each.thread, each.started_ns, each.each_ns) for each in launches]
    inner = pl.concat(
        [pl.DataFrame(schema=_INNER), *(pl.DataFrame(each, schema=_INNER) for each in columns)]
    )
    found = inner.sort("at").join_asof(
        replays.sort("at"), on="at", by="thread", strategy="backward", coalesce=False,
        check_sortedness=False,
    )  # fmt: skip
    since = pl.col("at") - pl.col("at_right")
    within = found.filter(since <= 2 * pl.col("net")).group_by("replay").agg(
        until=(since + pl.col("inner").clip(0)).max()
    )  # fmt: skip
    whole = replays.join(within, on="replay", how="left", maintain_order="left")
    return whole.select(pl.max_horizontal(pl.lit(0), "net", "until")).to_series()


_REPLAYS = {"thread": pl.Int64, "at": pl.Int64, "net": pl.Int64}
_INNER = {"thread": pl.Int64, "at": pl.Int64, "inner": pl.Int64}


class _Spans(NamedTuple):
    """When ranges began, on which threads, how long they lasted, and how long with the recorder."""

    started_ns: Sequence[int]
    threads: Sequence[int]
    length: pl.Series
    whole: pl.Series


def _spans(
    document: ProfileDocument,
    name: str,
    category: str | None,
    payload: str | None,
    spans: _Spans,
) -> pl.DataFrame:
    if not spans.threads:
        return pl.DataFrame()
    began = _since_start(document, spans.started_ns)
    columns = {
        "start_ns": began,
        "end_ns": began + spans.whole,
        "recorder_ns": spans.whole - spans.length.clip(0),
    }
    return pl.DataFrame(columns).with_columns(
        _native(document, spans.threads).alias("thread"),
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
    added_ns = round(document.calibration.get("added_ns", 0.0))
    return pl.DataFrame(spans).with_columns(
        _native(document, part.thread).alias("thread"),
        pl.lit(document.process.pid, dtype=pl.Int64).alias("process"),
        pl.lit(part.kernel).alias("name"),
        pl.lit("launch").alias("kind"),
        pl.lit("runtime").alias("layer"),
        pl.lit(part.op, dtype=pl.String).alias("op"),
        pl.lit(added_ns, dtype=pl.Int64).alias("added_ns"),
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
