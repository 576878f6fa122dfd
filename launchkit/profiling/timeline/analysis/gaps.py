"""Why each GPU was idle: its gaps, and what the launching thread did in them. Above attribution.

A gap is a time in which no stream of a device executes anything. What ends it was launched by a
call; what the calling thread did from the beginning of the gap to that call is what the device
waited for. That time is split, first match first, into the profiler's own, waits for the GPU,
other calls, and Python; then come the launch itself and, where the call had returned, the queue
(the driver, the device, or a dependency between streams).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from launchkit.profiling.timeline.analysis import intervals
from launchkit.profiling.timeline.analysis.attribution import HostTime
from launchkit.profiling.timeline.analysis.linked import Linked
from launchkit.profiling.timeline.analysis.nesting import Nesting, innermost_at

CAUSES = ("python", "api", "sync", "launch", "queue", "profiler", "unknown")
"""What a device waits for; ``unknown``: the launch of what it waited for was not captured."""

_HOST = ("profiler", "sync", "api", "python")
_SPLIT = [f"{cause}_ns" for cause in CAUSES]


@dataclass(frozen=True)
class Gaps:
    """``gaps``: a row for each, longest first. ``idle``: their time by range and cause.

    ``gaps``: ``device``, ``start_ns``, ``end_ns``, ``idle_ns``, ``cause`` (of most of it), a
    column ``<cause>_ns`` for each of ``CAUSES``, ``process``, ``thread``, ``name`` of the
    launching call, ``kernel`` that ended the gap, ``call_id``, and ``domain`` and ``range``, the
    innermost range of the largest part.

    ``idle``: ``domain``, ``range`` (null: outside any), ``cause``, ``gaps``, ``idle_ns``, and
    ``window_ns``, how much of that is of gaps that end within the window asked for.
    """

    gaps: pl.DataFrame
    idle: pl.DataFrame


def find_gaps(
    linked: Linked,
    calls: pl.DataFrame,
    nesting: Nesting,
    host: HostTime,
    window: tuple[int, int] | None = None,
) -> Gaps:
    """Return the gaps of every device of ``linked`` and what caused them.

    ``host`` is by lane; ``calls`` and ``nesting`` are of the same timeline. ``window``: a start
    and an end in ns, None for all.
    """
    host = _nested(host)
    number = pl.struct("domain", "range").rank("dense").cast(pl.UInt32).alias("number")
    ranges = nesting.ranges.select("domain", range="name").with_columns(number)
    low, high = window or (_LOW, _HIGH)
    rows, sums = [], []
    # In pieces, since what a gap is split into takes some times the memory of the result.
    for gaps in _slices(device_gaps(linked.gpu)):
        found = _with_calls(gaps, calls).with_columns(within=pl.col("end_ns").is_between(low, high))
        parts = _parts(found, nesting, host)
        whole = intervals.looked_up(_whole(found, parts), linked.lanes, "lane")
        around = ranges.select(pl.all().gather(whole.get_column("order")))
        rows.append(whole.hstack(around).select(_COLUMNS))
        sums.append(_summed(parts, found, ranges))
    return Gaps(
        pl.concat(rows).sort("idle_ns", "start_ns", descending=[True, False]),
        _ranked(pl.concat(sums), ranges),
    )


_COLUMNS = (
    "device", "start_ns", "end_ns", "idle_ns", "cause", *_SPLIT, "process", "thread", "name",
    "kernel", "call_id", "domain", "range",
)  # fmt: skip
_PIECE = 200_000


def _slices(gaps: pl.DataFrame) -> Iterator[pl.DataFrame]:
    for start in range(0, max(1, gaps.height), _PIECE):
        # The number of a gap is its row in the piece.
        piece = gaps.slice(start, _PIECE)
        yield piece.with_columns(gap=pl.int_range(pl.len(), dtype=pl.UInt32))


def _nested(host: HostTime) -> HostTime:
    """Return unions each of which holds the ones before: the profiler's, waits, all calls."""
    if host.profiler.is_empty():  # waits are calls
        return host
    sync, busy = (_together(host.profiler, each) for each in (host.sync, host.busy))
    return HostTime(sync=sync, busy=busy, profiler=host.profiler)


