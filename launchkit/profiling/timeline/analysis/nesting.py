"""Which range is open, and which is the innermost, at each time of a thread. Above intervals.

NVTX keeps a stack for each thread and domain: ranges of two domains may cross, and a damaged or
merged capture may hold ranges of one domain that cross. The innermost range is therefore the one
that was opened last and is still open, whatever its domain, so that the exclusive times of a
thread's ranges never count a nanosecond twice. Ranges that nest are swept in columns; only
those that cross within one domain are sorted into stacks one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import polars as pl

from launchkit.profiling.timeline.analysis.intervals import looked_up, values_at
from launchkit.profiling.timeline.containment import lanes_of

_NONE = -1


@dataclass(frozen=True)
class Nesting:
    """Ranges of threads with their nesting.

    ``ranges``: the rows given, sorted by lane and start, the longer of equal starts first, and
    ``order`` (their number in that order), ``parent`` (the order of the range around it, or null)
    and ``depth`` (0 outermost). ``segments``: ``lane``, ``start_ns``, ``end_ns`` and ``top``, the
    order of the innermost range between two times of a lane, null where none is open; they leave
    no hole in a lane. ``crossing``: how many ranges cross another of their lane and domain.
    """

    ranges: pl.DataFrame
    segments: pl.DataFrame
    crossing: int


def nest(ranges: pl.DataFrame) -> Nesting:
    """Sweep push/pop ranges: columns ``lane`` (a thread), ``domain``, ``start_ns``, ``end_ns``."""
    ordered = ranges.sort(
        "lane", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True
    ).with_columns(order=pl.int_range(pl.len(), dtype=pl.Int64))
    events, crossing = _stacks(ordered)
    events = _with_tops(events)
    opened = events.filter("opens").select("order", "parent", "depth")
    placed = looked_up(ordered, opened, "order")
    segments = _segments(events)
    return Nesting(_place_points(placed, segments), segments, crossing)


def innermost_at(points: pl.DataFrame, segments: pl.DataFrame, at: str) -> pl.Series:
    """Return the ``order`` of the innermost range of each point's lane at the time ``at``, or null.

    ``segments`` are those of ``Nesting``. A range is open from its start up to before its end.
    """
    columns = ["top", "end_ns"]
    found = values_at(points, segments, "lane", at, columns).with_columns(point_ns=points[at])
    open_then = pl.when(pl.col("point_ns") < pl.col("end_ns")).then("top")
    return found.select(open_then.alias("top")).to_series()


def _events(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return an opening and a closing for each range that lasts, in the order they happen."""
    lasting = ranges.lazy().filter(pl.col("end_ns") > pl.col("start_ns"))
    common = [pl.col("lane"), pl.col("stack"), pl.col("order")]
    opens = lasting.select(*common, at_ns="start_ns", opens=pl.lit(True), rank=pl.col("order"))
    closes = lasting.select(*common, at_ns="end_ns", opens=pl.lit(False), rank=-pl.col("order"))
    # At one time: what ends, inner ones first, then what begins, outer ones first.
    return pl.concat([opens, closes]).sort("lane", "at_ns", "opens", "rank").collect()


