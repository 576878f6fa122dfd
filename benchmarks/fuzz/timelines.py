"""What ``launchkit bench fuzz`` feeds the readers of captures, and the rules for what they make of it.

Needs polars, which comes with the extra ``profile``.
"""

from __future__ import annotations

import functools
import io
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import polars as pl

from launchkit.benchmarks.fuzz.mutations import damaged, mutated, noise
from launchkit.errors import TimelineError
from launchkit.profiling.timeline import (
    TABLES,
    Timeline,
    analyse,
    api_summary,
    execution_summary,
    kernel_summary,
    range_kernel_summary,
    range_summary,
    read_timeline,
)

Files = dict[str, bytes]
Content = dict[str, list[dict[str, Any]]]
_PID = 1 << 48 | 500 << 24
_IN_TIME = ("ranges", "calls", "gpu", "overheads")
_EVENTS = {
    "ranges": ("NVTX_EVENTS",),
    "calls": ("CUPTI_ACTIVITY_KIND_RUNTIME",),
    "gpu": tuple(
        f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
    ),
    "overheads": ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD"),
}


@functools.cache
def export() -> Content:
    """Return the tables of a small export that has a row of every kind."""
    names = ("step", "launchkit", "op", "add", "add(float *)", "cudaLaunchKernel_v7000",
             "cudaStreamBeginCapture_v10000", "cudaGraphLaunch_v10000", "python")  # fmt: skip
    rows: Content = {
        "StringIds": [{"id": number, "value": name} for number, name in enumerate(names)],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.0"},
                             {"name": "EXPORT_PARAM_TIME_SHIFT", "value": "0"}],
        "ANALYSIS_DETAILS": [{"duration": 900, "startTime": 0, "stopTime": 900}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000}],
        "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H200", "smCount": 132, "cuDevice": 0}],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": 500}],
        "PROCESSES": [{"globalPid": _PID, "pid": 500, "name": "/usr/bin/python3"}],
        "ThreadNames": [{"nameId": 8, "priority": 20, "globalTid": _PID | 501}],
        "DIAGNOSTIC_EVENT": [{"severity": 2, "text": "Not all events might have been collected."}],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 59, "name": "NvtxPushPopRange"}],
        "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "label": "Host-to-Device"}],
    }  # fmt: skip
    return {**rows, **_events()}


def _events() -> Content:
    nvtx = {"rangeId": None, "category": None, "text": None, "globalTid": _PID | 501, "endGlobalTid": None,
            "textId": None, "domainId": 1, "uint64Value": None, "doubleValue": None, "jsonText": None}  # fmt: skip
    call = {"eventClass": 0, "globalTid": _PID | 501, "returnValue": 0}
    work = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": _PID, "graphNodeId": None}
    late = {"globalTid": _PID | 501, "correlationId": 1}
    return {
        "NVTX_EVENTS": [
            {**nvtx, "start": 0, "end": None, "eventType": 75, "textId": 1},
            {**nvtx, "start": 1, "end": None, "eventType": 33, "category": 2, "text": "op"},
            {**nvtx, "start": 2, "end": 700, "eventType": 59, "textId": 0, "uint64Value": 3},
            {**nvtx, "start": 9, "end": 600, "eventType": 59, "text": "aten::mul, op_id = 7", "category": 2},
            {**nvtx, "start": 50, "end": 800, "eventType": 60, "text": "request", "rangeId": 1},
            {**nvtx, "start": 60, "end": None, "eventType": 34, "text": "mark", "doubleValue": 1.5},
            {**nvtx, "start": 750, "end": 900, "eventType": 59, "text": "never closed"},
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {**call, "start": 10, "end": 20, "correlationId": 1, "nameId": 5},
            {**call, "start": 30, "end": 35, "correlationId": 2, "nameId": 6},
            {**call, "start": 40, "end": 45, "correlationId": 3, "nameId": 5},
            {**call, "start": 70, "end": 90, "correlationId": 4, "nameId": 7},
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {**work, "start": 25, "end": 60, "correlationId": 1, "shortName": 3, "demangledName": 4},
            {**work, "start": 26, "end": 61, "correlationId": 9, "shortName": 3, "demangledName": 4},
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {**work, "start": 95, "end": 99, "correlationId": 5, "bytes": 64, "copyKind": 1}
        ],
        "CUPTI_ACTIVITY_KIND_MEMSET": [{**work, "start": 99, "end": 99, "correlationId": 6, "bytes": 4}],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [
            {**work, "start": 91, "end": 99, "correlationId": 4, "graphId": 1, "graphExecId": 2}
        ],
        "CUPTI_ACTIVITY_KIND_OVERHEAD": [{**late, "start": 12, "end": 18, "overheadType": 8}],
        "PROFILER_OVERHEAD": [{**late, "start": 100, "end": 120}],
    }  # fmt: skip


