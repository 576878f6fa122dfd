"""``launchkit profile slice``: a copy of some time of a capture. A command.

Exit codes: 0 written, 2 bad use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launchkit.errors import UsageError
from launchkit.tools.capture_files import capture_of
from launchkit.tools.profile_copies import (
    AsJson,
    Capture,
    Copy,
    Force,
    check_copy,
    give_counts,
    time_ns,
)

From = Annotated[str | None, typer.Option("--from", help="Start, such as 12.5ms.")]
To = Annotated[str | None, typer.Option("--to", help="End, such as 0.25s.")]
OfRange = Annotated[str | None, typer.Option("--range", help="Instead: the time of this range.")]
Number = Annotated[int, typer.Option(help="Which of the ranges of this name, from 1.")]
Margin = Annotated[str, typer.Option(help="Time around the range.")]


def command(
    capture: Capture,
    output: Copy,
    start: From = None,
    end: To = None,
    of_range: OfRange = None,
    number: Number = 1,
    margin: Margin = "0ns",
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Copy what a capture holds of some time.

    What crosses an edge is clipped to it, so that a busy GPU stays busy in the slice. Times are
    those of the capture's own clock, as Nsight Systems and the reports show them.
    """
    from launchkit.profiling.timeline.copies import slice_capture

    capture = capture_of(capture)
    check_copy(capture, output, force)
    start_ns, end_ns = _window(capture, (start, end), of_range, number, time_ns("--margin", margin))
    counts = slice_capture(capture, output, start_ns, end_ns)
    give_counts(capture, output, counts, as_json, start_ns=start_ns, end_ns=end_ns)


def _window(
    capture: Path, edges: tuple[str | None, str | None], name: str | None, number: int, margin: int
) -> tuple[int, int]:
    from launchkit.profiling.timeline.copies import bounds_of_range

    start, end = edges
    if name is not None and start is None and end is None:
        first, last = bounds_of_range(capture, name, number)
        return first - margin, last + margin
    if name is None and start is not None and end is not None:
        return time_ns("--from", start), time_ns("--to", end)
    raise UsageError("a slice needs its times or a range. Give --from and --to, or --range.")
