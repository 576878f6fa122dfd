"""``launchkit bench differential``: does launchkit launch what Triton launches? A command.

Exit codes: 0 no difference, 1 differences found, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Cases,
    Output,
    Processes,
    benchmark,
    check_at_least,
    check_settings,
    give,
    plain_table,
    print_title,
    process_count,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output


def differential(
    sets: Annotated[int, typer.Option(help="Random argument sets in all.")] = 20_000,
    case: Cases = None,
    seed: Annotated[int, typer.Option(help="The same seed draws the same sets.")] = 0,
    processes: Processes = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Launch random argument sets with launchkit and with Triton, without a GPU, and compare.

    Compared are the compiled kernel, the grid, the attributes and every parameter's bytes.
    """
    check_at_least("--sets", sets, 1)
    workers = process_count(processes)
    check_output(output)
    check_settings()
    bench = benchmark("differential.bench")
    names = tuple(dict.fromkeys(case or bench.CASES))
    with counted("sets compared", sets) as advance:
        document = bench.measure(names, sets, seed, workers, advance=advance)
    give(document, show, as_json, output)
    if document["differences"]:
        _tell_differences(document)
        raise typer.Exit(1)


def show(document: dict[str, Any]) -> None:
    """Print the result as a table: a line per case."""
    console, facts = wide_console(), document["machine"]
    print_title(
        console,
        f"{document['sets']:,} argument sets, {document['differences']} differences "
        f"({document['mode']}; Triton {facts['triton']}, Python {facts['python']}, "
        f"{facts['core']} core; {document['wall_s']:.0f} s)",
    )
    headings = ("case", "sets", "kinds", "fast", "Triton", "raised", "differ")
    table = plain_table(headings, left=("case",))
    for row in document["rows"]:
        slow, raised = sum(row["through_triton"].values()), sum(row["raised"].values())
        figures = (row["sets"], row["kinds"], row["fast"], slow, raised, row["differences"])
        table.add_row(row["case"], *(f"{figure:,}" for figure in figures))
    console.print(table)
    print_text(
        console,
        "kinds: compiled kernels, and what launchkit tells apart beneath. fast: shortcuts; Triton: "
        "launches through Triton, by reason in the JSON; raised: both raised the same exception.",
    )


def _tell_differences(document: dict[str, Any]) -> None:
    for row in document["rows"]:
        for difference in row["first_differences"]:
            typer.echo(f"{row['case']}: {difference}", err=True)
