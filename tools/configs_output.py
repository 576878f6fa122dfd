"""What the ``configs`` commands share: options, tables, JSON, exit codes. Of the tools."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Literal, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launchkit.configs import TunedRecord
from launchkit.errors import LaunchkitError
from launchkit.printing import printable, printable_lines
from launchkit.store import ConfigStore, LayeredStore, open_store

StorePlace = Annotated[
    str | None,
    typer.Option("--store", help="A directory or URL; left out: LAUNCHKIT_STORE, or the cache."),
]
KernelPart = Annotated[
    str | None, typer.Option("--kernel", help="Only kernels whose name has this part.")
]
DevicePart = Annotated[
    str | None, typer.Option("--device", help="Only devices whose name or architecture has this.")
]

_FIGURES = (
    "of",
    "records",
    "median µs",
    "spread",
    "p20",
    "p80",
    "reps",
    "ratio",
    "age",
    "KiB",
    "µs",
)
_WIDE = ("kernel", "key", "chosen", "config", "failed", "ours", "theirs", "before", "after", "place",
         "text", "what", "why", "value", "name", "namespaces", "state")  # fmt: skip


def open_or_exit(place: str | None) -> ConfigStore:
    """Return the store at a place; exit code 2 where it cannot be opened."""
    try:
        store = open_store(place)
    except LaunchkitError as error:
        fail(str(error))
    store.take_time()
    return store


def target_or_exit(place: str | None, dry_run: bool) -> ConfigStore:
    """Return the store to write to: of several layers the one that is written.

    Exit code 2 where there is none, unless nothing is to be written.
    """
    store = open_or_exit(place)
    if isinstance(store, LayeredStore) and store.writable is not None:
        return store.writable
    if store.read_only and not dry_run:
        fail(f"the {store.describe()} is read-only. Give another store to write to.")
    return store


def fail(message: str) -> NoReturn:
    """End with exit code 2: bad use."""
    typer.echo(f"launchkit configs: {printable_lines(message)}", err=True)
    raise typer.Exit(2) from None


def finding(message: str) -> NoReturn:
    """End with exit code 1: there is something to look at."""
    typer.echo(printable_lines(message), err=True)
    raise typer.Exit(1)


def wanted(
    records: Iterable[TunedRecord], kernel: str | None, device: str | None
) -> Iterator[TunedRecord]:
    """Yield the records that fit the filters of a command."""
    for record in records:
        of_kernel = kernel is None or kernel in record.kernel.name
        if of_kernel and (device is None or device in f"{record.device.name} {record.device.arch}"):
            yield record


def show(table: Table) -> None:
    """Print a table."""
    Console().print(table)


def identified(record: TunedRecord) -> dict[str, Any]:
    """Return what a record is for, as JSON has it."""
    return {"kernel": asdict(record.kernel), "device": asdict(record.device)}


def located(record: TunedRecord) -> dict[str, Any]:
    """Return a record's whole identity, as JSON has it."""
    return identified(record) | {
        "toolchain": asdict(record.toolchain),
        "key": record.key.text,
        "key_digest": record.key.digest,
    }


def won(record: TunedRecord) -> dict[str, Any]:
    """Return a record's winner, as JSON has it."""
    winner = record.winner
    return {
        "config": winner.text,
        "median_us": winner.median_us,
        "method": winner.method,
        "tuned_at": record.tuned_at,
    }


def show_by_owner(columns: list[str], rows: Iterable[tuple[TunedRecord, list[str]]]) -> None:
    """Print a table per kernel, device and toolchain, whose names would take up each row's width."""
    here: dict[str, list[list[str]]] = {}
    for record, row in rows:
        here.setdefault(owner(record), []).append(row)
    for title, mine in sorted(here.items()):
        show(table(title, columns, mine))


def owner(record: TunedRecord) -> str:
    """Return a record's kernel, device and toolchain for people."""
    return f"{record.kernel.name} · {record.device.name} · {record.toolchain.text}"


def short_key(record: TunedRecord) -> str:
    """Return a record's key for a table."""
    return record.key.text.replace(":torch.", ":")


def won_cell(record: TunedRecord) -> str:
    """Return a record's winner for a table, with its time."""
    time = us(record.winner.median_us)
    return f"{record.winner.text} ({time} µs)" if time else record.winner.text


def table(title: str, columns: list[str], rows: Iterable[list[str]]) -> Table:
    """Return a table in which what is short keeps its line, and the rest shares what is left."""
    made = Table(
        title=cell(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for column in columns:
        side: Literal["left", "right"] = "right" if column in _FIGURES else "left"
        made.add_column(column, overflow="fold", no_wrap=column not in _WIDE, justify=side)
    for row in rows:
        made.add_row(*(cell(text) for text in row))
    return made


def cell(text: str) -> Text:
    """Stored text comes from other machines: no markup, no control characters."""
    return Text(printable(text))


def us(time_us: float | None) -> str:
    """Return a time for a table; nothing where there is none."""
    return "" if time_us is None else f"{time_us:.2f}"


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on a terminal what takes so long."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield
