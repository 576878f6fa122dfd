"""Unions of intervals, how much of a time they cover, and extrema over windows. A leaf.

Everything here is a handful of sorts, running maxima and ordered joins over whole columns:
O(n log n), whatever the intervals look like. Times are int64 nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import polars as pl

from launchkit.profiling.timeline.figures import DURATION_NS

_ONE_KEY = pl.lit(0, pl.Int8).alias("all")


def looked_up(
    rows: pl.DataFrame, table: pl.DataFrame, on: str | Sequence[str], *, nulls_equal: bool = False
) -> pl.DataFrame:
    """Return ``rows`` with the columns of the row of ``table`` that has the same ``on``, or nulls.

    ``table`` has each ``on`` once. As a left join, but that the columns of ``rows`` are not copied.
    """
    keys = [on] if isinstance(on, str) else list(on)
    found = rows.select(keys).join(
        table, on=keys, how="left", maintain_order="left", nulls_equal=nulls_equal
    )
    return rows.hstack(found.drop(keys))


def unions(intervals: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return the union of the intervals of each ``key``, as islands that do not touch.

    Takes the columns ``key``, ``start_ns`` and ``end_ns``; intervals of no length count for
    nothing. Returns ``key``, ``start_ns``, ``end_ns`` and ``before_ns``, which is how much the
    islands of the key cover before this one, sorted by key and start.
    """
    ordered = intervals.lazy().select(key, "start_ns", "end_ns").drop_nulls()
    ordered = ordered.filter(pl.col("end_ns") > pl.col("start_ns")).sort(key, "start_ns")
    reached = pl.col("end_ns").cum_max().over(key)
    before = reached.shift(1).over(key)
    begins = before.is_null() | (pl.col("start_ns") > before)
    rows = ordered.with_columns(end_ns=reached, begins=begins).collect()
    # An island ends where the next one begins: at what was reached up to there.
    ends = rows.get_column("begins").shift(-1, fill_value=True)
    starts = rows.filter("begins").select(key, "start_ns")
    islands = starts.with_columns(rows.get_column("end_ns").filter(ends))
    length = DURATION_NS
    before = (length.cum_sum().over(key) - length).alias("before_ns")
    return islands.select(key, "start_ns", "end_ns", before)


def covered_ns(points: pl.DataFrame, islands: pl.DataFrame, key: str, at: str) -> pl.Series:
    """Return how much ``islands`` (see ``unions``) cover before the time ``at`` of each point.

    The difference at two times of one key is what is covered between them, to the nanosecond.
    """
    inside = pl.min_horizontal("point_ns", "end_ns") - pl.col("start_ns")
    needed = islands.select(key, "start_ns", "end_ns", "before_ns")
    found = _last_at(points, needed, key, at)
    return found.select((pl.col("before_ns") + inside).fill_null(0)).to_series()


def covered_between(
    spans: pl.DataFrame, islands: pl.DataFrame, key: str, start: str, end: str
) -> pl.Series:
    """Return how much of each span from ``start`` to ``end`` the islands of its key cover."""
    return covered_ns(spans, islands, key, end) - covered_ns(spans, islands, key, start)


