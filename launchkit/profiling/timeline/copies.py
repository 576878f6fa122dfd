"""Copies of captures to share: scrubbed, or of some time. Chooses by what the file is.

Above the copies of each format. Needs nothing but the standard library and orjson.
"""

from __future__ import annotations

import os
from pathlib import Path

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.rewriting import is_sqlite
from launchkit.profiling.timeline.scrubbing import scrub_export
from launchkit.profiling.timeline.slicing import range_bounds, slice_export
from launchkit.profiling.timeline.trace_scrubbing import scrub_trace
from launchkit.profiling.timeline.trace_slicing import slice_trace, trace_range_bounds

_Path = str | os.PathLike[str]


def scrub_capture(path: _Path, output: _Path) -> RowCounts:
    """Write a copy of an SQLite export or a chrome trace that can be shared; see ``scrub_export``
    and ``scrub_trace``. Raises TimelineError for anything else."""
    return (scrub_export if _is_export(path) else scrub_trace)(path, output)


def slice_capture(path: _Path, output: _Path, start_ns: int, end_ns: int) -> RowCounts:
    """Write what an SQLite export or a chrome trace holds from ``start_ns`` to ``end_ns``; see
    ``slice_export`` and ``slice_trace``. Raises TimelineError for anything else."""
    make = slice_export if _is_export(path) else slice_trace
    return make(path, output, start_ns, end_ns)


def bounds_of_range(path: _Path, name: str, occurrence: int = 1) -> tuple[int, int]:
    """Return start and end, in ns, of the ``occurrence``-th range of this name in a capture.

    Raises UsageError where there is none, TimelineError for what is neither export nor trace.
    """
    find = range_bounds if _is_export(path) else trace_range_bounds
    return find(path, name, occurrence)


def _is_export(path: _Path) -> bool:
    place = Path(path)
    if not place.is_file():
        place.stat()
        advice = "Export it as one file: nsys export --type sqlite CAPTURE.nsys-rep."
        raise TimelineError(str(path), "it is no regular file", advice)
    if is_sqlite(place):
        return True
    if place.suffix in (".nsys-rep", ".qdrep", ".sqlite"):
        advice = "Export it: nsys export --type sqlite CAPTURE.nsys-rep."
        raise TimelineError(str(path), "it is no SQLite database", advice)
    return False
