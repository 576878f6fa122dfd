"""Reads the tables of a parquet or arrow export: a directory of one file a table. Above the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import polars as pl

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.nsys_tables import Progress

DirectoryFormat = Literal["nsys-parquet", "nsys-arrow"]

_SUFFIXES: Mapping[str, DirectoryFormat] = {
    ".parquet": "nsys-parquet",
    ".arrow": "nsys-arrow",
    ".feather": "nsys-arrow",
    ".ipc": "nsys-arrow",
}
_FAILURES = (OSError, ValueError, TypeError, pl.exceptions.PolarsError)


class DirectoryTables:
    """The tables of an export with one file a table, as ``nsys export -t parquetdir|arrowdir`` makes it.

    ``format`` says which. Raises TimelineError for a directory without such files, and for a file
    that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = _files(path)
        if not self._files:
            raise TimelineError(
                str(path),
                "it is a directory without .parquet or .arrow tables",
                "Give the report's file, or the directory that nsys export -t parquetdir made.",
            )
        suffixes = {file.suffix.lower() for file in self._files.values()}
        self.format: DirectoryFormat = _SUFFIXES[max(suffixes)]
        self.names = list(self._files)

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of ``table``."""
        return frozenset(self._frame(table, None).columns)

    def read(self, table: str, columns: Mapping[str, Any], progress: Progress) -> pl.DataFrame:
        """Return ``columns`` of ``table`` in the order of the file."""
        frame = self._frame(table, [name for name in columns if name in self.columns(table)])
        made = [_typed(frame, name, dtype) for name, dtype in columns.items()]
        try:
            frame = frame.select(made)
        except _FAILURES as error:
            raise self._unreadable(table, error) from None
        progress(table, frame.height, frame.height)
        return frame

    def close(self) -> None:
        """Nothing is kept open."""

    def _frame(self, table: str, columns: list[str] | None) -> pl.DataFrame:
        path = self._files[table]
        try:
            if path.suffix.lower() == ".parquet":
                lazy = pl.scan_parquet(path, glob=False)
                return lazy.head(0).collect() if columns is None else lazy.select(columns).collect()
            return _arrow(path) if columns is None else _arrow(path).select(columns)
        except BaseException as error:
            # A damaged file may make polars panic, which is no Exception.
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise self._unreadable(table, error) from None

    def _unreadable(self, table: str, error: BaseException) -> TimelineError:
        return TimelineError(
            str(self._files[table]),
            f"it cannot be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})",
            "Export it again with: nsys export -t parquetdir REPORT.nsys-rep",
        )


def _arrow(path: Path) -> pl.DataFrame:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        return pl.read_ipc(file) if is_file else pl.read_ipc_stream(file)


def _files(path: Path) -> dict[str, Path]:
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise TimelineError(
            str(path), f"it cannot be listed ({error.strerror})", "Check its permissions."
        ) from None
    return {entry.stem: entry for entry in entries if entry.suffix.lower() in _SUFFIXES}


def _typed(frame: pl.DataFrame, name: str, dtype: Any) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(None, dtype=dtype).alias(name)
    given = frame.schema[name]
    if dtype == pl.String and given == pl.Binary:
        return pl.lit(None, dtype=dtype).alias(name)
    return pl.col(name).cast(dtype, strict=False)
