"""What an export says of itself: version, clock, processes, threads, devices. Above the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import polars as pl

from launchkit.profiling.timeline.model import Format, Source
from launchkit.profiling.timeline.nsys.owners import owner, thread
from launchkit.profiling.timeline.nsys.tables import Export

_MAJOR = 3
_LEVELS = {2: "warning", 3: "error"}
_SHOWN = 20


@dataclass(frozen=True)
class Metadata:
    """The export's own words on how it was made."""

    values: dict[str, str]
    duration_ns: int | None
    utc_epoch_ns: int | None

    def source(self, path: str, form: Format, host_only: bool) -> Source:
        """Return the source of a timeline that is read from ``path``."""
        return Source(
            path=path,
            format=form,
            product=self.values.get("EXPORT_PRODUCT_NAME", ""),
            version=self.values.get("EXPORT_PRODUCT_VERSION", ""),
            schema=self.values.get("EXPORT_SCHEMA_VERSION", ""),
            utc_epoch_ns=self.utc_epoch_ns,
            duration_ns=self.duration_ns,
            host_only=host_only,
        )


def read_metadata(export: Export) -> Metadata:
    """Return how the export was made, and warn of a schema that is newer than those known."""
    text = {"name": pl.String, "value": pl.String}
    rows = [
        row
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT")
        for row in export.read(table, text).drop_nulls().iter_rows()
    ]
    values = dict(rows)
    schema = values.get("EXPORT_SCHEMA_VERSION", "")
    major = schema.split(".")[0]
    if not schema:
        export.warn("the export does not say its schema version: it is read like schema 3")
    elif major != str(_MAJOR):
        export.warn(f"schema {schema} is not known: what is there under known names is read")
    duration = _first(export, "ANALYSIS_DETAILS", "duration")
    return Metadata(values, duration if duration else None, _epoch(export, values))


def read_diagnostics(export: Export) -> None:
    """Add to the warnings what Nsight Systems itself warned of."""
    columns = {"severity": pl.Int64, "text": pl.String}
    rows = export.read("DIAGNOSTIC_EVENT", columns).drop_nulls()
    told = rows.filter(pl.col("severity").is_in(list(_LEVELS))).unique(maintain_order=True)
    for severity, text in told.head(_SHOWN).iter_rows():
        export.warn(f"Nsight Systems {_LEVELS[severity]}: {text.strip()}")
    if told.height > _SHOWN:
        export.warn(f"Nsight Systems has {told.height - _SHOWN} more warnings in DIAGNOSTIC_EVENT")


def read_processes(export: Export) -> pl.DataFrame:
    """Return the names of the owners that the export lists: all processes of the machine, maybe."""
    rows = export.read("PROCESSES", {"globalPid": pl.Int64, "name": pl.String})
    named = rows.filter(pl.col("globalPid").is_not_null()).select(
        process=owner("globalPid"), name=pl.col("name").fill_null("")
    )
    export.counts.add("PROCESSES", read=rows.height)
    # Where it is installed is not for a report.
    short = [PurePosixPath(name).name or name for name in named["name"].to_list()]
    return named.with_columns(name=pl.Series(short, dtype=pl.String)).unique(
        "process", keep="first", maintain_order=True
    )


def read_threads(export: Export) -> pl.DataFrame:
    """Return the threads' names: of several, the one of the highest priority."""
    columns = dict.fromkeys(("nameId", "priority", "globalTid"), pl.Int64)
    rows = export.named(export.read("ThreadNames", columns), "nameId", "name")
    rows = rows.with_columns(process=owner("globalTid"), thread=thread("globalTid"))
    rows = rows.sort(pl.col("priority").fill_null(0), descending=True, maintain_order=True)
    return rows.select("process", "thread", "name")


def _first(export: Export, table: str, column: str) -> int | None:
    values = export.read(table, {column: pl.Int64})[column].drop_nulls()
    return int(values[0]) if len(values) else None


def _epoch(export: Export, values: dict[str, str]) -> int | None:
    if values.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":
        return 0
    start = _first(export, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    shift = values.get("EXPORT_PARAM_TIME_SHIFT") or "0"
    moved = int(shift) if shift.lstrip("+-").isdecimal() and len(shift) < 20 else 0
    return None if start is None else start - moved
