"""The one timeline that every capture becomes: tables on one clock. Above counts.

Times are int64 ns on one clock per timeline, whatever the capture counted in. ``TABLES`` gives the
columns of each table; a table may have more columns behind them. A process is its pid, a thread its
native thread id (``UNKNOWN`` where none is named). Ids (``range_id``, ``call_id``, ``gpu_id``) are
row numbers: ranges and calls stand sorted by process, thread, start, end (the longer first), GPU
work by process, device, start, end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from launchkit.errors import UsageError
from launchkit.profiling.timeline.counts import RowCounts

UNKNOWN = -1
"""The process or thread of a row that names none."""

Format = Literal["nsys-sqlite", "nsys-parquet", "nsys-arrow", "chrome", "launchkit", "py-spy"]

RANGE_KINDS = pl.Enum(["push_pop", "start_end", "mark"])
CALL_KINDS = pl.Enum(
    ["launch", "graph_launch", "sync", "memcpy", "memset", "alloc", "other", "unknown_launch"]
)
CALL_LAYERS = pl.Enum(["runtime", "driver"])
GPU_KINDS = pl.Enum(["kernel", "memcpy", "memset", "graph"])
OVERHEAD_KINDS = pl.Enum(
    [
        "queue_full",
        "jit",
        "lazy_loading",
        "module_loading",
        "flush",
        "instrumentation",
        "resource",
        "other",
    ]
)

TABLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "ranges": {
            "range_id": pl.UInt32,
            "process": pl.Int64,
            "thread": pl.Int64,
            "domain": pl.String,  # "" is the default domain
            "name": pl.String,
            "category": pl.String,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "kind": RANGE_KINDS,
            "closed": pl.Boolean,
            "end_thread": pl.Int64,
            "payload": pl.String,
        },
        "calls": {
            "call_id": pl.UInt32,
            "process": pl.Int64,
            "thread": pl.Int64,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "name": pl.String,
            "kind": CALL_KINDS,
            "layer": CALL_LAYERS,
            "correlation": pl.Int64,
            "outermost": pl.Boolean,
            "returned": pl.Int64,
        },
        "gpu": {
            "gpu_id": pl.UInt32,
            "process": pl.Int64,
            "device": pl.Int64,
            "context": pl.Int64,
            "stream": pl.Int64,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "name": pl.String,
            "full_name": pl.String,
            "kind": GPU_KINDS,
            "correlation": pl.Int64,
            "graph_id": pl.Int64,
            "bytes": pl.Int64,
        },
        "overheads": {
            "process": pl.Int64,
            "thread": pl.Int64,
            "start_ns": pl.Int64,
            "end_ns": pl.Int64,
            "kind": OVERHEAD_KINDS,
        },
        "samples": {
            "process": pl.Int64,
            "thread": pl.Int64,
            "time_ns": pl.Int64,
            "frames": pl.List(pl.String),  # the root first
            "weight": pl.Float64,
        },
        "processes": {"process": pl.Int64, "name": pl.String, "rank": pl.Int64},
        "threads": {"process": pl.Int64, "thread": pl.Int64, "name": pl.String},
        "devices": {"device": pl.Int64, "name": pl.String, "sm_count": pl.Int64},
    }
)

_IDS = {"ranges": "range_id", "calls": "call_id", "gpu": "gpu_id"}
_ON_A_THREAD = ("process", "thread", "start_ns", "end_ns")
_ORDERS = {
    "ranges": _ON_A_THREAD,
    "calls": _ON_A_THREAD,
    "gpu": ("process", "device", "start_ns", "end_ns"),
    "overheads": _ON_A_THREAD,
}
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "thread": UNKNOWN,
        "domain": "",
        "name": "",
        "closed": True,
        "outermost": True,
        "device": 0,
        "weight": 1.0,
    }
)


def empty_table(table: str) -> pl.DataFrame:
    """Return ``table`` of ``TABLES`` without rows."""
    return pl.DataFrame(schema=_columns(table))


def table_of(table: str, data: pl.DataFrame | Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return ``data`` as ``table`` of ``TABLES``: every column, in its type, sorted, numbered.

    A column that is missing, or null where the model has no null, gets its default (thread -1,
    domain and name "", closed and outermost true, device 0, weight 1), else it is null. Columns
    that the model does not know stand behind its own. Raises UsageError for an unknown table.
    """
    columns = _columns(table)
    frame = data if isinstance(data, pl.DataFrame) else _of_rows(list(data), columns)
    if not frame.columns:
        return empty_table(table)
    known = [_column(frame, name, dtype) for name, dtype in columns.items()]
    more = [pl.col(name) for name in frame.columns if name not in columns]
    frame = frame.select(known + more)
    order = _ORDERS.get(table)
    if order:
        frame = frame.sort(
            order, descending=[key == "end_ns" for key in order], maintain_order=True
        )
    if table in _IDS:
        number = pl.int_range(pl.len(), dtype=pl.UInt32).alias(_IDS[table])
        frame = frame.with_columns(number)
    return frame


