"""Rows gathered column by column, small until they become a frame. A leaf."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import polars as pl

_NULL = -(2**63)


class Columns:
    """The rows of one table while a file is read: ints (None is null) and texts.

    An int takes 8 bytes and a text 4, each different text being kept once.
    """

    def __init__(self, ints: Sequence[str], texts: Sequence[str]) -> None:
        self._ints: dict[str, array[int]] = {name: array("q") for name in ints}
        self._texts: dict[str, array[int]] = {name: array("I") for name in texts}
        self._numbers: dict[str | None, int] = {}
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, ints: Sequence[int | None], texts: Sequence[str | None]) -> None:
        """Add a row: its values in the order in which the columns were named."""
        for column, number in zip(self._ints.values(), ints, strict=True):
            column.append(_NULL if number is None else number)
        numbers = self._numbers
        for column, text in zip(self._texts.values(), texts, strict=True):
            column.append(numbers.setdefault(text, len(numbers)))
        self._rows += 1

    def frame(self) -> pl.DataFrame:
        """Return the rows as a frame: Int64 and String."""
        made: dict[str, pl.Series] = {}
        for name, column in self._ints.items():
            series = pl.Series(name, column, dtype=pl.Int64)
            made[name] = series.set(series == _NULL, None)
        known = pl.Series(list(self._numbers), dtype=pl.String)
        for name, column in self._texts.items():
            made[name] = known.gather(pl.Series(column, dtype=pl.UInt32)).alias(name)
        return pl.DataFrame(made)
