"""``launchkit diff``: what became slower between two captures, and how sure that is. A command.

Exit codes: 0 nothing is over what --fail-over allows, 1 something is, 2 bad use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.tools.bench_output import check_at_least, wide_console
from launchkit.tools.capture_files import analysed, capture_of, check_beside
from launchkit.tools.output_files import write

Before = Annotated[
    Path, typer.Argument(help="A capture, or a directory that launchkit profile made.")
]
After = Annotated[Path, typer.Argument(help="A later capture of the same.")]
FailOver = Annotated[
    str | None,
    typer.Option(help="Exit with 1 if something became slower by more, such as 10%."),
]
JsonOut = Annotated[
    Path | None, typer.Option("--json", help="Write every row to this file as JSON; - prints it.")
]
Every = Annotated[bool, typer.Option("--all", help="Print what did not change, too.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals, between 0 and 1.")]
Limit = Annotated[int, typer.Option(help="Rows of each printed table.")]

_SHARE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)")


def command(
    before: Before,
    after: After,
    fail_over: FailOver = None,
    json_output: JsonOut = None,
    every: Every = False,
    confidence: Confidence = 0.95,
    limit: Limit = 30,
) -> None:
    """Compare two captures range by range and kernel by kernel.

    Medians, with a bootstrap interval of their ratio; host times are first divided by how much
    slower the second machine ran what both captures calibrated. With --fail-over it is a check for
    CI: only what is slower by more, beyond doubt, fails.
    """
    from launchkit.profiling.report.differences import difference_document
    from launchkit.profiling.timeline import compare

    check_at_least("--limit", limit, 1)
    allowed = None if fail_over is None else _share(fail_over)
    before, after = capture_of(before), capture_of(after)
    printed = json_output == Path("-")
    if not printed:
        check_beside(json_output, [before, after])
    sides = analysed(before), analysed(after)
    comparison = compare(*sides, fail_over=allowed, confidence=confidence)
    document = difference_document(comparison, *sides, allowed)
    _give(document, None if printed else json_output, printed, every, limit)
    if comparison.failed:
        raise typer.Exit(1)


def _share(text: str) -> float:
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--fail-over {text!r} is no share. Give per cent, such as 10%, or a part, such as 0.1.",
            value=text,
        )
    return float(found[1]) / (100 if found[2] else 1)


def _give(
    document: dict[str, Any], output: Path | None, printed: bool, every: bool, limit: int
) -> None:
    from launchkit.profiling.report.differences import difference_renderables

    data = jsonio.dumps_in_order(document)
    if output is not None:
        write(output, data)
    if printed:
        typer.echo(data, nl=False)
        return
    console = wide_console()
    for part in difference_renderables(document, limit=limit, every=every):
        console.print(part, highlight=False)
