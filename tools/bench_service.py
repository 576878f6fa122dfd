"""``launchkit bench service``: what the config service holds out and holds back. A command.

Exit codes: 0 all as it must be, 1 something is not, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from launchkit.errors import UsageError
from launchkit.tools.bench_output import (
    Output,
    benchmark,
    check_above_zero,
    check_at_least,
    give,
    plain_table,
    print_title,
    wide_console,
)
from launchkit.tools.output import AsJson, counted, print_text
from launchkit.tools.output_files import check_output

Database = Annotated[
    Literal["sqlite", "postgresql"],
    typer.Option(help="postgresql: a server of its own, of the installed packages."),
]


def service(
    fleet: Annotated[
        bool, typer.Option("--fleet", help="Hosts that miss one key at once.")
    ] = False,
    load: Annotated[bool, typer.Option("--load", help="Lookups among many records.")] = False,
    soak: Annotated[
        bool, typer.Option("--soak", help="Memory under every kind of request.")
    ] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="Servers and databases that are killed.")
    ] = False,
    database: Database = "postgresql",
    replicas: Annotated[int, typer.Option(help="Servers over the one database.")] = 2,
    clients: Annotated[
        int | None, typer.Option(help="Hosts, or clients at once. Default: 200, or 500.")
    ] = None,
    records: Annotated[int, typer.Option(help="Records that --load and --soak store.")] = 100_000,
    seconds: Annotated[
        float, typer.Option(help="Of each row of --load, and of all of --soak.")
    ] = 20.0,
    per_s: Annotated[
        float | None, typer.Option(help="Requests a second of --soak. Default: all it can.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Of each of --faults.")] = 10,
    as_json: AsJson = False,
    output: Output = None,
) -> None:
    """Start servers of the config service on this machine and put one of four trials to them.

    SQLite has one server's file; PostgreSQL arbitrates between several replicas.
    """
    chosen = [n for n, on in zip(_TRIALS, (fleet, load, soak, faults), strict=True) if on]
    if len(chosen) != 1:
        raise UsageError("give one of --fleet, --load, --soak and --faults.")
    check_at_least("--replicas", replicas, 1)
    check_at_least("--clients", 1 if clients is None else clients, 1)
    check_at_least("--records", records, 100)
    check_at_least("--rounds", rounds, 1)
    check_above_zero("--seconds", seconds)
    check_above_zero("--per-s", 1 if per_s is None else per_s)
    check_output(output)
    told = {"clients": clients, "records": records, "seconds": seconds, "per_s": per_s,
            "rounds": rounds}  # fmt: skip
    with counted("records stored", None) as advance:
        document = benchmark("service.bench").measure(chosen[0], database, replicas, told, advance)
    give(document, show, as_json, output)
    if not document["ok"]:
        raise typer.Exit(1)


_TRIALS = ("fleet", "load", "soak", "faults")


def show(document: dict[str, Any]) -> None:
    """Print a result as a table: a line for each row."""
    console = wide_console()
    facts = document["machine"]
    right = "as it must be" if document["ok"] else "NOT as it must be"
    print_title(
        console,
        f"{document['trial']}: {right} ({document['replicas']} x launchkit serve, "
        f"{document['database']}; {facts['cores']} cores of {facts['cpu']})",
    )
    columns = _COLUMNS[document["trial"]]
    table = plain_table(columns)
    for row in document["rows"]:
        table.add_row(*(_cell(row.get(name)) for name in columns.values()))
    console.print(table)
    for row in document["rows"]:
        for wrong in row.get("wrong", ()):
            print_text(console, wrong)


_COLUMNS: dict[str, dict[str, str]] = {
    "fleet": {
        "scene": "scene", "hosts": "hosts", "keys": "keys", "tuned": "tuned",
        "got it": "got_the_result", "median s": "waited_median_s", "max s": "waited_max_s",
        "right": "ok",
    },
    "load": {
        "case": "case", "clients": "clients", "per s": "per_s", "p50 ms": "p50_ms",
        "p99 ms": "p99_ms", "max ms": "max_ms", "errors": "errors",
    },
    "soak": {
        "pid": "pid", "s": "seconds", "first": "first_bytes", "last": "last_bytes",
        "growth": "growth_bytes", "threads": "threads_last", "files": "files_last", "flat": "flat",
    },
    "faults": {
        "fault": "fault", "rounds": "rounds", "acknowledged": "acknowledged", "lost": "lost",
        "slowest s": "slowest_s", "back after s": "recovered_max_s", "right": "ok",
    },
}  # fmt: skip


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 100 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
