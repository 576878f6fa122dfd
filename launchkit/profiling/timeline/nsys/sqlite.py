"""Reads the tables of an SQLite export in pieces, without touching it. Above the model."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.nsys.sqlite_files import lenient_text, pending_log, quoted, uri
from launchkit.profiling.timeline.progress import Progress

_ROWS_A_PIECE = 100_000
_FAILURES = (sqlite3.Error, UnicodeError, OverflowError, MemoryError)


class SqliteTables:
    """The tables of an SQLite file. Raises TimelineError for a file that SQLite cannot read.

    The file is opened as one that nobody changes, so that SQLite makes no side files and takes no
    lock. A file with a write-ahead log beside it is copied first, since its newest rows are there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._connection = self._open()
        except (*_FAILURES, OSError) as error:
            self._delete_copy()
            raise self._damaged(error) from None
        try:
            self.names = self._names()
        except _FAILURES as error:
            self.close()
            raise self._damaged(error) from None

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of ``table``."""
        return frozenset(row[1] for row in self._all(f"PRAGMA table_info({quoted(table)})"))

    def pieces(
        self, table: str, columns: Mapping[str, Any], progress: Progress
    ) -> Iterator[pl.DataFrame]:
        """Yield ``columns`` of ``table`` in the order of the file."""
        there = self.columns(table)
        known = {name: dtype for name, dtype in columns.items() if name in there}
        missing = [
            pl.lit(None, dtype).alias(name) for name, dtype in columns.items() if name not in there
        ]
        if known:
            for piece in self._read(table, known, progress):
                yield piece.with_columns(missing).select(*columns)

    def close(self) -> None:
        """Close the file, and delete the copy that was read instead of it."""
        self._connection.close()
        self._delete_copy()

    def _open(self) -> sqlite3.Connection:
        log = pending_log(self._path)
        if log is None:
            return _connect(self._path, "mode=ro&immutable=1")
        self._copy = tempfile.TemporaryDirectory(prefix="launchkit-")
        copied = Path(self._copy.name, "export.sqlite")
        shutil.copyfile(self._path, copied)
        shutil.copyfile(log, f"{copied}-wal")
        return _connect(copied, "mode=rw")

    def _delete_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def _names(self) -> list[str]:
        rows = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [name for (name,) in rows if isinstance(name, str)]

    def _read(
        self, table: str, columns: Mapping[str, Any], progress: Progress
    ) -> Iterator[pl.DataFrame]:
        rows, done = self._height(table), 0
        listed = ", ".join(quoted(name) for name in columns)
        try:
            cursor = self._connection.execute(f"SELECT {listed} FROM {quoted(table)}")
            while piece := cursor.fetchmany(_ROWS_A_PIECE):
                done += len(piece)
                values = zip(columns.items(), zip(*piece, strict=True), strict=True)
                yield pl.DataFrame([_series(name, dtype, each) for (name, dtype), each in values])
                progress(table, done, max(rows, done))
        except _FAILURES as error:
            raise self._damaged(error) from None

    def _height(self, table: str) -> int:
        # The last row's number is found at once, where a count reads all rows.
        try:
            (last,) = self._connection.execute(f"SELECT max(rowid) FROM {quoted(table)}").fetchone()
        except _FAILURES:
            return 0
        return last if isinstance(last, int) else 0

    def _all(self, query: str) -> list[Any]:
        try:
            return self._connection.execute(query).fetchall()
        except _FAILURES as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> TimelineError:
        return TimelineError(
            str(self._path),
            f"SQLite cannot read it ({error})",
            "It may be cut off or still being written: export it again with "
            "nsys export -t sqlite REPORT.nsys-rep",
        )


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri(path, how), uri=True, isolation_level=None)
    connection.text_factory = lenient_text
    return connection


def _series(name: str, dtype: Any, values: tuple[Any, ...]) -> pl.Series:
    try:
        return pl.Series(name, values, dtype=dtype)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        wanted = {pl.Int64: int, pl.Float64: (int, float), pl.String: str}[dtype]
        fitting = [value if isinstance(value, wanted) else None for value in values]  # type: ignore[arg-type]
        return pl.Series(name, fitting, dtype=dtype)
