"""``launchkit bench fuzz``: broken and forged files for every reader. A command.

Exit codes: 0 no failure, 1 failures found, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from launchkit.tools.bench_output import (
    Output,
    Processes,
    benchmark,
    check_at_least,
    give,
    plain_table,
    print_title,
    process_count,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

Targets = Annotated[
    list[str] | None,
    typer.Option("--target", help="A row of the table; may be given several times. Default: all."),
]
_HEADINGS = ("reader", "inputs", "accepted", "records", "reasons", "slowest ms", "failures")


def fuzz(
    inputs: Annotated[int, typer.Option(help="Random inputs in all.")] = 20_000,
    target: Targets = None,
    seed: Annotated[int, typer.Option(help="The same seed makes the same inputs.")] = 0,
    processes: Processes = None,
    replay: Annotated[
        str | None, typer.Option(help="Run this one input again, by a failure's seed.")
    ] = None,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Feed broken and forged files to the readers of documents, bundles, foreign formats, captures.

    A reader may refuse an input as it documents. Whatever it accepts must keep the rules, no
    file may be written elsewhere and no code run, and time and memory are limited.
    """
    check_at_least("--inputs", inputs, 1)
    workers = process_count(processes)
    check_output(output)
    bench = benchmark("fuzz.bench")
    if replay is not None:
        document = _replayed(bench.replay(replay))
    else:
        document = _measured(bench, target, inputs, seed, workers)
    give(document, show, as_json, output)
    if document["failures"]:
        _tell_failures(document)
        raise typer.Exit(1)


def _measured(
    bench: Any, target: list[str] | None, inputs: int, seed: int, workers: int
) -> dict[str, Any]:
    names = tuple(dict.fromkeys(target or bench.TARGETS))
    with counted("inputs read", inputs) as advance:
        found: dict[str, Any] = bench.measure(names, inputs, seed, workers, advance=advance)
    return found


def _replayed(row: dict[str, Any]) -> dict[str, Any]:
    counts = {name: row[name] for name in ("inputs", "accepted", "failures")}
    return {"machine": None, "wall_s": 0.0, "peak_bytes": None, **counts, "rows": [row]}


def show(document: dict[str, Any]) -> None:
    """Print the result as a table: a line per reader."""
    console, facts = wide_console(), document["machine"]
    python = f"Python {facts['python']}; " if facts else ""
    print_title(
        console,
        f"{document['inputs']:,} inputs, {document['failures']} failures "
        f"({python}{document['wall_s']:.0f} s)",
    )
    table = plain_table(_HEADINGS, left=("reader",))
    for row in document["rows"]:
        counts = (row["inputs"], row["accepted"], row["records"], len(row["refused"]))
        figures = (*(f"{count:,}" for count in counts), f"{row['slowest_ms']:.1f}")
        table.add_row(row["target"], *figures, f"{row['failures']:,}")
    console.print(table)
    print_text(
        console,
        "accepted: inputs of which a record was taken, each checked again; reasons: different ones "
        "for which something was refused, counted in the JSON.",
    )


def _tell_failures(document: dict[str, Any]) -> None:
    for row in document["rows"]:
        for failure in row["first_failures"]:
            typer.echo(f"{failure['seed']}: {failure['error']}", err=True)
