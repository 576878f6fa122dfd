"""What ``launchkit profile scrub`` and ``slice`` share: refusals, times, and what they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from launchkit.errors import UsageError
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.tools.capture_files import refuse_capture
from launchkit.tools.output import echo_json

Capture = Annotated[
    Path,
    typer.Argument(
        help="The capture, or a directory that launchkit profile made; it is only read."
    ),
]
Copy = Annotated[Path, typer.Argument(metavar="OUTPUT", help="The file to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the counts of rows as JSON.")]

_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>ns|us|µs|ms|s)")
_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def check_copy(capture: Path, output: Path, force: bool) -> None:
    """Refuse an output that exists, unless it may be replaced, and never the capture itself."""
    if not capture.exists():
        raise UsageError(f"there is no {capture}. Give a capture.", capture=str(capture))
    refuse_capture(output, capture)
    if output.exists() and not force:
        raise UsageError(
            f"{output} exists. Give another file, or --force to replace it.", output=str(output)
        )


def time_ns(option: str, text: str) -> int:
    """Return a time with its unit, such as ``12.5ms``, in ns; UsageError for anything else."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{option} {text!r} is no time. Give a number with ns, us, ms or s, such as 12.5ms.",
            option=option,
            value=text,
        )
    return round(float(found["number"]) * _NS[found["unit"]])


def give_counts(capture: Path, output: Path, counts: RowCounts, as_json: bool, **more: Any) -> None:
    """Print what was kept and what was left out, by table and reason."""
    if as_json:
        document = {
            "capture": str(capture),
            "output": str(output),
            "rows": counts.to_dict(),
            **more,
        }
        echo_json(document)
        return
    console = Console(highlight=False)
    for sentence in counts.sentences():
        if not sentence.startswith("ENUM_"):
            console.print(sentence, markup=False, soft_wrap=True)
    size_kib = output.stat().st_size / 1024
    console.print(f"{output}: {size_kib:.0f} KiB", markup=False, soft_wrap=True)
