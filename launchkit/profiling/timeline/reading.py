"""Reads a capture of any known format as a timeline. Above the readers of the formats.

What a file is, is decided by its first bytes, never by its name alone.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

from launchkit.errors import TimelineError
from launchkit.profiling import profile_file, pyspy, samples_file
from launchkit.profiling.timeline.chrome import read_chrome
from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.nsys import read_nsys
from launchkit.profiling.timeline.nsys_tables import Progress
from launchkit.profiling.timeline.own import read_own
from launchkit.profiling.timeline.sampled import read_pyspy, read_samples

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 4096
_START_BYTES = 64
_EXPORT = "Export it with: nsys export -t sqlite"
_REPORTS = (".nsys-rep", ".qdrep")
_FORMATS = "an Nsight Systems export, a PyTorch trace, a launchkit profile or samples of py-spy"


def read_timeline(path: str | os.PathLike[str], progress: Progress | None = None) -> Timeline:
    """Return the timeline of the capture in ``path``.

    An Nsight Systems export (SQLite, or a directory of parquet or arrow tables), a chrome trace
    (JSON, plain or gzip), a saved profile, or samples of py-spy. ``progress`` is told, after every
    piece, what is read, how much of it so far and in all (rows or bytes). The capture is never written to. Raises TimelineError, which says
    what to do, for whatever cannot be read.
    """
    place = Path(path)
    if _is_directory(place):
        return read_nsys(place, progress)
    head = _head(place)
    _refuse(place, head)
    return _reader(place, head)(place, progress)


def _reader(path: Path, head: bytes) -> Callable[[Path, Progress | None], Timeline]:
    if head.startswith(_SQLITE):
        return read_nsys
    if profile_file.is_profile(_unzipped(head)):
        return read_own
    if samples_file.is_samples(_unzipped(head)):
        return read_samples
    if pyspy.is_trace(head) or pyspy.is_speedscope(head) or pyspy.is_raw(head):
        return read_pyspy
    if _is_json(head):
        return read_chrome
    raise _unknown(path)


def _is_json(head: bytes) -> bool:
    """Tell whether a file begins as JSON does, compressed or not, in any Unicode encoding."""
    return _unzipped(head).lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1] in (b"{", b"[")


def _is_directory(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise _unreachable(path, error) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise TimelineError(
            str(path), "it is a pipe or a device", "Write the capture to a file first."
        )
    return stat.S_ISDIR(mode)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise _unreachable(path, error) from None


def _unreachable(path: Path, error: Exception) -> TimelineError:
    reason = getattr(error, "strerror", None) or str(error)
    return TimelineError(
        str(path), f"it cannot be opened ({reason})", "Check the path and its permissions."
    )


def _refuse(path: Path, head: bytes) -> None:
    """Raise TimelineError for a file that is none of the formats and says what it is."""
    name, suffix = str(path), path.suffix.lower()
    if not head:
        raise TimelineError(name, "it is empty", "Export or record the capture again.")
    if suffix in _REPORTS and not head.startswith(_SQLITE):
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
    if head.startswith(_GZIP) and _unzipped(head).startswith(_SQLITE):
        raise TimelineError(name, "it is a compressed export", f"Unpack it first: gunzip {name}")
    if head.startswith((b"PAR1", b"ARROW1")):
        advice = "Give the directory that nsys export -t parquetdir made."
        raise TimelineError(name, "it is one table of an export", advice)
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        advice = "Download the capture itself, or give the profiler's own file."
        raise TimelineError(name, "it is a web page or XML, not a capture", advice)
    if head.startswith((b"PK\3\4", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\0")):
        raise TimelineError(name, "it is an archive", "Unpack it first.")


def _unzipped(head: bytes) -> bytes:
    """Return the first bytes of what a file holds, unpacked if it is compressed."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _START_BYTES)
    except zlib.error:
        return b""


def _unknown(path: Path) -> TimelineError:
    return TimelineError(
        str(path), "it is of no known format", f"Give {_FORMATS}: docs/profiling.md says how."
    )
