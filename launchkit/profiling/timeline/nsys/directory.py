"""Reads the tables of a parquet or arrow export: a directory with a file a table. Above the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import polars as pl

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.progress import Progress

DirectoryFormat = Literal["nsys-parquet", "nsys-arrow"]

_SUFFIXES: Mapping[str, DirectoryFormat] = {
    ".parquet": "nsys-parquet",
    ".arrow": "nsys-arrow",
    ".feather": "nsys-arrow",
    ".ipc": "nsys-arrow",
}
_ROWS_A_PIECE = 500_000


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
                "Give the capture's file, or the directory that nsys export -t parquetdir or launchkit "
                "profile made.",
            )
        suffixes = {file.suffix.lower() for file in self._files.values()}
        self.format: DirectoryFormat = _SUFFIXES[max(suffixes)]
        self.names = list(self._files)

    def columns(self, table: str) -> frozenset[str]:
        """Return the columns of ``table``."""
        return frozenset(self._tried(table, lambda lazy: lazy.collect_schema()))

    def pieces(
        self, table: str, columns: Mapping[str, Any], progress: Progress
    ) -> Iterator[pl.DataFrame]:
        """Yield ``columns`` of ``table`` in the order of the file."""
        schema: pl.Schema = self._tried(table, lambda lazy: lazy.collect_schema())
        if not schema.keys() & columns.keys():
            return
        made = [_typed(schema, name, dtype) for name, dtype in columns.items()]
        rows = self._tried(table, lambda lazy: lazy.select(pl.len()).collect().item())
        for start in range(0, rows, _ROWS_A_PIECE):
            wanted = partial(_piece, start=start, columns=made)
            yield self._tried(table, wanted)
            progress(table, min(start + _ROWS_A_PIECE, rows), rows)

    def close(self) -> None:
        """Nothing is kept open."""

    def _tried(self, table: str, ask: Callable[[pl.LazyFrame], Any]) -> Any:
        """Return what ``ask`` makes of a table, or raise TimelineError for a file that is damaged."""
        try:
            return ask(_scanned(self._files[table]))
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


def _piece(lazy: pl.LazyFrame, start: int, columns: list[pl.Expr]) -> pl.DataFrame:
    return lazy.slice(start, _ROWS_A_PIECE).select(columns).collect()


def _scanned(path: Path) -> pl.LazyFrame:
    if path.suffix.lower() == ".parquet":
        return pl.scan_parquet(path, glob=False)
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if not is_file:
            return pl.read_ipc_stream(file).lazy()
        # scan_ipc takes these in a path as a pattern, and its switch for that is new.
        if set("*?[") & set(str(path)):
            return pl.read_ipc(file).lazy()
    return pl.scan_ipc(path)


def _files(path: Path) -> dict[str, Path]:
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise TimelineError(
            str(path), f"it cannot be listed ({error.strerror})", "Check its permissions."
        ) from None
    return {entry.stem: entry for entry in entries if entry.suffix.lower() in _SUFFIXES}


def _typed(schema: pl.Schema, name: str, dtype: Any) -> pl.Expr:
    if name not in schema or (dtype == pl.String and schema[name] == pl.Binary):
        return pl.lit(None, dtype=dtype).alias(name)
    return pl.col(name).cast(dtype, strict=False)
