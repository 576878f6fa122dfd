"""Rows that cannot be events of a timeline, counted by reason and left out. Above the model."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from launchkit.profiling.timeline.counts import RowCounts

LIMIT_NS = 2**62
"""A time further from 0 than this is damage: it is the year 2116 in ns since 1970."""

_START, _END = pl.col("start_ns"), pl.col("end_ns")
_REASONS = (
    ("without a start", _START.is_null()),
    ("without an end", _END.is_null()),
    (
        "with a time out of bounds",
        ~_START.is_between(-LIMIT_NS, LIMIT_NS) | ~_END.is_between(-LIMIT_NS, LIMIT_NS),
    ),
    ("ending before the start", _END < _START),
)


def intervals(frame: pl.DataFrame, table: str, counts: RowCounts) -> pl.DataFrame:
    """Return the rows of ``frame`` that have a sound ``start_ns`` and ``end_ns``; count the others.

    The rows read are counted as rows of ``table``; those left out as dropped, by reason.
    """
    sound = ~pl.any_horizontal(*(bad.fill_null(False) for _, bad in _REASONS))
    kept = frame.filter(sound)
    counts.add(table, read=frame.height, used=kept.height)
    if kept.height < frame.height:
        counts.add(table, dropped=_reasons(frame.filter(~sound)))
    return kept


def _reasons(bad: pl.DataFrame) -> dict[str, int]:
    found: dict[str, int] = {}
    for reason, is_bad in _REASONS:
        rest = bad.filter(~is_bad.fill_null(False))
        found[reason] = bad.height - rest.height
        bad = rest
    return found


def without_duplicates(
    frame: pl.DataFrame, keys: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ``frame``, sorted by ``keys``, without rows that equal another, and those rows.

    Only rows that share their ``keys`` with a neighbour are compared.
    """
    twin = pl.all_horizontal(*(pl.col(key).eq_missing(pl.col(key).shift(-1)) for key in keys))
    last = pl.int_range(pl.len()) == pl.len() - 1
    marks = frame.select(marks=twin & ~last).to_series()
    if not marks.any():
        return frame, frame.clear()
    numbered = frame.with_row_index("_row")
    shared = numbered.filter(marks | marks.shift(1, fill_value=False))
    doubled = shared.filter(~pl.struct(frame.columns).is_first_distinct())
    rest = numbered.join(doubled.select("_row"), on="_row", how="anti", maintain_order="left")
    return rest.drop("_row"), doubled.drop("_row")
