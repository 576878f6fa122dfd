"""``launchkit report``: what captures say of launches, for people and programs. A command.

Exit codes: 0 reported, 2 bad use or a capture that cannot be read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit import jsonio
from launchkit.errors import UsageError
from launchkit.tools.bench_output import check_at_least, wide_console
from launchkit.tools.capture_files import analysed_together, captures_of, check_beside
from launchkit.tools.output_files import replacing, write

Captures = Annotated[
    list[Path],
    typer.Argument(
        help="Exports of Nsight Systems (SQLite, or a directory of parquet or arrow files), PyTorch "
        "traces, profiles of launchkit, or a directory that launchkit profile made."
    ),
]
JsonOut = Annotated[
    Path | None, typer.Option("--json", help="Write every table to this file as JSON; - prints it.")
]
HtmlOut = Annotated[
    Path | None, typer.Option("--html", help="Write a page with plots that needs no network.")
]
PerfettoOut = Annotated[
    Path | None, typer.Option("--perfetto", help="Write a trace for ui.perfetto.dev.")
]
StepRange = Annotated[
    str | None, typer.Option(help="Name of the ranges that are steps, without their numbers.")
]
WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RANGE",
        help="Range to predict changes of; may be repeated. Default: the dearest 3.",
    ),
]
Limit = Annotated[int, typer.Option(help="Rows of each printed table.")]

Apart = Annotated[
    bool, typer.Option("--apart", help="Report each capture by itself, also those of one time.")
]

_TRIED = 3
"""Ranges that changes are predicted of, where none is asked for: each takes some replays."""


def command(
    captures: Captures,
    json_output: JsonOut = None,
    html_output: HtmlOut = None,
    perfetto_output: PerfettoOut = None,
    step_range: StepRange = None,
    what_if: WhatIf = None,
    limit: Limit = 20,
    apart: Apart = False,
) -> None:
    """Read captures: say where the host's time goes, and why the GPU waits.

    Captures of several ranks or processes, taken at the same time, are put on one clock and
    reported as one, with a row for each process that says how late it launches.
    Each range gets a verdict with the numbers behind it; the end says which rows of the capture
    were read, used and dropped.
    """
    check_at_least("--limit", limit, 1)
    captures = [each for path in captures for each in captures_of(path)]
    printed = json_output == Path("-")
    outputs = [None if printed else json_output, html_output, perfetto_output]
    for output in outputs:
        check_beside(output, captures)
    found = analysed_together(captures, step_range, apart=apart)
    if perfetto_output is not None and len(found) > 1:
        raise UsageError(
            "--perfetto takes captures of one time, and these are not, or do not say when they "
            "were taken. Call it once for each."
        )
    documents = _documents(found, what_if)
    # Files first: who reads the terminal's text may leave in the middle, as head does.
    if html_output is not None:
        _write_html(documents, html_output)
    if perfetto_output is not None:
        _write_trace(found[0], perfetto_output)
    if json_output is not None:
        _give_json(documents, None if printed else json_output)
    if not printed:
        _show(documents, limit)


def _documents(found: Sequence[Any], ranges: list[str] | None) -> list[dict[str, Any]]:
    from launchkit.profiling.report.document import report_document
    from launchkit.profiling.timeline import suggestions

    return [
        report_document(analysis, suggestions(analysis, ranges or None, limit=_TRIED))
        for analysis in found
    ]


def _show(documents: Sequence[dict[str, Any]], limit: int) -> None:
    from launchkit.profiling.report.terminal import renderables

    console = wide_console()
    for number, document in enumerate(documents):
        if number:
            console.rule()
        for part in renderables(document, width=console.width, limit=limit):
            console.print(part, highlight=False)


def _give_json(documents: Sequence[dict[str, Any]], output: Path | None) -> None:
    document = documents[0] if len(documents) == 1 else {"schema": 1, "captures": list(documents)}
    data = jsonio.dumps_in_order(document)
    if output is not None:
        write(output, data)
    else:
        sys.stdout.flush()
        typer.echo(data, nl=False)


def _write_html(documents: Sequence[dict[str, Any]], output: Path) -> None:
    from launchkit.profiling.report.html import html_report

    write(output, html_report(documents).encode())


def _write_trace(analysis: Any, output: Path) -> None:
    from launchkit.profiling.report.perfetto import write_trace

    with replacing(output) as file:
        write_trace(analysis.timeline, file, analysis.gaps, analysis.verdicts)
