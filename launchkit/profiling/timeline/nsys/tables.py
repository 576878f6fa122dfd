"""The tables of an Nsight Systems export, from SQLite or a directory. Above the model.

Nothing is ever written beside or into the user's file. A table with no rows may be absent or
empty, and a column that a schema does not have yet is read as null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import polars as pl

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.nsys.sqlite_files import plain_name
from launchkit.profiling.timeline.progress import Progress, silent

_FEW_PLACES = 100_000

CONTRACT: Mapping[str, frozenset[str]] = {
    "NVTX_EVENTS": frozenset({"start", "eventType"}),
    "CUPTI_ACTIVITY_KIND_RUNTIME": frozenset({"start", "end", "nameId"}),
    "CUPTI_ACTIVITY_KIND_KERNEL": frozenset({"start", "end"}),
    "CUPTI_ACTIVITY_KIND_MEMCPY": frozenset({"start", "end"}),
    "CUPTI_ACTIVITY_KIND_MEMSET": frozenset({"start", "end"}),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": frozenset({"start", "end"}),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": frozenset({"start", "end"}),
    "PROFILER_OVERHEAD": frozenset({"start", "end"}),
}
"""What of each table of events must be there; a table that lacks it is left out with a warning."""

_EXPORT_ONLY = {"META_DATA_EXPORT", "EXPORT_META_DATA", "ANALYSIS_DETAILS", "OSRT_API", *CONTRACT}


class Tables(Protocol):
    """Where the tables of an export are read from."""

    @property
    def names(self) -> Iterable[str]:
        """The tables that are there, as they are called there."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of a table that is there."""

    def pieces(
        self, table: str, columns: Mapping[str, Any], progress: Progress
    ) -> Iterator[pl.DataFrame]:
        """Yield ``columns`` of a table that is there piece by piece, each column in its type.

        A column that is not there, and a value of another type, is null.
        """

    def close(self) -> None:
        """Let go of the file."""


class Export:
    """An export that is being read: its tables under their plain names, counts and warnings."""

    def __init__(self, path: str, tables: Tables, progress: Progress | None = None) -> None:
        self.path = path
        self.counts = RowCounts()
        self.warnings: list[str] = []
        self._tables = tables
        self._progress = progress or silent
        self._names = plain_names(tables.names)
        if not _EXPORT_ONLY & set(self._names):
            raise _not_an_export(path, sorted(tables.names))
        self._strings = self._read_strings()
        self._dense = _dense(self._strings)

    def has(self, table: str) -> bool:
        """Return whether ``table`` is there with the columns of its contract."""
        if table not in self._names:
            return False
        lacking = sorted(CONTRACT.get(table, frozenset()) - self.columns(table))
        if lacking:
            self.warn(f"{table} has no column {', '.join(lacking)}: it was left out")
        return not lacking

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of ``table``: none where it is absent."""
        name = self._names.get(table)
        return frozenset() if name is None else self._tables.columns(name)

    def read(self, table: str, columns: Mapping[str, Any]) -> pl.DataFrame:
        """Return ``columns`` of a small ``table``, empty where it is absent."""
        return pl.concat(self.pieces(table, columns))

    def pieces(self, table: str, columns: Mapping[str, Any]) -> Iterator[pl.DataFrame]:
        """Yield ``columns`` of ``table`` in pieces, the first one empty; values of a wrong type are null.

        Pieces keep memory bounded: each is brought to its last form before the next one is read.
        """
        yield pl.DataFrame(schema=dict(columns))
        if self.has(table):
            yield from self._tables.pieces(self._names[table], columns, self._progress)

    def named(self, frame: pl.DataFrame, column: str, name: str) -> pl.DataFrame:
        """Return ``frame`` with the text of the ids in ``column`` as ``name``, null where none is."""
        if self._dense is not None:
            ids = frame[column]
            known = ids.is_between(0, len(self._dense) - 1).fill_null(False)
            place = frame.select(pl.when(known).then(column)).to_series()
            return frame.with_columns(self._dense.gather(place).alias(name))
        texts = self._strings.rename({"id": column, "value": name})
        return frame.join(texts, on=column, how="left", maintain_order="left")

    def warn(self, warning: str) -> None:
        """Keep a warning; one that is there already is not repeated."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _read_strings(self) -> pl.DataFrame:
        frame = self.read("StringIds", {"id": pl.Int64, "value": pl.String})
        return frame.drop_nulls().unique("id", keep="first", maintain_order=True)


def _dense(strings: pl.DataFrame) -> pl.Series | None:
    """Return the texts with their ids as places, where that is not much more than there are texts.

    A place is found at once, where a join reads all texts for every piece of a table.
    """
    ids = strings["id"]
    lowest, highest = ids.min(), ids.max()
    if not isinstance(lowest, int) or not isinstance(highest, int):
        return None
    if lowest < 0 or highest > 4 * len(ids) + _FEW_PLACES:
        return None
    places = pl.DataFrame({"id": pl.int_range(0, highest + 1, eager=True)})
    return places.join(strings, on="id", how="left", maintain_order="left")["value"]


def plain_names(names: Iterable[str]) -> dict[str, str]:
    """Return what each table is called there, by its name without a version: the latest wins."""
    found: dict[str, tuple[int, str]] = {}
    for name in names:
        plain, version = plain_name(name)
        found[plain] = max(found.get(plain, (0, "")), (version, name))
    return {plain: name for plain, (_, name) in found.items()}


def _not_an_export(path: str, names: list[str]) -> TimelineError:
    listed = ", ".join(names[:5]) or "none"
    return TimelineError(
        path,
        f"it is no Nsight Systems export (its tables: {listed})",
        "Make one with: nsys export -t sqlite REPORT.nsys-rep",
    )
