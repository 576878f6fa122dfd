"""What is no capture, by its first bytes or name, and what to do then. A leaf without polars."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from launchkit.errors import BadDocumentError, TimelineError

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 4096
_START_BYTES = 64
_EXPORT = "Export it with: nsys export -t sqlite"
_REPORTS = (".nsys-rep", ".qdrep")


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file. Raises TimelineError where it cannot be opened."""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise unreachable(path, error) from None


def is_sqlite(head: bytes) -> bool:
    """Tell whether a file that begins so is an SQLite database."""
    return head.startswith(_SQLITE)


def unusable(path: str | os.PathLike[str], error: BadDocumentError, again: str) -> TimelineError:
    """Return the error of a saved file that cannot be read; ``again`` says how to make one."""
    advice = "Upgrade launchkit." if error.newer else again
    return TimelineError(os.fspath(path), error.reason, advice)


def unreachable(path: Path, error: Exception) -> TimelineError:
    """Return the error of a file that the system does not open."""
    reason = getattr(error, "strerror", None) or str(error)
    return TimelineError(
        str(path), f"it cannot be opened ({reason})", "Check the path and its permissions."
    )


def refuse(path: Path, head: bytes) -> None:
    """Raise TimelineError for a file that is none of the formats and says what it is."""
    name, suffix = str(path), path.suffix.lower()
    if not head:
        raise TimelineError(name, "it is empty", "Export or record the capture again.")
    if suffix in _REPORTS and not is_sqlite(head):
        raise TimelineError(
            name, "it is a report of Nsight Systems, not an export", f"{_EXPORT} {name}"
        )
    if suffix == ".qdstrm":
        raise TimelineError(
            name,
            "it is a raw stream of Nsight Systems, left by a capture that did not end",
            f"Import it with QdstrmImporter -i {name}, then: nsys export -t sqlite REPORT.nsys-rep",
        )
    if suffix == ".ncu-rep":
        advice = "Capture with nsys profile: Nsight Compute has no times of the host."
        raise TimelineError(name, "it is a report of Nsight Compute", advice)
    _refuse_content(name, head)


def _refuse_content(name: str, head: bytes) -> None:
    if head.startswith(_GZIP) and is_sqlite(unzipped(head)):
        raise TimelineError(name, "it is a compressed export", f"Unpack it first: gunzip {name}")
    if head.startswith((b"PAR1", b"ARROW1")):
        advice = "Give the directory that nsys export -t parquetdir made."
        raise TimelineError(name, "it is one table of an export", advice)
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        advice = "Download the capture itself, or give the profiler's own file."
        raise TimelineError(name, "it is a web page or XML, not a capture", advice)
    if head.startswith((b"PK\3\4", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0")):
        raise TimelineError(name, "it is an archive", "Unpack it first.")


def unzipped(head: bytes) -> bytes:
    """Return the first bytes of what a file holds, unpacked if it is compressed."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _START_BYTES)
    except zlib.error:
        return b""
