"""A smaller copy of an Nsight Systems export, table by table. Above files and sqlite_files.

The export itself is only read. The copy is a new database: what is left out of it was never in
it, where a deletion would leave it in free pages. It takes the place of the output as a whole, or
not at all.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.copies.files import AnyPath, replacing
from launchkit.profiling.timeline.nsys.sqlite_files import (
    lenient_text,
    pending_log,
    plain_name,
    quoted,
    uri,
)
from launchkit.profiling.timeline.refusing import head_of, is_sqlite

_TYPES = ("INTEGER", "REAL", "TEXT", "BLOB")
_EXPORT_ADVICE = "Export the capture again: nsys export --type sqlite CAPTURE.nsys-rep."


@dataclass(frozen=True)
class Table:
    """A table of a capture: its columns by name, with the type that each is declared with."""

    name: str
    columns: Mapping[str, str]

    @property
    def base(self) -> str:
        """The name without the ``_V2`` that some exports append."""
        return plain_name(self.name)[0]


class Rewriting:
    """A copy that is being made: ``capture`` is attached read-only, ``main`` is the copy."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.connection.text_factory = lenient_text
        self.tables = tuple(self._tables())

    def _tables(self) -> Iterator[Table]:
        names = self.connection.execute(
            "SELECT name FROM capture.sqlite_master WHERE type = 'table' AND rootpage > 0 "
            "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
        ).fetchall()
        for (name,) in names:
            rows = self.connection.execute(f"PRAGMA capture.table_info({quoted(name)})")
            yield Table(name, {row[1]: str(row[2]).upper() for row in rows})

    def named(self, base: str) -> Iterator[Table]:
        """Yield the tables of this name, with a version behind it or without."""
        yield from (table for table in self.tables if table.base == base)

    def rows(self, table: Table) -> int:
        """Return how many rows a table of the capture has."""
        return self.count(f"SELECT count(*) FROM capture.{quoted(table.name)}")

    def count(self, query: str, values: Mapping[str, object] | None = None) -> int:
        """Return the one number that a query gives, 0 for NULL and for what is no whole number."""
        found = self.connection.execute(query, values or {}).fetchone()[0]
        return found if isinstance(found, int) else 0

    def create(self, table: Table) -> None:
        """Create a table in the copy with the columns that it has in the capture, and no more."""
        columns = ", ".join(
            f"{quoted(name)} {declared if declared in _TYPES else ''}"
            for name, declared in table.columns.items()
        )
        self.connection.execute(f"CREATE TABLE main.{quoted(table.name)} ({columns})")

    def insert(
        self,
        table: Table,
        expressions: Mapping[str, str],
        where: str = "1",
        values: Mapping[str, object] | None = None,
    ) -> int:
        """Copy the rows that fit, each column as it is or by its expression; return their number.

        The capture's row is called ``row`` in the expressions and the condition.
        """
        self.create(table)
        wanted = ", ".join(expressions.get(name, f"row.{quoted(name)}") for name in table.columns)
        done = self.connection.execute(
            f"INSERT INTO main.{quoted(table.name)} SELECT {wanted} "
            f"FROM capture.{quoted(table.name)} AS row WHERE {where} ORDER BY row.rowid",
            values or {},
        )
        return done.rowcount


@contextmanager
def rewriting(path: AnyPath, output: AnyPath) -> Iterator[Rewriting]:
    """Open an export and a copy that takes the place of ``output`` when the block ends well.

    Raises TimelineError for what is no SQLite database or a damaged one, UsageError where the
    output is the capture itself, OSError where the system refuses.
    """
    with replacing(path, output) as part:
        # Made by us first: SQLite's own message for a directory that takes no file names nothing.
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        with reading(path, uri(part, "mode=rw")) as copy:
            yield copy
            copy.connection.commit()


@contextmanager
def reading(path: AnyPath, main: str = ":memory:") -> Iterator[Rewriting]:
    """Open an export to read from, without a copy; raises as ``rewriting`` does."""
    source = Path(path)
    _check_source(source)
    try:
        connection = _connected(source, main)
        try:
            yield Rewriting(str(path), connection)
        finally:
            connection.close()
    # SQLite's message may quote a damaged schema, which Python cannot decode.
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = "damaged text" if isinstance(error, UnicodeDecodeError) else error
        raise TimelineError(
            str(source), f"it cannot be read as an export ({reason})", _EXPORT_ADVICE
        ) from error


def _connected(source: Path, main: str) -> sqlite3.Connection:
    connection = sqlite3.connect(main, uri=True)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("ATTACH ? AS capture", (uri(source, "mode=ro&immutable=1"),))
    except BaseException:
        connection.close()
        raise
    return connection


def _check_source(source: Path) -> None:
    if not source.is_file():
        source.stat()
        raise TimelineError(str(source), "it is no regular file", _EXPORT_ADVICE)
    if not is_sqlite(head_of(source)):
        raise TimelineError(str(source), "it is no SQLite database", _EXPORT_ADVICE)
    log = pending_log(source)
    if log is not None:
        raise TimelineError(
            str(source),
            f"{log.name} holds changes that are not in it yet",
            "Close the program that has it open, or export the capture again.",
        )
