"""``launchkit bench import``: time and memory of reading a large capture. A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Output,
    benchmark,
    check_at_least,
    give,
    plain_table,
    print_title,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

_LEGEND = (
    "Medians of times, largest peaks. import: read_timeline; summaries: tables by range, function "
    "and kernel, and kernels by range; analysis: analyse. Peaks are resident memory of the whole process."
)


def import_(
    rows: Annotated[int, typer.Option(help="Rows of ranges, calls and GPU work.")] = 5_000_000,
    repeats: Annotated[int, typer.Option(help="How often the export is imported.")] = 3,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Import a synthetic Nsight Systems export of many rows: seconds and peak memory."""
    check_at_least("--rows", rows, 1)
    check_at_least("--repeats", repeats, 1)
    check_output(output)
    with counted("rows written, then imported", rows * (1 + repeats)) as advance:
        document = benchmark("captures.bench").measure(rows, repeats, advance)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print the result as a table: a line for each stage."""
    console, facts = wide_console(), document["machine"]
    size = document["file_bytes"] / 2**20
    print_title(
        console,
        f"{document['rows']:,} rows, {size:,.0f} MiB of SQLite ({facts['cpu']}, {facts['cores']} cores)",
    )
    headings = ("stage", "seconds", "CPU s", "peak MiB", "rows a second")
    table = plain_table(headings, left=("stage",))
    for stage in ("import", "summaries", "analysis"):
        seconds, peak = document[f"{stage}_s"], document[f"{stage}_peak_bytes"] / 2**20
        rate = f"{document['rows'] / seconds:,.0f}" if seconds else "-"
        cpu = f"{document[f'{stage}_cpu_s']:.1f}"
        table.add_row(stage, f"{seconds:.1f}", cpu, f"{peak:,.0f}", rate)
    console.print(table)
    print_text(console, _LEGEND)
