"""``launchkit bench libraries``: other people's operators with and without install(). A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from launchkit.tools.bench_output import (
    AsJson,
    Output,
    benchmark,
    check_output,
    check_settings,
    give,
    plain_table,
    print_title,
    where,
    wide_console,
)

Operators = Annotated[
    list[str] | None,
    typer.Option("--operator", help="May be given several times. Default: all."),
]


def libraries(
    operator: Operators = None,
    rounds: Annotated[int, typer.Option(help="How often each row is timed.")] = 7,
    calls: Annotated[int, typer.Option(help="Calls of the operator per round.")] = 50,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Compare operators of liger-kernel and flash-linear-attention with and without install()."""
    check_output(output)
    check_settings()
    measure = benchmark("libraries.bench").measure
    options: dict[str, Any] = {"operators": tuple(dict.fromkeys(operator))} if operator else {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        total = len(options.get("operators", benchmark("libraries.ops").OPERATORS))
        task = progress.add_task("compiling, then timing", total=total)
        document = measure(
            rounds=rounds, calls=calls, advance=lambda: progress.advance(task), **options
        )
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print the benchmark's result as a table: a line per operator."""
    console = wide_console()
    print_title(console, f"host µs per call, Triton → launchkit ({where(document)})")
    table = plain_table(padding=0)
    for heading in ("operator", "n", "in all", "launches", "ratio", "run", "equal"):
        left = heading == "operator"
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    rows = [*document["rows"], {"operator": "in all", **document["total"]}]
    for index, row in enumerate(rows):
        last = index == len(document["rows"]) - 1
        table.add_row(*_cells(row), end_section=last)
    console.print(table)
    legend = (
        "Forward and backward, medians, one config per kernel. n: launches of a call; launches: the "
        "part of its time spent in kernel[grid](...); ratio: of that, launchkit ÷ Triton; run: the "
        "same of the part spent in Triton's own run; smaller is better. "
        "equal: outputs and gradients have the same bits."
    )
    console.print(legend, highlight=False, markup=False)
    for each in document["skipped"]:
        text = f"skipped: {each['operator']} of {each['library']}: {each['reason']}"
        console.print(text, highlight=False, markup=False)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["operator"],
        str(row.get("launches", "")),
        f"{row['host_us_before']:.0f} → {row['host_us_after']:.0f}",
        f"{row['launch_us_before']:.0f} → {row['launch_us_after']:.0f}",
        f"{row['launch_ratio']:.2f}",
        f"{row['triton_run_ratio']:.2f}",
        "-" if "equal" not in row else "yes" if row["equal"] else "no",
    ]