def make_sqlite(rng: Random) -> Files:
    """Return an export with changed rows, columns or tables, or a damaged file."""
    kind = rng.random()
    if kind < 0.02:
        return {"it.sqlite": noise(rng)}
    if kind < 0.4:
        return {"it.sqlite": damaged(rng, _plain())}
    return {"it.sqlite": _written(_changed(rng))}


def make_parquet(rng: Random) -> Files:
    """Return a directory of tables with changed rows, of which one may be damaged."""
    files: Files = {}
    for table, rows in _changed(rng).items():
        if table.isascii() and table.isidentifier():
            buffer = io.BytesIO()
            _frame(rows).write_parquet(buffer)
            files[f"{table}.parquet"] = buffer.getvalue()
    if files and rng.random() < 0.3:
        name = rng.choice(sorted(files))
        files[name] = damaged(rng, files[name])
    return files


def take(folder: Path) -> tuple[Sequence[Any], Sequence[str]]:
    """Read what is in ``folder``; a panic of polars is no TimelineError."""
    files = (folder / name for name in ("it.sqlite", "it.json"))
    try:
        timeline = read_timeline(next((each for each in files if each.exists()), folder))
    except TimelineError as error:
        return (), (error.reason,)
    except BaseException as error:
        if isinstance(error, Exception | KeyboardInterrupt | SystemExit):
            raise
        raise AssertionError(f"polars panicked: {error}") from None
    return (timeline,), timeline.warnings


def check(timelines: Sequence[Timeline]) -> None:
    """Raise AssertionError for a timeline that breaks a rule: rules written apart from the readers."""
    for timeline in timelines:
        for table, columns in TABLES.items():
            frame: pl.DataFrame = getattr(timeline, table)
            assert frame.columns[: len(columns)] == list(columns), f"columns of {table}"
            assert all(frame.schema[name] == dtype for name, dtype in columns.items()), table
        for table in _IN_TIME:
            _check_rows(table, getattr(timeline, table))
        _check_counts(timeline)
        _check_summaries(timeline)
        _check_shares(timeline)


def _check_rows(table: str, frame: pl.DataFrame) -> None:
    places = ("process", "device" if table == "gpu" else "thread")
    keys = [(*row[:3], -row[3]) for row in frame.select(*places, "start_ns", "end_ns").iter_rows()]
    assert keys == sorted(keys), f"{table} is not sorted"
    assert all(start <= -end for _, _, start, end in keys), f"{table} ends before it starts"
    if table != "overheads":
        assert frame.to_series(0).to_list() == list(range(frame.height)), f"ids of {table}"


def _check_counts(timeline: Timeline) -> None:
    for table, counts in timeline.counts:
        assert counts.read == counts.used + counts.dropped.total(), f"counts of {table}"
        assert min(counts.used, *counts.dropped.values(), *counts.noted.values(), 0) >= 0, table
    if timeline.source.format.startswith("nsys"):
        for table, sources in _EVENTS.items():
            used = sum(timeline.counts[source].used for source in sources)
            height = getattr(timeline, table).height
            assert height <= used if table == "ranges" else height == used, f"rows of {table}"