def _of_rows(rows: list[Mapping[str, Any]], columns: Mapping[str, Any]) -> pl.DataFrame:
    names = dict.fromkeys(name for row in rows for name in row)
    return pl.DataFrame(
        {name: [row.get(name) for row in rows] for name in names},
        schema={name: columns.get(name) for name in names},
        strict=False,
    )


def _column(frame: pl.DataFrame, name: str, dtype: Any) -> pl.Expr:
    if name not in frame.columns:
        return pl.lit(_DEFAULTS.get(name), dtype=dtype).alias(name)
    made = pl.col(name).cast(dtype)
    return made.fill_null(_DEFAULTS[name]) if name in _DEFAULTS else made


def _columns(table: str) -> Mapping[str, Any]:
    if table not in TABLES:
        raise UsageError(
            f"a timeline has no table {table!r}. It has: {', '.join(TABLES)}.",
            table=table,
        )
    return TABLES[table]


@dataclass(frozen=True)
class Source:
    """Where a timeline comes from.

    ``utc_epoch_ns`` is the UTC time of 0 ns on its clock, ``duration_ns`` how long the capture
    ran (None: unknown). ``host_only``: no GPU work was captured, so nothing can be said of it.
    ``calibration`` holds what the recorder measured of itself, in ns, by name.
    """

    path: str
    format: Format
    product: str = ""
    version: str = ""
    schema: str = ""
    utc_epoch_ns: int | None = None
    duration_ns: int | None = None
    host_only: bool = False
    calibration: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeline:
    """A capture of any profiler, as tables on one clock; ``TABLES`` has their columns.

    ``ranges``: annotations of the host. ``calls``: runtime and driver API calls, and launches of an
    own profile. ``gpu``: kernels, copies, sets and whole graphs. ``overheads``: what the driver and
    the profiler say of their own time. ``samples``: Python stacks. ``counts`` says which rows were
    read, used and dropped, ``warnings`` what else the reader should know.
    """

    source: Source
    ranges: pl.DataFrame = field(default_factory=partial(empty_table, "ranges"))
    calls: pl.DataFrame = field(default_factory=partial(empty_table, "calls"))
    gpu: pl.DataFrame = field(default_factory=partial(empty_table, "gpu"))
    overheads: pl.DataFrame = field(default_factory=partial(empty_table, "overheads"))
    samples: pl.DataFrame = field(default_factory=partial(empty_table, "samples"))
    processes: pl.DataFrame = field(default_factory=partial(empty_table, "processes"))
    threads: pl.DataFrame = field(default_factory=partial(empty_table, "threads"))
    devices: pl.DataFrame = field(default_factory=partial(empty_table, "devices"))
    counts: RowCounts = field(default_factory=RowCounts)
    warnings: tuple[str, ...] = ()

    def with_tables(self, **tables: pl.DataFrame) -> Timeline:
        """Return this timeline with other ``tables``, each by its name, as ``table_of`` makes them."""
        made: dict[str, Any] = {name: table_of(name, data) for name, data in tables.items()}
        return replace(self, **made)

    def warned(self, *warnings: str) -> Timeline:
        """Return this timeline with further ``warnings``; one that it has already is not repeated."""
        return replace(self, warnings=tuple(dict.fromkeys(self.warnings + warnings)))

    def span_ns(self) -> tuple[int, int]:
        """Return the first start and the last end of ranges, calls and GPU work: (0, 0) without."""
        frames = [each for each in (self.ranges, self.calls, self.gpu) if each.height]
        if not frames:
            return 0, 0
        starts = [int(each["start_ns"].min()) for each in frames]  # type: ignore[arg-type]
        ends = [int(each["end_ns"].max()) for each in frames]  # type: ignore[arg-type]
        return min(starts), max(ends)
