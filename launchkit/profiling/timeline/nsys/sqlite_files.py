"""SQLite files that are only read: for reading and for copying an export. A leaf without polars."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

_VERSIONED = re.compile(r"(?P<name>\w+?)_V(?P<version>\d+)")


def uri(path: Path, query: str) -> str:
    """Return a file as SQLite's URI: a path may hold ``?``, ``#`` and ``%``, which mean something."""
    return f"file:{quote(str(path.absolute()))}?{query}"


def pending_log(path: Path) -> Path | None:
    """Return the write-ahead log beside a database if it holds rows that are not in it yet."""
    log = path.with_name(path.name + "-wal")
    return log if log.is_file() and log.stat().st_size else None


def quoted(name: str) -> str:
    """Return ``name`` as SQL writes the name of a table or column."""
    return '"' + name.replace('"', '""') + '"'


def lenient_text(data: bytes) -> str:
    """Return a text of a database; names and messages of a damaged one need not be UTF-8."""
    return data.decode("utf-8", "replace")


def plain_name(name: str) -> tuple[str, int]:
    """Return a table's name without the version that some exports append (``_V2``), and that."""
    found = _VERSIONED.fullmatch(name)
    return (found["name"], int(found["version"])) if found else (name, 1)