def _check_shares(timeline: Timeline) -> None:
    """Every sample has a place in the tables of samples, and shares with their intervals are shares."""
    analysis = analyse(timeline) if timeline.samples.height else None
    for table in (analysis.python, analysis.frames) if analysis else ():
        ordered = table.filter(
            (pl.col("low") <= pl.col("share")) & (pl.col("share") <= pl.col("high"))
        )
        assert ordered.height == table.height, "an interval without its share"
        assert table.filter((pl.col("low") < 0) | (pl.col("high") > 1)).is_empty(), "no share"


def _check_summaries(timeline: Timeline) -> None:
    ranges, calls = range_summary(timeline, unclosed=True), api_summary(timeline)
    marks = int((timeline.ranges["kind"] == "mark").sum())
    assert ranges["count"].sum() == timeline.ranges.height - marks
    assert calls["count"].sum() == timeline.calls.height
    spent = sum(
        end - start for start, end in timeline.calls.select("start_ns", "end_ns").iter_rows()
    )
    assert spent >= 2**63 or calls["total_ns"].sum() == spent, "time of calls"
    kernels = kernel_summary(timeline)["count"].sum()
    assert kernels == int((timeline.gpu["kind"] == "kernel").sum())
    assert execution_summary(timeline)["count"].sum() <= kernels
    range_kernel_summary(timeline)


def _changed(rng: Random) -> Any:
    content = mutated(rng, export())
    if not isinstance(content, dict):
        return {}
    if content and rng.random() < 0.3:
        # A table or a column under another name, as another version of the exporter may have it.
        name = rng.choice(sorted(content))
        content[f"{name}_V{rng.randrange(4)}"] = content.pop(name)
    return content


@functools.cache
def _plain() -> bytes:
    return _written(export())


def _written(content: Any) -> bytes:
    """Return an SQLite file of these tables, as far as SQLite takes them."""
    with tempfile.TemporaryDirectory(prefix="launchkit-fuzz-") as folder:
        path = Path(folder, "export.sqlite")
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = OFF")
        for table, rows in content.items():
            _write_table(connection, table, rows)
        connection.close()
        return path.read_bytes()


def _write_table(connection: sqlite3.Connection, table: str, rows: Any) -> None:
    rows, columns = _rows(rows)
    listed = ", ".join(_quoted(name) for name in columns)
    try:
        connection.execute(f"CREATE TABLE {_quoted(table)} ({listed})")
        for row in rows:
            values = [_stored(row.get(name)) for name in columns]
            marks = ", ".join("?" * len(columns))
            connection.execute(f"INSERT INTO {_quoted(table)} VALUES ({marks})", values)
    except (sqlite3.Error, ValueError, UnicodeError):
        return


def _rows(rows: Any) -> tuple[list[dict[str, Any]], list[str]]:
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    names = dict.fromkeys(name for row in rows for name in row if name.isprintable())
    return rows, list(names) or ["start", "end"]


def _frame(rows: Any) -> pl.DataFrame:
    """Return rows as a frame: a column of several types becomes one of texts."""
    rows, columns = _rows(rows)
    return pl.DataFrame([_series(name, [row.get(name) for row in rows]) for name in columns])


def _series(name: str, values: list[Any]) -> pl.Series:
    types = {type(value) for value in values if value is not None}
    if types <= {int} and all(value is None or abs(value) < 2**63 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if types <= {int, float} and types:
        return pl.Series(name, [None if value is None else _real(value) for value in values])
    texts = [
        None if value is None else ascii(value) if types != {str} else value for value in values
    ]
    return pl.Series(name, [text and text.encode("utf-8", "replace").decode() for text in texts])


def _real(value: float) -> float:
    return float(value) if abs(value) < 2**1000 else 1e300


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _stored(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return _real(value)
    return value if value is None or isinstance(value, int | float | str) else repr(value).encode()
