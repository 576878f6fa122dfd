"""``launchkit bench libraries``: other people's operators with and without install(). A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Output,
    benchmark,
    check_settings,
    give,
    plain_table,
    print_title,
    where,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

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
    total = len(options.get("operators", benchmark("libraries.ops").OPERATORS))
    with counted("operators compiled and timed", total) as advance:
        document = measure(rounds=rounds, calls=calls, advance=advance, **options)
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print the benchmark's result as a table: a line per operator."""
    console = wide_console()
    print_title(console, f"host µs per call, Triton → launchkit ({where(document)})")
    headings = ("operator", "n", "in all", "launches", "ratio", "run", "equal")
    table = plain_table(headings, left=("operator",), padding=0)
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
    print_text(console, legend)
    for each in document["skipped"]:
        text = f"skipped: {each['operator']} of {each['library']}: {each['reason']}"
        print_text(console, text)


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
