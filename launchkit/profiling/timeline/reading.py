"""Reads a capture of any known format as a timeline. Above the readers of the formats.

What a file is, is decided by its first bytes, never by its name alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from launchkit.errors import TimelineError
from launchkit.profiling.profile import profile_file
from launchkit.profiling.sampling import pyspy, samples_file
from launchkit.profiling.timeline.chrome.reader import read_chrome
from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.nsys.reader import read_nsys
from launchkit.profiling.timeline.progress import Progress
from launchkit.profiling.timeline.refusing import (
    head_of,
    is_sqlite,
    refuse,
    unreachable,
    unzipped,
)
from launchkit.profiling.timeline.sampled_stacks import read_pyspy, read_samples
from launchkit.profiling.timeline.saved_profiles import read_profile

_FORMATS = "an Nsight Systems export, a PyTorch trace, a launchkit profile or samples of py-spy"


def read_timeline(path: str | os.PathLike[str], progress: Progress | None = None) -> Timeline:
    """Return the timeline of the capture in ``path``.

    An Nsight Systems export (SQLite, or a directory of parquet or arrow tables), a chrome trace
    (JSON, plain or gzip), a saved profile, or samples of py-spy. ``progress`` is told, after every
    piece, what is read, how much of it so far and in all (rows or bytes). The capture is never
    written to. Raises TimelineError, which says what to do, for whatever cannot be read.
    """
    place = Path(path)
    if _is_directory(place):
        return read_nsys(place, progress)
    head = head_of(place)
    refuse(place, head)
    return _reader(place, head)(place, progress)


def _reader(path: Path, head: bytes) -> Callable[[Path, Progress | None], Timeline]:
    if is_sqlite(head):
        return read_nsys
    if profile_file.is_profile(unzipped(head)):
        return read_profile
    if samples_file.is_samples(unzipped(head)):
        return read_samples
    if pyspy.is_trace(head) or pyspy.is_speedscope(head) or pyspy.is_raw(head):
        return read_pyspy
    if _is_json(head):
        return read_chrome
    raise _unknown(path)


def _is_json(head: bytes) -> bool:
    """Tell whether a file begins as JSON does, compressed or not, in any Unicode encoding."""
    return unzipped(head).lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1] in (b"{", b"[")


def _is_directory(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        raise unreachable(path, error) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise TimelineError(
            str(path), "it is a pipe or a device", "Write the capture to a file first."
        )
    return stat.S_ISDIR(mode)


def _unknown(path: Path) -> TimelineError:
    return TimelineError(
        str(path), "it is of no known format", f"Give {_FORMATS}: docs/profiling.md says how."
    )
