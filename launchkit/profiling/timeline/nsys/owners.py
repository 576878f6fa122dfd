"""Processes and threads from Nsight Systems' global ids. Above the model.

A global id holds hardware id (8 bits), virtual machine (8), pid (24) and thread id (24). All but
the last is the owner, which stands for the process until the pids of the whole export are known:
two machines in one export may use one pid.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from launchkit.profiling.timeline.model import UNKNOWN

_THREAD_BITS = 24
_MASK = 2**_THREAD_BITS - 1


def owner(column: str) -> pl.Expr:
    """Return the owner of the global id in ``column``; ``UNKNOWN`` where it is null or 0."""
    known = pl.col(column).fill_null(0) != 0
    return pl.when(known).then(pl.col(column).floordiv(2**_THREAD_BITS)).otherwise(UNKNOWN)


def thread(column: str) -> pl.Expr:
    """Return the native thread id of the global id in ``column``; ``UNKNOWN`` where it is null or 0."""
    known = pl.col(column).fill_null(0) != 0
    return pl.when(known).then(pl.col(column) & _MASK).otherwise(UNKNOWN)


class Pids:
    """The process number of each owner: its pid, or the owner itself where two have one pid."""

    def __init__(self, frames: Iterable[pl.DataFrame]) -> None:
        owners = {int(each) for frame in frames for each in frame["process"].unique().to_list()}
        seen: dict[int, list[int]] = {}
        for each in sorted(owners - {UNKNOWN}):
            seen.setdefault(each & _MASK, []).append(each)
        self._kept = [each for same in seen.values() for each in same[1:]]
        self.mixed = len({each >> _THREAD_BITS for each in owners - {UNKNOWN}}) > 1
        """Whether there are several machines, so that the order of owners is not that of pids."""
        self.shared = sorted(pid for pid, same in seen.items() if len(same) > 1)

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return ``frame`` with process numbers in ``process``, where the owners stood."""
        number = pl.col("process")
        kept = (number == UNKNOWN) | number.is_in(self._kept)
        return frame.with_columns(pl.when(kept).then(number).otherwise(number & _MASK))