def _depths(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``level``: how deep in its stack the range of each event is, 1 the outermost."""
    step = pl.when("opens").then(1).otherwise(-1).cum_sum().over("stack")
    return events.with_columns(level=step + (~pl.col("opens")).cast(pl.Int32))


def _stacks(ordered: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return events with ``stack``, within which ranges nest, and how many ranges cross.

    A stack is a lane; where ranges cross there, a domain's part of it, and where they still do, a
    part of that.
    """
    whole = ordered.with_columns(stack=pl.col("lane").cast(pl.Int64))
    events = _depths(_events(whole))
    crossed = _crossed(events)
    if crossed.is_empty():
        return events, 0
    by_domain = pl.struct("lane", "domain").rank("dense").cast(pl.Int64) + whole.height
    domains = whole.with_columns(
        stack=pl.when(pl.col("stack").is_in(crossed.implode())).then(by_domain).otherwise("stack")
    )
    events = _depths(_events(domains))
    crossed = _crossed(events)
    if crossed.is_empty():
        return events, 0
    parts, crossing = _split(domains, crossed)
    return _depths(_events(parts)), crossing


def _crossed(events: pl.DataFrame) -> pl.Series:
    """Return the stacks in which some range does not end before the one around it."""
    by_level = (
        events.lazy()
        .select("stack", "level", "opens", "order")
        .sort("stack", "level", maintain_order=True)
    )
    # Where all nest, the n-th opening at a level is of the range of the n-th closing there.
    opened = by_level.filter("opens").select("stack", "level", "order")
    closed = by_level.filter(~pl.col("opens")).select(
        pl.col("stack", "level", "order").name.suffix("_closed")
    )
    pairs = pl.concat([opened, closed], how="horizontal")
    fits = (
        (pl.col("order") == pl.col("order_closed"))
        & (pl.col("stack") == pl.col("stack_closed"))
        & (pl.col("level") == pl.col("level_closed"))
    )
    wrong = pairs.filter(~fits.fill_null(False)).select(
        pl.concat([pl.col("stack"), pl.col("stack_closed")]).unique()
    )
    return wrong.collect().to_series()


def _split(ranges: pl.DataFrame, crossed: pl.Series) -> tuple[pl.DataFrame, int]:
    damaged = ranges.filter(pl.col("stack").is_in(crossed.implode())).sort("stack", "order")
    rows = damaged.select("stack", "start_ns", "end_ns").iter_rows()
    parts = pl.Series("part", list(_parts(rows)), dtype=pl.Int64)
    found = damaged.select("order", "stack").with_columns(parts)
    renumbered = (
        pl.struct("stack", "part").rank("dense").cast(pl.Int64)
        + int(ranges.get_column("stack").max() or 0)  # type: ignore[arg-type]
    )
    found = found.select("order", "part", renewed=renumbered)
    joined = ranges.join(found, on="order", how="left", maintain_order="left")
    stack = pl.coalesce("renewed", "stack")
    return joined.with_columns(stack=stack).drop("renewed", "part"), int((parts > 0).sum())


def _parts(rows: Iterable[tuple[int, int, int]]) -> Iterator[int]:
    """Yield for each range the number of the first part of its stack in which it nests."""
    for _, ranges in groupby(rows, key=itemgetter(0)):
        yield from lanes_of((start_ns, end_ns) for _, start_ns, end_ns in ranges)


def _with_tops(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``top``, the innermost range after each event, and the ``parent`` of what opens."""
    numbered = events.with_row_index("position").with_columns(own=_own_top(events))
    place = pl.col("stack").rank("dense").over("lane")
    numbered = numbered.with_columns(place=place)
    top = pl.lit(_NONE, dtype=pl.Int64)
    numbered = numbered.with_columns(top=top)
    for number in range(1, int(numbered.get_column("place").max() or 0) + 1):  # type: ignore[arg-type]
        of_stack = pl.when(pl.col("place") == number).then("own").forward_fill().over("lane")
        numbered = numbered.with_columns(top=pl.max_horizontal("top", of_stack.fill_null(_NONE)))
    around = pl.col("top").shift(1).over("lane").fill_null(_NONE)
    opened = pl.when("opens").then(1).otherwise(-1).cum_sum().over("lane")
    return numbered.with_columns(
        parent=pl.when(around > _NONE).then(around), depth=opened.cast(pl.Int32) - 1
    )


def _own_top(events: pl.DataFrame) -> pl.Series:
    """Return the innermost range of an event's own stack after it."""
    # After a closing it is the range last opened one level further out.
    wanted = pl.col("level") - (~pl.col("opens")).cast(pl.Int32)
    levels = int(events.get_column("level").max() or 0) + 1  # type: ignore[arg-type]
    placed = events.select(
        "opens", "order", at=pl.int_range(pl.len()), level=pl.col("stack") * levels + wanted
    )
    opened = (
        placed.filter("opens").select("order", "level", start_ns="at").sort("level", "start_ns")
    )
    # No range is open at level 0, which no opening has: nothing is found there.
    found = values_at(placed, opened, "level", "at", ["order"])
    return found.get_column("order").fill_null(_NONE)


def _segments(events: pl.DataFrame) -> pl.DataFrame:
    later = pl.col("at_ns").shift(-1).over("lane")
    spans = events.lazy().select("lane", pl.col("at_ns").alias("start_ns"), "top", end_ns=later)
    top = pl.when(pl.col("top") > _NONE).then("top").alias("top")
    lasting = spans.filter(pl.col("end_ns") > pl.col("start_ns"))
    return lasting.select("lane", "start_ns", "end_ns", top).collect()


def _place_points(ranges: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Give ranges of no length the innermost range at their time as parent."""
    points = ranges.filter(pl.col("depth").is_null())
    if points.is_empty():
        return ranges
    tops = innermost_at(points, segments, "start_ns")
    depths = ranges.select(top="order", around="depth")
    found = points.select("order").with_columns(top=tops).join(
        depths, on="top", how="left", maintain_order="left"
    ).select("order", "top", inner=(pl.col("around") + 1).fill_null(0))  # fmt: skip
    joined = ranges.join(found, on="order", how="left", maintain_order="left")
    return joined.with_columns(
        parent=pl.coalesce("parent", "top"), depth=pl.coalesce("depth", "inner")
    ).drop("top", "inner")
