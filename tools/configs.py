"""``launchkit configs``: what tuning has stored. A command; uses public names only.

Exit codes: 0 something was found, 1 nothing was, 2 bad use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launchkit import jsonio
from launchkit.configs import TunedConfig, TunedRecord, config_text
from launchkit.errors import LaunchkitError
from launchkit.store import ConfigStore, open_store
from launchkit.store.document import record_object

app = typer.Typer(help="Look at stored tuned configs.", no_args_is_help=True)

StorePlace = Annotated[
    str | None,
    typer.Option("--store", help="A directory or URL; left out: LAUNCHKIT_STORE, or the cache."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


@app.command("list")
def list_configs(store: StorePlace = None, as_json: AsJson = False) -> None:
    """List every stored record: kernel, device, key and the chosen config."""
    opened = _open(store)
    found = list(opened.records())
    if as_json:
        _echo_json(opened, [_summary(record) for record in found])
    for table in [] if as_json else _list_tables(found):
        _print(table)
    if not found:
        _nothing(f"No tuned configs are stored in the {opened.describe()}.")


@app.command("show")
def show_configs(
    kernel: Annotated[str, typer.Argument(help="A kernel's name, or a part of it.")],
    store: StorePlace = None,
    as_json: AsJson = False,
) -> None:
    """Show every config of a kernel with its times; the chosen one and failures are marked."""
    opened = _open(store)
    found = [record for record in opened.records() if kernel in record.kernel.name]
    if as_json:
        _echo_json(opened, [_identified(record) | record_object(record) for record in found])
    for record in [] if as_json else found:
        _print(_record_table(record))
    if not found:
        _nothing(f"No tuned configs of {kernel!r} are stored in the {opened.describe()}.")


def _open(place: str | None) -> ConfigStore:
    try:
        return open_store(place)
    except LaunchkitError as error:
        typer.echo(f"launchkit configs: {error}", err=True)
        raise typer.Exit(2) from None


def _nothing(message: str) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(1)


def _echo_json(store: ConfigStore, records: list[dict[str, Any]]) -> None:
    typer.echo(jsonio.dumps({"store": store.describe(), "records": records}), nl=False)


def _print(table: Table) -> None:
    Console().print(table)


def _identified(record: TunedRecord) -> dict[str, Any]:
    return {"kernel": asdict(record.kernel), "device": asdict(record.device)}


def _summary(record: TunedRecord) -> dict[str, Any]:
    fastest_us, slowest_us = _extremes_us(record)
    return _identified(record) | {
        "toolchain": asdict(record.toolchain),
        "key": record.key.text,
        "configs": len(record.configs),
        "failed": sum(not tuned.ok for tuned in record.configs),
        "chosen": config_text(record.chosen),
        "median_us": record.winner.median_us,
        "fastest_us": fastest_us,
        "slowest_us": slowest_us,
        "spread": None if fastest_us is None or slowest_us is None else slowest_us / fastest_us,
    }


def _extremes_us(record: TunedRecord) -> tuple[float | None, float | None]:
    """Least and greatest median; None where only an imported winner without a time is known."""
    medians_us = [tuned.median_us for tuned in record.configs if tuned.median_us is not None]
    return min(medians_us, default=None), max(medians_us, default=None)


_FIGURES = ("of", "median µs", "spread", "p20", "p80", "reps")
_LIST_COLUMNS: dict[str, Callable[[TunedRecord], str]] = {
    "kernel": lambda record: record.kernel.name,
    "key": lambda record: record.key.text.replace(":torch.", ":"),
    "chosen": lambda record: config_text(record.chosen),
    "of": lambda record: str(len(record.configs)),
    "median µs": lambda record: _us(record.winner.median_us),
    "spread": lambda record: _us(_summary(record)["spread"]),
}


def _list_tables(records: list[TunedRecord]) -> Iterator[Table]:
    """Yield a table per device and toolchain, which would take up the width of each row."""
    titles = {record: f"{record.device.name} {record.device.arch}, {record.toolchain.text}"
              for record in records}  # fmt: skip
    for title in sorted(set(titles.values())):
        here = [record for record in records if titles[record] == title]
        rows = ([column(record) for column in _LIST_COLUMNS.values()] for record in here)
        yield _table(title, list(_LIST_COLUMNS), rows)


def _record_table(record: TunedRecord) -> Table:
    title = [record.kernel.name, record.device.name, record.toolchain.text, record.key.text]
    ordered = sorted(record.configs, key=lambda tuned: (not tuned.ok, tuned.median_us or 0.0))
    columns = ["", "config", "median µs", "p20", "p80", "reps", "method", "failed"]
    return _table(" · ".join(title), columns, (_config_row(record, each) for each in ordered))


def _config_row(record: TunedRecord, tuned: TunedConfig) -> list[str]:
    times = [_us(tuned.median_us), _us(tuned.p20_us), _us(tuned.p80_us)]
    reps = "" if tuned.reps is None else str(tuned.reps)
    mark = "chosen" if tuned.config == record.chosen else ""
    return [mark, tuned.text, *times, reps, tuned.method, tuned.error or ""]


def _table(title: str, columns: list[str], rows: Iterator[list[str]]) -> Table:
    table = Table(
        title=_cell(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False,
        pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    for column in columns:
        # What is short keeps its line; the rest shares what is left.
        wide = column in ("kernel", "key", "chosen", "config", "failed")
        side: Literal["left", "right"] = "right" if column in _FIGURES else "left"
        table.add_column(column, overflow="fold", no_wrap=not wide, justify=side)
    for row in rows:
        table.add_row(*(_cell(text) for text in row))
    return table


def _cell(text: str) -> Text:
    """Stored text comes from other machines: no markup, no control characters."""
    return Text("".join(each if each.isprintable() else ascii(each)[1:-1] for each in text))


def _us(time_us: float | None) -> str:
    return "" if time_us is None else f"{time_us:.2f}"
