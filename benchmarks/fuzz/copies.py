"""Copies of captures, scrubbed and sliced, for ``launchkit bench fuzz``: of all that can be copied.

What reads the copies needs polars, which comes with the extra ``profile``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from launchkit.benchmarks.fuzz import timelines, traces
from launchkit.errors import TimelineError
from launchkit.profiling.timeline import RowCounts, Timeline, read_timeline
from launchkit.profiling.timeline.copies import scrub_capture, slice_capture

Files = dict[str, bytes]
Copy = Callable[[Path, Path], RowCounts]
_SECRET = "/home/mallory/secret-host-7/x.py"


def make(rng: Random) -> Files:
    """Return a changed export, trace or profile, with a path in some names."""
    kind = rng.choice((timelines.make_sqlite, traces.make_trace, traces.make_profile))
    files = kind(rng)
    if kind is not timelines.make_sqlite and rng.random() < 0.5:
        # Names of ranges in the two formats of text.
        name = rng.choice((b'"aten::mul"', b'"step"', b'"begun"', b'"scan"'))
        secret = f'"{_SECRET}"'.encode()
        files = {path: data.replace(name, secret) for path, data in files.items()}
    return files


def take_scrubbed(folder: Path) -> tuple[Sequence[Any], Sequence[str]]:
    """Scrub what is in ``folder``, and read the copy."""

    def check(data: bytes, timeline: Timeline) -> None:
        assert b"secret-host-7" not in data, "a path stayed"

    return _taken(folder, scrub_capture, check)


def take_sliced(folder: Path) -> tuple[Sequence[Any], Sequence[str]]:
    """Cut some time out of what is in ``folder``, and read the copy."""
    capture = _capture(folder)
    rng = Random(zlib.crc32(capture.read_bytes()))
    scale = 1 if capture.suffix == ".sqlite" else 50
    start_ns = scale * rng.randrange(-10, 700)
    end_ns = start_ns + scale * rng.choice((1, 10, 300, 2000))

    def check(data: bytes, timeline: Timeline) -> None:
        if timeline.source.format == "chrome":
            return  # time 0 is another one there
        for table in ("calls", "gpu"):
            frame: pl.DataFrame = getattr(timeline, table)
            inside = (pl.col("start_ns") >= start_ns) & (pl.col("end_ns") <= end_ns)
            assert frame.filter(~inside).is_empty(), f"{table} outside the slice"

    return _taken(folder, partial(slice_capture, start_ns=start_ns, end_ns=end_ns), check)


def _capture(folder: Path) -> Path:
    return next(folder / name for name in ("it.sqlite", "it.json") if (folder / name).exists())


def _taken(
    folder: Path, copy: Copy, check: Callable[[bytes, Timeline], None]
) -> tuple[Sequence[Any], Sequence[str]]:
    capture = _capture(folder)
    output = folder.parent / f"copy{capture.suffix}"
    try:
        return _copied(capture, output, copy, check)
    except TimelineError as error:
        assert not output.exists(), "a copy of what was refused"
        return (), (error.reason,)
    finally:
        output.unlink(missing_ok=True)


def _copied(
    capture: Path, output: Path, copy: Copy, check: Callable[[bytes, Timeline], None]
) -> tuple[Sequence[Any], Sequence[str]]:
    for table, counts in copy(capture, output):
        assert counts.read == counts.used + counts.dropped.total(), f"counts of {table}"
    try:
        timeline = read_timeline(output)
    except TimelineError as error:
        # What cannot be read as it is, a copy does not mend.
        _refused(capture, error.reason)
        output.unlink()
        return (), (f"its copy: {error.reason}",)
    check(output.read_bytes(), timeline)
    return (timeline,), timeline.warnings


def _refused(capture: Path, reason: str) -> None:
    try:
        read_timeline(capture)
    except TimelineError:
        return
    assert "no event" in reason or "nothing" in reason, f"only its copy is refused: {reason}"