def union(intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the union of all intervals, whatever their keys, for ``covered_by``."""
    return unions(intervals.with_columns(_ONE_KEY), "all")


def covered_by(spans: pl.DataFrame, islands: pl.DataFrame) -> pl.Series:
    """Return how much of each span from ``start_ns`` to ``end_ns`` a ``union`` covers."""
    keyed = spans.select("start_ns", "end_ns", _ONE_KEY)
    return covered_between(keyed, islands, "all", "start_ns", "end_ns")


def values_at(
    points: pl.DataFrame, steps: pl.DataFrame, key: str, at: str, columns: Sequence[str]
) -> pl.DataFrame:
    """Return ``columns`` of the last step of each point's key that starts at or before ``at``."""
    return _last_at(points, _needed(steps, key, columns), key, at).select(columns)


def values_before(
    points: pl.DataFrame, events: pl.DataFrame, key: str, at: str, columns: Sequence[str]
) -> pl.DataFrame:
    """Return ``columns`` of the last event of each point's key that starts before ``at``."""
    needed = _needed(events, key, columns)
    return _last_at(points, needed, key, at, exact=False).select(columns)


def _needed(rows: pl.DataFrame, key: str, columns: Sequence[str]) -> pl.DataFrame:
    return rows.select(list(dict.fromkeys((key, "start_ns", *columns))))


def _last_at(
    points: pl.DataFrame, rows: pl.DataFrame, key: str, at: str, *, exact: bool = True
) -> pl.DataFrame:
    asked = points.select(pl.col(key).cast(pl.Int64), point_ns=pl.col(at).cast(pl.Int64))
    spans = [each.select(pl.min(key, time).name.prefix("low_"), pl.max(key, time).name.prefix("high_"))
             .row(0) for each, time in ((asked, "point_ns"), (rows, "start_ns"))]  # fmt: skip
    if None in spans[0] or None in spans[1]:
        return asked.hstack(rows.rename({key: "found_key"}).clear(asked.height))
    least_key, least = (int(min(one[n], two[n])) for one, two in [spans] for n in (0, 1))
    most_key, most = (int(max(one[n], two[n])) for one, two in [spans] for n in (2, 3))
    width = most - least + 1
    if (most_key - least_key + 1) * width >= 2**62:
        return _joined(asked, rows, key, exact=exact)
    # One number for key and time: a binary search needs no sorting of the points.
    place = (pl.col(key).cast(pl.Int64) - least_key) * width - least
    ordered = rows.with_columns(place=place + pl.col("start_ns"))
    if not ordered.get_column("place").is_sorted():
        ordered = ordered.sort("place", maintain_order=True)
    wanted = asked.select(place + pl.col("point_ns")).to_series()
    side: Literal["left", "right"] = "right" if exact else "left"
    found = ordered.get_column("place").search_sorted(wanted, side).cast(pl.Int64) - 1
    picked = ordered.drop("place").rename({key: "found_key"})[found.clip(0)]
    here = (found >= 0) & (picked.get_column("found_key").cast(pl.Int64) == asked.get_column(key))
    values = [pl.when(here).then(pl.col(name)).alias(name) for name in picked.columns]
    return asked.hstack(picked.select(values))


def _joined(asked: pl.DataFrame, rows: pl.DataFrame, key: str, *, exact: bool) -> pl.DataFrame:
    """Do the same by a join: where times are too far apart for one number with the key."""
    left = asked.with_row_index("point").sort(key, "point_ns", nulls_last=True)
    found = left.join_asof(
        rows.with_columns(pl.col(key).cast(pl.Int64)).sort(key, "start_ns", maintain_order=True),
        left_on="point_ns",
        right_on="start_ns",
        by=key,
        strategy="backward",
        allow_exact_matches=exact,
        check_sortedness=False,
        coalesce=False,
    )
    return found.sort("point")


def window_extrema(
    values: pl.DataFrame, windows: pl.DataFrame, lowest: str, highest: str
) -> pl.DataFrame:
    """Return the least of ``lowest`` and the greatest of ``highest`` in each window of rows.

    ``windows`` has ``first`` and ``stop``, row numbers of ``values``; an empty window gives
    nulls. The table of a sparse table's next level is made from the one before and only that
    is kept (Bender and Farach-Colton, "The LCA Problem Revisited", 2000, section 3).
    """
    length = pl.col("stop") - pl.col("first")
    asked = windows.select("first", "stop").with_row_index("window")
    asked = asked.filter(length > 0).with_columns(size=length)
    table = values.select(low=pl.col(lowest), high=pl.col(highest))
    found, span = [_EXTREMA], 1
    longest = int(asked.get_column("size").max() or 0)  # type: ignore[arg-type]
    while span <= longest:
        due = asked.filter(pl.col("size").is_between(span, 2 * span - 1))
        found.append(_of_level(table, due, span))
        table = table.select(
            pl.min_horizontal(pl.col("low"), pl.col("low").shift(-span)),
            pl.max_horizontal(pl.col("high"), pl.col("high").shift(-span)),
        )
        span *= 2
    every = pl.DataFrame({"window": pl.int_range(0, windows.height, dtype=pl.UInt32, eager=True)})
    joined = every.join(pl.concat(found), on="window", how="left", maintain_order="left")
    return joined.select("low", "high")


_EXTREMA = pl.DataFrame(schema={"window": pl.UInt32, "low": pl.Int64, "high": pl.Int64})


def _of_level(table: pl.DataFrame, due: pl.DataFrame, span: int) -> pl.DataFrame:
    head = table[due.get_column("first")]
    tail = table[due.get_column("stop") - span]
    return due.select("window").with_columns(
        pl.DataFrame({"a": head["low"], "b": tail["low"]}).min_horizontal().alias("low"),
        pl.DataFrame({"a": head["high"], "b": tail["high"]}).max_horizontal().alias("high"),
    )
