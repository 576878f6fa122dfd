"""Kernels, copies, sets and graphs of an export as GPU work. Above the model."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from launchkit.profiling.timeline.model import GPU_KINDS, UNKNOWN
from launchkit.profiling.timeline.nsys import cleaning
from launchkit.profiling.timeline.nsys.calls import NO_NAME, correlation
from launchkit.profiling.timeline.nsys.owners import owner
from launchkit.profiling.timeline.nsys.tables import Export

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
TABLES = {KERNELS: "kernel", COPIES: "memcpy", SETS: "memset", GRAPHS: "graph"}
OF_KIND = {kind: table for table, kind in TABLES.items()}
_COMMON = (
    "start",
    "end",
    "deviceId",
    "contextId",
    "streamId",
    "correlationId",
    "globalPid",
    "graphId",
)
_MORE: Mapping[str, tuple[str, ...]] = {
    KERNELS: ("shortName", "demangledName", "mangledName", "graphNodeId"),
    COPIES: ("bytes", "copyKind", "graphNodeId"),
    SETS: ("bytes", "graphNodeId"),
    GRAPHS: ("graphExecId",),
}
_COPY_KINDS = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 9: "Host-to-Host",
               10: "Peer-to-Peer"}  # fmt: skip


def read_gpu(export: Export) -> pl.DataFrame:
    """Return the GPU work, in the columns of the model; owners stand for processes."""
    copies = _copy_name(export)
    work = pl.concat(
        [
            _work(export, table, piece, copies)
            for table in TABLES
            for piece in export.pieces(table, dict.fromkeys((*_COMMON, *_MORE[table]), pl.Int64))
        ]
    )
    homeless = work.filter(pl.col("process") == UNKNOWN)
    for kind, count in homeless.group_by("kind").len().iter_rows():
        export.counts.add(OF_KIND[kind], noted={"without a process": count})
    nameless = int((work["name"] == NO_NAME).sum())
    export.counts.add(KERNELS, noted={"with a name that is not in StringIds": nameless})
    return work


def _work(export: Export, table: str, rows: pl.DataFrame, copies: pl.Expr) -> pl.DataFrame:
    rows = rows.rename({"start": "start_ns", "end": "end_ns"})
    rows = cleaning.intervals(rows, table, export.counts)
    rows = _named(export, table, rows, copies).with_columns(process=owner("globalPid"))
    return rows.select(
        "process",
        "start_ns",
        "end_ns",
        "name",
        "full_name",
        device=pl.col("deviceId").fill_null(0),
        context="contextId",
        stream="streamId",
        kind=pl.lit(TABLES[table], GPU_KINDS),
        correlation=correlation(),
        graph_id=_graph(rows),
        bytes=pl.col("bytes") if "bytes" in rows.columns else pl.lit(None, pl.Int64),
    )


def _graph(rows: pl.DataFrame) -> pl.Expr:
    """Return the graph of a row: of a node it is the upper half of the node's id."""
    known = pl.when(pl.col("graphId") != 0).then("graphId")
    if "graphNodeId" not in rows.columns:
        return known
    node = pl.when(pl.col("graphNodeId") > 0).then(pl.col("graphNodeId").floordiv(2**32))
    return pl.coalesce(known, node)


def _named(export: Export, table: str, rows: pl.DataFrame, copies: pl.Expr) -> pl.DataFrame:
    if table == KERNELS:
        return _kernels(export, rows)
    if table == COPIES:
        text = copies
    elif table == SETS:
        text = pl.lit("[CUDA memset]")
    else:
        graph, program = pl.col("graphId").fill_null(0), pl.col("graphExecId").fill_null(0)
        return rows.with_columns(
            name=pl.format("[CUDA graph {}]", graph),
            full_name=pl.format("[CUDA graph {}, executable {}]", graph, program),
        )
    return rows.with_columns(name=text, full_name=text)


def _kernels(export: Export, rows: pl.DataFrame) -> pl.DataFrame:
    # Few names, many rows: the texts are looked up once a name.
    ids = ["shortName", "demangledName", "mangledName"]
    names = rows.select(ids).unique(maintain_order=True)
    for column, text in zip(ids, ("short", "demangled", "mangled"), strict=True):
        names = export.named(names, column, text)
    names = names.select(
        *ids,
        name=pl.coalesce("short", "demangled", "mangled", pl.lit(NO_NAME)),
        full_name=pl.coalesce("demangled", "mangled", "short", pl.lit(NO_NAME)),
    )
    return rows.join(names, on=ids, how="left", maintain_order="left", nulls_equal=True)


def _copy_name(export: Export) -> pl.Expr:
    labels = export.read("ENUM_CUDA_MEMCPY_OPER", {"id": pl.Int64, "label": pl.String}).drop_nulls()
    kinds = {**_COPY_KINDS, **dict(labels.iter_rows())}
    kind = pl.col("copyKind").replace_strict(kinds, default=None, return_dtype=pl.String)
    number = pl.format("of kind {}", pl.col("copyKind").fill_null(0))
    return pl.format("[CUDA memcpy {}]", pl.coalesce(kind, number))
