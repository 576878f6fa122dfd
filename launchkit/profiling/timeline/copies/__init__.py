"""Copies of captures to share: scrubbed, or of some time. Chooses by what the file is.

Above the copies of each format. Needs nothing but the standard library and orjson.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from launchkit.errors import TimelineError
from launchkit.profiling.profile import profile_file
from launchkit.profiling.sampling import pyspy, samples_file
from launchkit.profiling.timeline.copies.export_scrubbing import scrub_export
from launchkit.profiling.timeline.copies.export_slicing import range_bounds, slice_export
from launchkit.profiling.timeline.copies.files import AnyPath
from launchkit.profiling.timeline.copies.profiles import (
    profile_range_bounds,
    scrub_profile,
    slice_profile,
)
from launchkit.profiling.timeline.copies.trace_scrubbing import scrub_trace
from launchkit.profiling.timeline.copies.trace_slicing import slice_trace, trace_range_bounds
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.refusing import head_of, is_sqlite, refuse, unzipped


def scrub_capture(path: AnyPath, output: AnyPath) -> RowCounts:
    """Write a copy of an SQLite export, a chrome trace or a saved profile that can be shared.

    See ``scrub_export``, ``scrub_trace`` and ``scrub_profile``. Raises TimelineError for anything
    else.
    """
    return _FORMATS[_kind(path)].scrub(path, output)


def slice_capture(path: AnyPath, output: AnyPath, start_ns: int, end_ns: int) -> RowCounts:
    """Write what an SQLite export, a chrome trace or a saved profile holds of some time.

    From ``start_ns`` to ``end_ns``; see ``slice_export``, ``slice_trace`` and ``slice_profile``.
    Raises TimelineError for anything else.
    """
    return _FORMATS[_kind(path)].cut(path, output, start_ns, end_ns)


def bounds_of_range(path: AnyPath, name: str, occurrence: int = 1) -> tuple[int, int]:
    """Return start and end, in ns, of the ``occurrence``-th range of this name in a capture.

    Raises UsageError where there is none, TimelineError for what is none of the three.
    """
    return _FORMATS[_kind(path)].bounds(path, name, occurrence)


class _Format(NamedTuple):
    scrub: Callable[[AnyPath, AnyPath], RowCounts]
    cut: Callable[[AnyPath, AnyPath, int, int], RowCounts]
    bounds: Callable[[AnyPath, str, int], tuple[int, int]]


_FORMATS = {
    "export": _Format(scrub_export, slice_export, range_bounds),
    "profile": _Format(scrub_profile, slice_profile, profile_range_bounds),
    "trace": _Format(scrub_trace, slice_trace, trace_range_bounds),
}


def _kind(path: AnyPath) -> str:
    place = Path(path)
    if not place.is_file():
        place.stat()
        advice = "Export it as one file: nsys export --type sqlite CAPTURE.nsys-rep."
        raise TimelineError(str(path), "it is no regular file", advice)
    head = head_of(place)
    refuse(place, head)
    start = unzipped(head)
    if is_sqlite(head):
        return "export"
    if place.suffix == ".sqlite":
        advice = "Export it: nsys export --type sqlite CAPTURE.nsys-rep."
        raise TimelineError(str(path), "it is no SQLite database", advice)
    if samples_file.is_samples(start) or pyspy.is_speedscope(head) or pyspy.is_raw(head):
        advice = "Share what launchkit report makes of it, or py-spy's chrometrace."
        raise TimelineError(str(path), "samples of py-spy cannot be copied so", advice)
    return "profile" if profile_file.is_profile(start) else "trace"
