"""``launchkit configs``: what tuning has stored, shared and pinned. A command; public names only.

Exit codes: 0 done or found, 1 a finding (nothing there, a difference, something to look at), 2 bad use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from launchkit.configs import TunedConfig, TunedRecord, config_text
from launchkit.store.document import record_object
from launchkit.tools import (
    configs_bundle,
    configs_check,
    configs_diff,
    configs_explain,
    configs_gc,
    configs_merge,
    configs_pin,
    configs_service,
)
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    StorePlace,
    finding,
    identified,
    open_or_exit,
    short_key,
    show,
    table,
    us,
    wanted,
)
from launchkit.tools.output import AsJson, echo_json

app = typer.Typer(help="Look at stored tuned configs, share and pin them.", no_args_is_help=True)


@app.command("list")
def list_configs(
    store: StorePlace = None,
    kernel: KernelPart = None,
    device: DevicePart = None,
    as_json: AsJson = False,
) -> None:
    """List every stored record: kernel, device, key and the chosen config."""
    opened = open_or_exit(store)
    found = list(wanted(opened.records(), kernel, device))
    if as_json:
        rows = [_summary(record) for record in found]
        echo_json({"store": opened.describe(), "records": rows})
    for each in [] if as_json else _list_tables(found):
        show(each)
    if not found:
        finding(f"No tuned configs are stored in the {opened.describe()}.")


@app.command("show")
def show_configs(
    kernel: Annotated[str, typer.Argument(help="A kernel's name, or a part of it.")],
    store: StorePlace = None,
    device: DevicePart = None,
    as_json: AsJson = False,
) -> None:
    """Show every config of a kernel with its times; the chosen one and failures are marked."""
    opened = open_or_exit(store)
    found = list(wanted(opened.records(), kernel, device))
    if as_json:
        rows = [identified(record) | record_object(record) for record in found]
        echo_json({"store": opened.describe(), "records": rows})
    for record in [] if as_json else found:
        show(_record_table(record))
    if not found:
        finding(f"No tuned configs of {kernel!r} are stored in the {opened.describe()}.")


app.command("explain")(configs_explain.explain)
app.command("diff")(configs_diff.diff)
app.command("merge")(configs_merge.merge)
app.command("export")(configs_bundle.export_configs)
app.command("import")(configs_bundle.import_configs)
app.command("pin")(configs_pin.pin)
app.command("check")(configs_check.check)
app.command("push")(configs_service.push)
app.command("pull")(configs_service.pull)
app.command("status")(configs_service.status)
app.command("gc")(configs_gc.collect_garbage)


def _summary(record: TunedRecord) -> dict[str, Any]:
    fastest_us, slowest_us = _extremes_us(record)
    return identified(record) | {
        "toolchain": asdict(record.toolchain),
        "key": record.key.text,
        "configs": len(record.configs),
        "failed": sum(not tuned.ok for tuned in record.configs),
        "chosen": config_text(record.chosen),
        "median_us": record.winner.median_us,
        "method": record.winner.method,
        "tuned_at": record.tuned_at,
        "fastest_us": fastest_us,
        "slowest_us": slowest_us,
        "spread": _spread(record),
    }


def _extremes_us(record: TunedRecord) -> tuple[float | None, float | None]:
    medians_us = [tuned.median_us for tuned in record.configs if tuned.median_us is not None]
    return min(medians_us, default=None), max(medians_us, default=None)


def _spread(record: TunedRecord) -> float | None:
    fastest_us, slowest_us = _extremes_us(record)
    return slowest_us / fastest_us if fastest_us and slowest_us else None


_LIST_COLUMNS: dict[str, Callable[[TunedRecord], str]] = {
    "kernel": lambda record: record.kernel.name,
    "key": short_key,
    "chosen": lambda record: config_text(record.chosen),
    "of": lambda record: str(len(record.configs)),
    "median µs": lambda record: us(record.winner.median_us),
    "spread": lambda record: us(_spread(record)),
}


def _list_tables(records: list[TunedRecord]) -> Iterator[Table]:
    """Yield a table per device and toolchain, which would take up the width of each row."""
    here: dict[str, list[TunedRecord]] = {}
    for record in records:
        title = f"{record.device.name} {record.device.arch}, {record.toolchain.text}"
        here.setdefault(title, []).append(record)
    for title in sorted(here):
        rows = ([column(record) for column in _LIST_COLUMNS.values()] for record in here[title])
        yield table(title, list(_LIST_COLUMNS), rows)


def _record_table(record: TunedRecord) -> Table:
    kernel = f"{record.kernel.name} {record.kernel.digest[:12]}"
    title = [kernel, record.device.name, record.toolchain.text, record.key.text]
    ordered = sorted(record.configs, key=lambda tuned: (not tuned.ok, tuned.median_us or 0.0))
    columns = ["", "config", "median µs", "p20", "p80", "reps", "method", "failed"]
    return table(" · ".join(title), columns, (_config_row(record, each) for each in ordered))


def _config_row(record: TunedRecord, tuned: TunedConfig) -> list[str]:
    times = [us(tuned.median_us), us(tuned.p20_us), us(tuned.p80_us)]
    reps = "" if tuned.reps is None else str(tuned.reps)
    mark = "chosen" if tuned.config == record.chosen else ""
    return [mark, tuned.text, *times, reps, tuned.method, tuned.error or ""]
