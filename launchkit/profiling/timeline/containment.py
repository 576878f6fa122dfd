"""What lies in what: calls in all ranges around them, spans on lanes. Above the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import polars as pl

_THREAD = ["process", "thread"]


def lanes_of(spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the lane of each span (start, end), from 0: on a lane, spans nest or are apart.

    ``spans`` stand in the order of their starts, the longer first where they start together.
    Each takes the first lane that it fits into, so what nests already keeps to lane 0.
    """
    open_until: list[list[int]] = []
    for start, end in spans:
        yield _lane(open_until, start, end)


def _lane(open_until: list[list[int]], start: int, end: int) -> int:
    for lane, ends in enumerate(open_until):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return lane
    open_until.append([end])
    return len(open_until) - 1


def contained(ranges: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return ``range_id`` and ``call_id`` of every call that a range of its thread holds whole.

    Takes push/pop ranges and calls as a timeline has them, sorted. Ranges that cross count as they
    stand: a call may have any number of parents. Ranges are put on levels that hold no two of one
    thread at one time, and each level is joined by time: O(n log n) for each depth of nesting.
    """
    placed = ranges.select("range_id", *_THREAD, "start_ns", "end_ns")
    placed = placed.with_columns(level=pl.Series(_levels(placed), dtype=pl.UInt32))
    points = calls.select("call_id", *_THREAD, "start_ns", called_until="end_ns").sort("start_ns")
    found = [pl.DataFrame(schema={"range_id": pl.UInt32, "call_id": pl.UInt32})]
    for level in placed.partition_by("level"):
        joined = points.join_asof(
            level.sort("start_ns"),
            on="start_ns",
            by=_THREAD,
            strategy="backward",
            check_sortedness=False,
        )
        inside = joined.filter(pl.col("called_until") <= pl.col("end_ns"))
        found.append(inside.select("range_id", "call_id"))
    return pl.concat(found)


def crossing(ranges: pl.DataFrame) -> int:
    """Return how many push/pop ranges begin in another of their thread and domain and end after it.

    Takes ranges as a timeline has them, sorted.
    """
    last, open_until, found = None, list[int](), 0
    rows = ranges.filter(pl.col("kind") == "push_pop").sort(*_THREAD, "domain", maintain_order=True)
    for process, thread, domain, start_ns, end_ns in rows.select(
        *_THREAD, "domain", "start_ns", "end_ns"
    ).iter_rows():
        if (process, thread, domain) != last:
            last, open_until = (process, thread, domain), []
        while open_until and open_until[-1] <= start_ns:
            open_until.pop()
        if open_until and open_until[-1] < end_ns:
            found += 1
        open_until.append(end_ns)
    return found


def _levels(ranges: pl.DataFrame) -> Iterator[int]:
    """Yield for each range, sorted by thread and start, the level above all that are open then."""
    open_until: list[int] = []
    last = None
    for process, thread, start_ns, end_ns in ranges.drop("range_id").iter_rows():
        if (process, thread) != last:
            last, open_until = (process, thread), []
        while open_until and open_until[-1] <= start_ns:
            open_until.pop()
        yield len(open_until)
        open_until.append(end_ns)
