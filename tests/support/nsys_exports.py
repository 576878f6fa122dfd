"""Small Nsight Systems exports, written row by row: SQLite, and directories of tables."""

from __future__ import annotations

import sqlite3

import polars as pl

PID, TID = 500, 501
VM = 1 << 48
SCHEMA = "3.24.0"


def global_pid(pid=PID, vm=VM):
    return vm | pid << 24


def global_tid(pid=PID, tid=TID, vm=VM):
    return vm | pid << 24 | tid


def nvtx(start, end, name, kind=59, **more):
    return {"start": start, "end": end, "eventType": kind, "text": name, "textId": None,
            "globalTid": global_tid(), "endGlobalTid": None, "domainId": 0, "category": None, **more}  # fmt: skip


def call(start, end, name=1, correlation=None, **more):
    return {"start": start, "end": end, "eventClass": 0, "globalTid": global_tid(), "nameId": name,
            "correlationId": correlation, "returnValue": 0, **more}  # fmt: skip


def kernel(start, end, correlation=None, **more):
    return {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "shortName": 2,
            "demangledName": 3, "mangledName": 3, "correlationId": correlation,
            "globalPid": global_pid(), "graphNodeId": None, **more}  # fmt: skip


STRINGS = {
    1: "cudaLaunchKernel_v7000", 2: "add", 3: "add(float *)", 4: "cuLaunchKernelEx",
    5: "cudaDeviceSynchronize_v3020", 6: "cudaGraphLaunch_v10000", 7: "cuTurboLaunchKernel",
}  # fmt: skip


def tables(**given):
    """The tables of a small export: what every one has, and the ``given``, by their short names."""
    names = {
        "nvtx": "NVTX_EVENTS", "calls": "CUPTI_ACTIVITY_KIND_RUNTIME",
        "kernels": "CUPTI_ACTIVITY_KIND_KERNEL", "copies": "CUPTI_ACTIVITY_KIND_MEMCPY",
        "graphs": "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "overheads": "CUPTI_ACTIVITY_KIND_OVERHEAD",
    }  # fmt: skip
    made = {
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": SCHEMA}],
        "StringIds": [{"id": number, "value": text} for number, text in STRINGS.items()],
        "ANALYSIS_DETAILS": [{"duration": 1_000_000, "startTime": 0, "stopTime": 1_000_000}],
    }
    made.update({names.get(name, name): rows for name, rows in given.items()})
    return made


def write_sqlite(path, made):
    """Write ``made`` (tables of rows, or of column names where there are no rows) to ``path``."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN")
    for table, rows in made.items():
        columns = (
            list(rows) if isinstance(rows, set) else list(dict.fromkeys(n for r in rows for n in r))
        )
        listed = ", ".join(f'"{column}"' for column in columns or ["start"])
        connection.execute(f'CREATE TABLE "{table}" ({listed})')
        marks = ", ".join("?" * len(columns))
        for row in [] if isinstance(rows, set) else rows:
            values = [row.get(column) for column in columns]
            connection.execute(f'INSERT INTO "{table}" ({listed}) VALUES ({marks})', values)
    connection.execute("COMMIT")
    connection.close()
    return path


def export(path, **given):
    """Write a small export with the ``given`` tables and return its path."""
    return write_sqlite(path / "export.sqlite", tables(**given))


def as_directory(sqlite_path, folder, suffix):
    """Write every table of an SQLite export to ``folder``, as parquet or arrow files."""
    folder.mkdir()
    connection = sqlite3.connect(sqlite_path)
    names = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    for name in names:
        cursor = connection.execute(f'SELECT * FROM "{name}"')
        columns = [each[0] for each in cursor.description]
        frame = pl.DataFrame(
            cursor.fetchall(), schema=columns, orient="row", infer_schema_length=None
        )
        write = frame.write_parquet if suffix == ".parquet" else frame.write_ipc
        write(folder / f"{name}{suffix}")
    connection.close()
    return folder
