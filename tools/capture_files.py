"""How ``report`` and ``diff`` read captures and write beside them: never over one of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from launchkit.errors import UsageError
from launchkit.profiling.capturing import CAPTURED
from launchkit.tools.output_files import check_output

if TYPE_CHECKING:
    from launchkit.profiling.timeline import Analysis, Timeline


def captures_of(path: Path) -> list[Path]:
    """Return the captures in a directory that ``launchkit profile`` made; else ``path`` itself."""
    if not path.is_dir():
        return [path]
    found = [file for pattern in CAPTURED.values() for file in sorted(path.glob(pattern))]
    return found or [path]


def capture_of(path: Path) -> Path:
    """Return the one capture that ``path`` is, or that is in a directory of ``launchkit profile``."""
    found = captures_of(path)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise UsageError(f"{path} has several captures. Give one of them: {names}.", path=str(path))
    return found[0]


def analysed(path: Path) -> Analysis:
    """Return what a capture says of launches. Raises TimelineError for what cannot be read."""
    from launchkit.profiling.timeline import analyse

    return analyse(read_capture(path))


def analysed_together(
    paths: Sequence[Path], step_range: str | None, *, apart: bool
) -> list[Analysis]:
    """Return what captures say of launches: those that were taken at the same time as one.

    ``apart``: each by itself. Raises TimelineError for what cannot be read.
    """
    from launchkit.profiling.timeline import analyse, merge_timelines, taken_together

    read = [read_capture(path) for path in paths]
    groups = [[timeline] for timeline in read] if apart else taken_together(read)
    whole = [group[0] if len(group) == 1 else merge_timelines(group) for group in groups]
    return [analyse(timeline, step_range=step_range) for timeline in whole]


def read_capture(path: Path) -> Timeline:
    """Return a capture as a timeline; on a terminal, with progress while it is read."""
    from launchkit.profiling.timeline import read_timeline

    if not sys.stderr.isatty():
        return read_timeline(path)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Reading {path.name}", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        return read_timeline(path, progress)


def check_beside(output: Path | None, captures: Sequence[Path]) -> None:
    """Refuse an output that cannot be written, or that is one of the captures."""
    for capture in captures:
        if output is not None:
            refuse_capture(output, capture)
    check_output(output)


def refuse_capture(output: Path, capture: Path) -> None:
    """Refuse an output that is the capture, by whatever name."""
    if output.exists() and capture.exists() and output.samefile(capture):
        raise UsageError(
            f"{output} is the capture itself, which is never written to. Give another file.",
            output=str(output),
        )
