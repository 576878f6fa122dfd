"""Calls with what they started on the GPU, and GPU work with its call. Above intervals.

Correlation ids restart in each process, one may stand on a runtime call and on the driver call
inside it, and the replay of a graph has many kernels under one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from launchkit.profiling.timeline.intervals import values_at
from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS

# PyTorch numbers each run of an op in its name, which makes each a name of its own.
_RUN_OF_AN_OP = r",\s*(op_id|seq|sizes|input_op_ids)\s*=.*$"

_ON_GPU = {
    "gpu_ops": pl.UInt32,
    "kernels": pl.UInt32,
    "gpu_ns": pl.Int64,
    "gpu_first_ns": pl.Int64,
    "gpu_last_ns": pl.Int64,
    "kernel": pl.String,
    "full_kernel": pl.String,
}


@dataclass(frozen=True)
class Linked:
    """The tables of a timeline, joined.

    ``lanes``: ``process``, ``thread`` and ``lane``, a number for each thread. ``ranges``: those of
    the timeline with their lane, their names without the number of a PyTorch op's run. ``calls``: calls that no other contains, and launches inside a
    call that is none; with ``lane``, ``launches`` (1 for a launch, else 0) and what they started:
    ``gpu_ops``, ``kernels``, ``gpu_ns`` (sum of durations), ``gpu_first_ns`` and ``gpu_last_ns``,
    ``kernel`` and ``full_kernel`` (of the first one). ``submissions``: a row for each such call and
    device, with ``first_ns`` and ``last_ns`` of its work there. ``gpu``: GPU work with
    ``call_id``, null where the launch was not captured. ``overheads``: with their lane.
    """

    lanes: pl.DataFrame
    ranges: pl.DataFrame
    calls: pl.DataFrame
    submissions: pl.DataFrame
    gpu: pl.DataFrame
    overheads: pl.DataFrame


def link(timeline: Timeline) -> Linked:
    """Join the tables of ``timeline``."""
    timeline = _with_recorder(timeline)
    lanes = _lanes(timeline)
    ranges, every, overheads = (
        _with_lane(table, lanes) for table in (timeline.ranges, timeline.calls, timeline.overheads)
    )
    ranges = ranges.with_columns(pl.col("name").str.replace(_RUN_OF_AN_OP, ""))
    calls = _with_outer(_driver_part(every))
    gpu = _with_call(timeline.gpu, calls)
    kept = calls.filter(pl.col("outermost") | pl.col("launches")).drop("outer_id")
    kept = kept.with_columns(pl.col("launches").cast(pl.UInt32))
    return Linked(
        lanes=lanes,
        ranges=ranges,
        calls=_with_gpu(kept, gpu).sort("lane", "start_ns", maintain_order=True),
        submissions=_submissions(kept, gpu),
        gpu=gpu,
        overheads=overheads,
    )


def _with_recorder(timeline: Timeline) -> Timeline:
    """Add what the recorder of an own profile took, 0 where there is none."""
    ranges, calls = (
        table.with_columns(
            pl.col(name).fill_null(0) if name in table.columns else pl.lit(0, pl.Int64).alias(name)
        )
        for table, name in ((timeline.ranges, "recorder_ns"), (timeline.calls, "added_ns"))
    )
    return replace(timeline, ranges=ranges, calls=calls)


def _lanes(timeline: Timeline) -> pl.DataFrame:
    tables = (timeline.ranges, timeline.calls, timeline.overheads)
    threads = pl.concat([table.select("process", "thread").unique() for table in tables])
    return threads.unique().sort("process", "thread").with_row_index("lane")


def _with_lane(table: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    return table.join(lanes, on=["process", "thread"], how="left", maintain_order="left")


def _driver_part(calls: pl.DataFrame) -> pl.DataFrame:
    """Leave of an own profile's launch the driver's part, at its end: the rest is Python."""
    if "driver_ns" not in calls.columns:
        return calls
    start = (pl.col("end_ns") - pl.col("driver_ns")).clip(pl.col("start_ns"), pl.col("end_ns"))
    return calls.with_columns(start_ns=pl.coalesce(start, "start_ns"))


def _with_outer(calls: pl.DataFrame) -> pl.DataFrame:
    """Add ``outer_id``, the call around a call or itself, and whether it counts in ``launches``."""
    launch = pl.col("kind").cast(pl.String).is_in(LAUNCH_KINDS)
    inner = calls.filter(~pl.col("outermost"))
    if inner.is_empty():
        return calls.with_columns(outer_id="call_id", launches=launch)
    outer = calls.filter("outermost").select(
        "lane", "start_ns", outer_id="call_id", outer_launch=launch
    )
    columns = ["outer_id", "outer_launch"]
    found = inner.select("call_id").hstack(values_at(inner, outer, "lane", "start_ns", columns))
    joined = calls.join(found, on="call_id", how="left", maintain_order="left")
    return joined.with_columns(
        outer_id=pl.coalesce("outer_id", "call_id"),
        launches=launch & ~pl.col("outer_launch").fill_null(False),
    ).drop("outer_launch")


def _with_call(gpu: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    started = pl.when(pl.col("launches")).then("call_id").otherwise("outer_id")
    by_correlation = (
        calls.lazy()
        .filter(pl.col("correlation").is_not_null())
        .select("process", "correlation", "outermost", call_id=started)
        .sort("outermost", descending=True, maintain_order=True)
        .unique(["process", "correlation"], keep="first", maintain_order=True)
        .drop("outermost")
        .collect()
    )
    return gpu.join(
        by_correlation, on=["process", "correlation"], how="left", maintain_order="left"
    )


def _with_gpu(calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    is_kernel = pl.col("kind") == "kernel"
    started = (
        gpu.lazy()
        .filter(pl.col("call_id").is_not_null())
        .sort("start_ns")
        .group_by("call_id")
        .agg(
            gpu_ops=pl.len(),
            kernels=is_kernel.sum(),
            gpu_ns=(pl.col("end_ns") - pl.col("start_ns")).sum(),
            gpu_first_ns=pl.col("start_ns").min(),
            gpu_last_ns=pl.col("end_ns").max(),
            kernel=pl.col("name").first(),
            full_kernel=pl.col("full_name").first(),
        )
        .cast(_ON_GPU)  # type: ignore[arg-type]
        .collect()
    )
    joined = calls.join(started, on="call_id", how="left", maintain_order="left")
    return joined.with_columns(pl.col("gpu_ops", "kernels", "gpu_ns").fill_null(0))


def _submissions(calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    ends = (
        gpu.lazy()
        .filter(pl.col("call_id").is_not_null())
        .group_by("call_id", "device")
        .agg(first_ns=pl.col("start_ns").min(), last_ns=pl.col("end_ns").max())
    )
    named = calls.lazy().select("call_id", "lane", "process", "start_ns", "end_ns")
    return ends.join(named, on="call_id").sort("lane", "start_ns").collect()
