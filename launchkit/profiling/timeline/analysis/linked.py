"""Calls with what they started on the GPU, and GPU work with its call. Above intervals.

Correlation ids restart in each process, one may stand on a runtime call and on the driver call
inside it, and the replay of a graph has many kernels under one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from launchkit.profiling.timeline.analysis.intervals import looked_up, union, unions, values_at
from launchkit.profiling.timeline.figures import DURATION_NS
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
    the timeline with their lane, their names without the number of a PyTorch op's run. ``calls``:
    calls that no other contains, and launches inside a call that is none; with ``lane``,
    ``launches`` (1 for a launch, else 0) and what they started:
    ``gpu_ops``, ``kernels``, ``gpu_ns`` (sum of durations), ``gpu_first_ns`` and ``gpu_last_ns``,
    ``kernel`` and ``full_kernel`` (of the first one). ``submissions``: a row for each such call and
    device, with ``first_ns`` and ``last_ns`` of its work there. ``gpu``: GPU work with
    ``call_id``, null where the launch was not captured. ``busy`` and ``active``: the times in which
    a ``device`` (``unions``), or any of them (``union``), executed something. ``overheads``: with
    their lane.
    """

    lanes: pl.DataFrame
    ranges: pl.DataFrame
    calls: pl.DataFrame
    submissions: pl.DataFrame
    gpu: pl.DataFrame
    busy: pl.DataFrame
    active: pl.DataFrame
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
    counts = calls.select(pl.col("outermost") | pl.col("launches")).to_series()
    kept = (calls if counts.all() else calls.filter(counts)).drop("outer_id")
    kept = kept.with_columns(pl.col("launches").cast(pl.UInt32))
    busy = unions(gpu, "device")
    return Linked(
        lanes=lanes,
        ranges=ranges,
        calls=_in_order(_with_gpu(kept, gpu)),
        submissions=_submissions(kept, gpu),
        gpu=gpu,
        busy=busy,
        active=union(busy),
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
    process, thread = pl.col("process"), pl.col("thread")
    # The tables are sorted by both: one row where either changes, not a hash of them all.
    news = (process != process.shift(1)) | (thread != thread.shift(1))
    threads = pl.concat(
        [table.select("process", "thread").filter(news.fill_null(True)) for table in tables]
    )
    return threads.unique().sort("process", "thread").with_row_index("lane")


def _with_lane(table: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    return looked_up(table, lanes, ["process", "thread"])


def _in_order(calls: pl.DataFrame) -> pl.DataFrame:
    """Sort by lane and start; a timeline's calls mostly are, and sorting copies all of them."""
    lane, start = pl.col("lane"), pl.col("start_ns")
    back = (lane < lane.shift(1)) | ((lane == lane.shift(1)) & (start < start.shift(1)))
    if calls.select(back.any()).item():
        return calls.sort("lane", "start_ns", maintain_order=True)
    return calls


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
    return (
        looked_up(calls, found, "call_id")
        .with_columns(
            outer_id=pl.coalesce("outer_id", "call_id"),
            launches=launch & ~pl.col("outer_launch").fill_null(False),
        )
        .drop("outer_launch")
    )


def _alone(rows: pl.DataFrame, keys: Sequence[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return rows that are the only one of their call, and the others: few but for graphs."""
    repeated = rows.select(keys).is_duplicated()
    return rows.filter(~repeated), rows.filter(repeated)


def _with_call(gpu: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    started = pl.when(pl.col("launches")).then("call_id").otherwise("outer_id")
    known = calls.lazy().filter(pl.col("correlation").is_not_null()).select(
        "process", "correlation", "outermost", call_id=started
    ).collect()  # fmt: skip
    if not known.get_column("outermost").all():
        known = known.sort("outermost", descending=True, maintain_order=True)
    by_correlation = known.drop("outermost").unique(
        ["process", "correlation"], keep="first", maintain_order=True
    )
    return looked_up(gpu, by_correlation, ["process", "correlation"])


def _with_gpu(calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    rows = gpu.lazy().filter(pl.col("call_id").is_not_null()).select(
        "call_id", kernels=pl.col("kind") == "kernel", gpu_ns=DURATION_NS,
        gpu_first_ns="start_ns", gpu_last_ns="end_ns", kernel="name", full_kernel="full_name",
    ).collect()  # fmt: skip
    single, several = _alone(rows, ["call_id"])
    summed = several.sort("gpu_first_ns").group_by("call_id").agg(
        pl.len().alias("gpu_ops"), pl.col("kernels", "gpu_ns").sum(), pl.col("gpu_first_ns").min(),
        pl.col("gpu_last_ns").max(), pl.col("kernel", "full_kernel").first(),
    )  # fmt: skip
    columns = ["call_id", *_ON_GPU]
    started = pl.concat(
        each.select(columns).cast(_ON_GPU)  # type: ignore[arg-type]
        for each in (single.with_columns(gpu_ops=pl.lit(1)), summed)
    )
    joined = looked_up(calls, started, "call_id")
    return joined.with_columns(pl.col("gpu_ops", "kernels", "gpu_ns").fill_null(0))


def _submissions(calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    key = ["call_id", "device"]
    rows = gpu.lazy().filter(pl.col("call_id").is_not_null()).select(
        *key, first_ns="start_ns", last_ns="end_ns"
    ).collect()  # fmt: skip
    single, several = _alone(rows, key)
    summed = several.group_by(key).agg(pl.col("first_ns").min(), pl.col("last_ns").max())
    ends = pl.concat([single, summed])
    named = calls.select("call_id", "lane", "process", "start_ns", "end_ns")
    return ends.join(named, on="call_id").sort("lane", "start_ns")
