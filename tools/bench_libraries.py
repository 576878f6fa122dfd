"""``launchkit bench libraries``: other people's operators with and without install(). A command.

Exit codes: 0 measured, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from launchkit import jsonio
from launchkit.tools.bench_output import (
    AsJson,
    Output,
    benchmark,
    check_output,
    check_settings,
    plain_table,
    where,
    wide_console,
    write,
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
    measure = benchmark("libraries").measure
    options: dict[str, Any] = {"operators": tuple(dict.fromkeys(operator))} if operator else {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("compiling, then timing", total=len(operator or []) or None)
        document = measure(
            rounds=rounds, calls=calls, advance=lambda: progress.advance(task), **options
        )
    data = jsonio.dumps(document)
    if as_json:
        typer.echo(data, nl=False)
    else:
        show(document)
    if output is not None:
        write(output, data)


def show(document: dict[str, Any]) -> None:
    """Print the benchmark's result as a table: a line per operator."""
    console = wide_console()
    table = plain_table(f"host µs per call, Triton → launchkit ({where(document)})")
    for heading in ("operator", "launches", "in all", "in launches", "ratio", "equal"):
        table.add_column(heading, justify="left" if heading == "operator" else "right")
    for row in document["rows"]:
        table.add_row(
            row["operator"],
            str(row["launches"]),
            f"{row['host_us_before']:.0f} → {row['host_us_after']:.0f}",
            f"{row['launch_us_before']:.0f} → {row['launch_us_after']:.0f}",
            f"{row['launch_ratio']:.2f}",
            {True: "yes", False: "no"}.get(row.get("equal"), "-"),
        )
    console.print(table)
    console.print(
        "Forward and backward, medians, one config per kernel. in launches: the part spent in "
        "kernel[grid](...); ratio: of that. equal: outputs and gradients have the same bits.",
        highlight=False,
        markup=False,
    )
