"""``launchkit bench soak``: does memory stay flat over millions of launches? A command.

Exit codes: 0 flat, 1 memory grew, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Cases,
    Output,
    benchmark,
    check_at_least,
    check_settings,
    give,
    plain_table,
    print_title,
    where,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output


def soak(
    launches: Annotated[int, typer.Option(help="Launches in all.")] = 1_000_000,
    case: Cases = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Make millions of launches of each kind and see whether the process grows."""
    check_at_least("--launches", launches, 1)
    check_output(output)
    check_settings()
    bench = benchmark("soak.bench")
    names = tuple(dict.fromkeys(case or bench.CASES))
    with counted("launches", launches) as advance:
        document = bench.measure(names, launches, advance=advance)
    give(document, show, as_json, output)
    if not document["flat"]:
        raise typer.Exit(1)


def show(document: dict[str, Any]) -> None:
    """Print the result as a table: a line per kind of launch."""
    console = wide_console()
    flat = "flat" if document["flat"] else "memory grew"
    print_title(console, f"{document['launches']:,} launches: {flat} ({where(document)})")
    headings = ("case", "launches", "fast", "Triton", "replays", "bytes/launch", "KiB", "flat")
    table = plain_table(headings, left=("case",))
    for row in document["rows"]:
        slow = sum(row["through_triton"].values())
        table.add_row(
            row["case"],
            f"{row['launches']:,}",
            "-" if row["fast"] is None else f"{row['fast']:,}",
            f"{slow:,}",
            f"{row['replays']:,}",
            f"{row['slope_bytes_per_launch']:.3f}",
            f"{row['growth_bytes'] / 1024:.0f}",
            "yes" if row["flat"] else "no",
        )
    console.print(table)
    print_text(
        console,
        "bytes/launch: the slope of resident memory over the launches of a case after its warm-up, "
        "and KiB what that comes to.",
    )