def device_gaps(gpu: pl.DataFrame) -> pl.DataFrame:
    """Return the idle times between the GPU work of each device, with what ended them.

    Columns: ``gap``, ``device``, ``start_ns``, ``end_ns``, ``idle_ns``, ``kernel``, ``call_id``.
    """
    ordered = gpu.lazy().sort("device", "start_ns", "end_ns", descending=[False, False, True])
    reached = pl.col("end_ns").cum_max().shift(1).over("device")
    return (
        ordered.with_columns(reached=reached)
        .filter(pl.col("start_ns") > pl.col("reached"))
        .select(
            "device",
            start_ns="reached",
            end_ns="start_ns",
            idle_ns=pl.col("start_ns") - pl.col("reached"),
            kernel="name",
            call_id="call_id",
        )
        .with_row_index("gap")
        .collect()
    )


def _with_calls(gaps: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Add the launching call's ``lane`` and ``name``, and where the host's time before it ends."""
    named = calls.select("call_id", "lane", "name", call_start="start_ns", call_end="end_ns")
    joined = intervals.looked_up(gaps, named, "call_id")
    called, returned = (
        pl.col(name).clip(pl.col("start_ns"), pl.col("end_ns"))
        for name in ("call_start", "call_end")
    )
    return joined.with_columns(called_ns=called, returned_ns=returned)


def _whole(gaps: pl.DataFrame, parts: pl.DataFrame) -> pl.DataFrame:
    """Add each gap's split, its ``cause``, and the ``order`` of the range with most of it."""
    total = pl.sum_horizontal(_SPLIT)
    summed = parts.lazy().group_by("gap").agg(
        pl.col(_SPLIT).sum(), pl.col("order").get(total.arg_max())
    )  # fmt: skip
    split = intervals.looked_up(gaps, summed.collect(), "gap")
    most = pl.concat_list(_SPLIT).list.arg_max()
    names = pl.Series(CAUSES, dtype=pl.Enum(CAUSES))
    return split.with_columns(names.gather(split.select(most).to_series()).alias("cause"))


def _host_parts(spans: pl.DataFrame, host: HostTime) -> pl.DataFrame:
    """Return how much of each span, ``from_ns`` to ``to_ns`` of a lane, is due to what.

    ``host`` is of ``_nested``: the differences of what its unions cover are the parts.
    """
    length = (pl.col("to_ns") - pl.col("from_ns")).alias("python")
    nested = (host.busy, host.sync, host.profiler)
    reached = [
        spans.select(length).to_series(),
        *(intervals.covered_between(spans, each, "lane", "from_ns", "to_ns") for each in nested),
        pl.zeros(spans.height, pl.Int64, eager=True),
    ]
    python, api, sync, profiler = (more - less for more, less in pairwise(reached))
    return pl.DataFrame(
        {"profiler_ns": profiler, "sync_ns": sync, "api_ns": api, "python_ns": python}
    )


def _together(*islands: pl.DataFrame) -> pl.DataFrame:
    spans = [each.select("lane", "start_ns", "end_ns") for each in islands]
    return intervals.unions(pl.concat(spans), "lane")


def _parts(gaps: pl.DataFrame, nesting: Nesting, host: HostTime) -> pl.DataFrame:
    """Return how much of each gap is due to what in which range.

    Columns: ``gap``, ``order`` (of the innermost range, null outside any), those of ``_SPLIT``.
    """
    spans = gaps.lazy().filter(pl.col("called_ns") > pl.col("start_ns")).select(
        "gap", "lane", from_ns="start_ns", to_ns="called_ns"
    )  # fmt: skip
    cut = pieces(spans.collect(), nesting.segments)
    before = cut.select("gap", order="top").hstack(_host_parts(cut, host))
    known = pl.col("lane").is_not_null()
    # From the call on, a gap belongs to the range that the call is in.
    later = gaps.select(
        "gap", innermost_at(gaps, nesting.segments, "call_start").alias("order"),
        launch_ns=(pl.col("returned_ns") - pl.col("called_ns")).fill_null(0),
        queue_ns=(pl.col("end_ns") - pl.col("returned_ns")).fill_null(0),
        unknown_ns=pl.when(known).then(0).otherwise("idle_ns"),
    )  # fmt: skip
    rows = pl.concat([before, later], how="diagonal").lazy().group_by("gap", "order")
    return rows.agg(pl.col(_SPLIT).sum()).collect()


def pieces(spans: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Cut ``spans`` (``lane``, ``from_ns``, ``to_ns``) where the innermost range changes.

    Returns the columns of the spans and ``top``, null outside any range. ``segments`` are those
    of ``Nesting``; a span gets as many rows as segments it touches.
    """
    closed = _endless(segments, spans).sort("lane", "start_ns").with_row_index("segment")
    first, last = (
        intervals.values_at(spans, closed, "lane", end, ["segment"])["segment"].cast(pl.Int64)
        for end in ("from_ns", "to_ns")
    )
    touched = spans.with_columns(first.alias("first"), last.alias("last"))
    cut = touched.with_columns(row=pl.int_ranges("first", pl.col("last") + 1)).explode("row")
    cut = cut.hstack(closed.select("start_ns", "end_ns", "top")[cut.get_column("row")])
    return (
        cut.with_columns(
            from_ns=pl.max_horizontal("from_ns", "start_ns"),
            to_ns=pl.min_horizontal("to_ns", "end_ns"),
        )
        .filter(pl.col("to_ns") > pl.col("from_ns"))
        .select(*spans.columns, "top")
    )


def _endless(segments: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return segments that cover each lane of the spans for ever, with no range at the ends."""
    lanes = spans.select("lane").unique()
    ends = segments.group_by("lane").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    known = lanes.join(ends, on="lane", how="left").with_columns(top=pl.lit(None, pl.Int64))
    low, high = pl.lit(_LOW, pl.Int64), pl.lit(_HIGH, pl.Int64)
    before = known.select(
        "lane", low.alias("start_ns"), pl.col("start_ns").fill_null(high).alias("end_ns"), "top"
    )
    after = known.drop_nulls("end_ns").select(
        "lane", pl.col("end_ns").alias("start_ns"), high.alias("end_ns"), "top"
    )
    return pl.concat([segments, before, after])


_LOW, _HIGH = -(2**62), 2**62


_FIGURES = {
    "gaps": pl.col(_SPLIT) > 0,
    "idle_ns": pl.col(_SPLIT),
    "window_ns": pl.when("within").then(pl.col(_SPLIT)).otherwise(0),
}


def _summed(parts: pl.DataFrame, gaps: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return by the ``number`` of a range, for each cause, what ``_FIGURES`` count."""
    rows = parts.lazy().with_columns(
        ranges.get_column("number").gather(parts.get_column("order")),
        gaps.get_column("within").gather(parts.get_column("gap")),
    )
    sums = (each.sum().cast(pl.Int64).name.prefix(f"{name}:") for name, each in _FIGURES.items())
    return rows.group_by("number").agg(sums).collect()


def _ranked(sums: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the idle time by range and cause, the most first."""
    summed = sums.group_by("number").agg(pl.all().sum())
    by_cause = pl.concat(
        summed.select(
            "number", pl.lit(cause, pl.Enum(CAUSES)).alias("cause"),
            *(pl.col(f"{name}:{cause}_ns").alias(name) for name in _FIGURES),
        )
        for cause in CAUSES
    )  # fmt: skip
    named = by_cause.filter(pl.col("idle_ns") > 0).join(
        ranges.unique("number", keep="any"), on="number", how="left"
    )
    return named.select("domain", "range", "cause", *_FIGURES).sort(
        "idle_ns", "range", "cause", descending=[True, False, False], nulls_last=True
    )
