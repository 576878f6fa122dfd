"""``launchkit bench costs``: what launchkit costs a program beside its launches. A command.

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
    check_at_least,
    check_output,
    check_settings,
    give,
    plain_table,
    print_title,
    where,
    wide_console,
)

_LEGEND = (
    "Medians. Imports are CPU time in fresh processes; the launch path beside torch and Triton, "
    "which are imported already. First calls: of a kind whose kernel is compiled. Plans: bytes that each "
    "kind leaves behind. Ranges are annotate's; off: no tool and no recording; sampled: one "
    "launch of a thousand is recorded."
)
_PARTS = 4


def costs(
    rounds: Annotated[int, typer.Option(help="How often each is timed, at least 2.")] = 15,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Measure imports, first launches, memory of plans, ranges and recording, without a GPU."""
    check_at_least("--rounds", rounds, 2)
    check_output(output)
    check_settings()
    module = benchmark("costs")
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=_PARTS)
        document = module.measure(rounds, advance=lambda: progress.advance(task))
    give(document, show, as_json, output)


def show(document: dict[str, Any]) -> None:
    """Print a result as a table: a line for each thing that costs."""
    console = wide_console()
    print_title(console, f"what else launchkit costs ({where(document)})")
    table = plain_table()
    for heading in ("what", "median", "p90"):
        table.add_column(heading, justify="left" if heading == "what" else "right", no_wrap=True)
    for row in document["rows"]:
        if "bytes" in row:
            table.add_row(row["what"], f"{row['bytes']:,} bytes", "")
        else:
            table.add_row(row["what"], _time(row["median_us"]), _time(row["p90_us"]))
    console.print(table)
    console.print(_LEGEND, highlight=False, markup=False)


def _time(time_us: float) -> str:
    return f"{time_us / 1000:.1f} ms" if time_us >= 1000 else f"{time_us:.3g} µs"
