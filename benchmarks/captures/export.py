"""A synthetic Nsight Systems export of any size: what a long serving run looks like, in small."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

_VM = 1 << 48
_PROCESSES = (7001, 7002)
_THREADS = 2
_LAYERS, _OPS = 32, 6
_KERNELS = 400
_PIECE = 50_000
_FIRST_KERNEL_ID, _FIRST_RANGE_ID = 100, 1000
_API = {1: "cuLaunchKernelEx", 2: "cudaLaunchKernel_v7000", 3: "cudaMemcpyAsync_v3020",
        4: "cudaStreamSynchronize_v3020", 5: "cuKernelGetAttribute"}  # fmt: skip
_TABLES = {
    "NVTX_EVENTS": "start, end, eventType, rangeId, category, color, text, globalTid, endGlobalTid, "
    "textId, domainId, uint64Value, int64Value, doubleValue, uint32Value, int32Value, floatValue, "
    "jsonTextId, jsonText",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, "
    "returnValue, callchainId",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, contextId, streamId, correlationId, "
    "globalPid, demangledName, shortName, mangledName, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, contextId, streamId, correlationId, "
    "globalPid, bytes, copyKind, graphNodeId",
    "META_DATA_EXPORT": "name, value",
    "StringIds": "id, value",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid",
}
Row = tuple[Any, ...]
Rows = Iterator[tuple[str, Row]]


def write(path: Path, rows: int, advance: Callable[[int], None] = lambda rows: None) -> int:
    """Write an export of at least ``rows`` rows of ranges, calls and GPU work; return how many.

    Two processes of two threads run steps of 32 layers with 6 ops each: a range a step, layer and
    op; two launches and two other calls an op; a kernel a launch, and a copy a layer. ``advance`` is
    told of rows written.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("BEGIN")
    for table, columns in _TABLES.items():
        # Every column holds integers but for the few that hold text: SQLite goes by the value.
        listed = ", ".join(f'"{column.strip()}"' for column in columns.split(","))
        connection.execute(f'CREATE TABLE "{table}" ({listed})')
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", _strings())
    connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.24.0')")
    for number, process in enumerate(_PROCESSES):
        connection.execute(f"INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES ({number}, 0, {process})")
    made = _insert(connection, rows, advance)
    connection.execute("COMMIT")
    connection.close()
    return made


def _strings() -> Iterator[tuple[int, str]]:
    yield from _API.items()
    for number in range(_KERNELS):
        yield (
            _FIRST_KERNEL_ID + number,
            f"void model::kernel_{number}<float, (int){number}>(float *, long)",
        )
    for number in range(1 + _LAYERS * (1 + _OPS)):
        yield _FIRST_RANGE_ID + number, f"range {number}"


def _insert(connection: sqlite3.Connection, rows: int, advance: Callable[[int], None]) -> int:
    pending: dict[str, list[Row]] = {}
    made = told = step = 0
    rng = Random(1)
    while made < rows:
        for table, row in _step(rng, step):
            pending.setdefault(table, []).append(row)
            made += 1
        step += 1
        if made - told >= _PIECE or made >= rows:
            for table, each in pending.items():
                marks = ", ".join("?" * len(each[0]))
                connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', each)
            pending.clear()
            advance(made - told)
            told = made
    return made


def _step(rng: Random, step: int) -> Rows:
    """Yield the rows of one step of one thread, as a profiler writes them: by when they ended."""
    process = _PROCESSES[step % len(_PROCESSES)]
    thread = process + step // len(_PROCESSES) % _THREADS
    tid, pid = _VM | process << 24 | thread, _VM | process << 24
    now_ns, correlation = step * 9_000_000, step * 10_000
    start_ns = now_ns
    for layer in range(_LAYERS):
        layer_ns, first = now_ns, _FIRST_RANGE_ID + 1 + layer * (1 + _OPS)
        for op in range(_OPS):
            now_ns += rng.randrange(500, 3_000)
            opened_ns = now_ns
            for kind in (1, 5, 2, 4 if op == _OPS - 1 else 5):
                correlation += 1
                ended_ns = now_ns + rng.randrange(300, 6_000)
                yield "CUPTI_ACTIVITY_KIND_RUNTIME", _call(now_ns, ended_ns, tid, correlation, kind)
                if kind in (1, 2):
                    yield (
                        "CUPTI_ACTIVITY_KIND_KERNEL",
                        _kernel(ended_ns, pid, correlation, layer, op),
                    )
                now_ns = ended_ns + rng.randrange(100, 2_000)
            yield "NVTX_EVENTS", _range(opened_ns, now_ns, tid, first + 1 + op)
        yield (
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            (now_ns, now_ns + 900, 0, 1, 7, correlation, pid, 4096, 8, None),
        )
        yield "NVTX_EVENTS", _range(layer_ns, now_ns, tid, first)
    yield "NVTX_EVENTS", _range(start_ns, now_ns, tid, _FIRST_RANGE_ID)


def _call(start_ns: int, end_ns: int, tid: int, correlation: int, kind: int) -> Row:
    return start_ns, end_ns, int(kind in (1, 5)), tid, correlation, kind, 0, None


def _kernel(start_ns: int, pid: int, correlation: int, layer: int, op: int) -> Row:
    name = _FIRST_KERNEL_ID + (layer * _OPS + op) % _KERNELS
    return start_ns + 800, start_ns + 2_500, 0, 1, 7, correlation, pid, name, name, name, None


def _range(start_ns: int, end_ns: int, tid: int, name: int) -> Row:
    return (start_ns, end_ns, 59, None, None, None, None, tid, None, name, 0, *[None] * 8)
