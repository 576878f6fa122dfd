"""Time that launches waited because the launch queue was full. Above intervals.

A launch returns as soon as its work is queued; where the queue is full it first waits for the GPU,
and what it then takes says nothing about the cost of a launch. The driver reports such waits
where the profiler records them (COMMAND_BUFFER_FULL). Else they are estimated: a call waited if
it took much longer than launches take over a short queue (median + 8 MAD, Leys et al., "Detecting
outliers", 2013) while at least half of the longest queue seen was waiting to start.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.analysis.intervals import (
    covered_between,
    looked_up,
    unions,
    values_at,
)
from launchkit.profiling.timeline.analysis.linked import Linked
from launchkit.profiling.timeline.figures import DURATION_NS
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS

QUEUEING = (*LAUNCH_KINDS, "memcpy", "memset")
"""Kinds of calls that put work into the queue."""

_FULL_FROM = 64
"""A queue that never held this many is not taken to have been full."""
_SHORT = 1 / 8
"""Part of the longest queue up to which a call did certainly not wait."""
_MADS = 8
_SUBMISSION = ("process", "device", "call_id", "start_ns", "first_ns")


def with_stalls(linked: Linked) -> pl.DataFrame:
    """Return the calls of ``linked`` with ``stall_ns``, ``stall_method`` and ``queued``.

    ``queued`` is how many earlier submissions to the device had not started when the call began
    (null: it put nothing into the queue). ``stall_method`` is ``"measured"`` where the driver
    reported it in this process, ``"estimated"`` where the GPU work allows that, else ``"none"``.
    """
    calls = looked_up(linked.calls, _queued(linked), "call_id")
    full = linked.overheads.filter(pl.col("kind") == "queue_full")
    reported = full.get_column("process").unique().implode()
    islands = unions(full, "lane")
    measured = covered_between(calls, islands, "lane", "start_ns", "end_ns").alias("measured")
    return (
        calls.with_columns(measured, estimated=_estimated(calls))
        .with_columns(is_measured=pl.col("process").is_in(reported))
        .with_columns(
            stall_ns=pl.when("is_measured").then("measured").otherwise("estimated"),
            stall_method=_method().cast(pl.Enum(["measured", "estimated", "none"])),
        )
        .drop("measured", "estimated", "is_measured")
    )


def _method() -> pl.Expr:
    known = pl.col("queued").max().over("process").is_not_null()
    return (
        pl.when("is_measured")
        .then(pl.lit("measured"))
        .otherwise(pl.when(known).then(pl.lit("estimated")).otherwise(pl.lit("none")))
    )


def _queued(linked: Linked) -> pl.DataFrame:
    """Return for each submitting call how many submissions before it had not started."""
    queue = pl.struct("process", "device").rank("dense").alias("queue")
    events = pl.concat([linked.submissions.select(_SUBMISSION), _before(linked), _after(linked)])
    keyed = events.with_columns(queue).sort("queue", "start_ns", nulls_last=False)
    before = pl.int_range(pl.len()).over("queue").alias("before")
    keyed = keyed.with_columns(before)
    starts = keyed.filter(pl.col("first_ns").is_not_null())
    starts = starts.select("queue", start_ns="first_ns").sort("queue", "start_ns")
    number = pl.int_range(1, pl.len() + 1).over("queue").alias("started")
    calls = keyed.filter(pl.col("call_id").is_not_null())
    started = values_at(calls, starts.with_columns(number), "queue", "start_ns", ["started"])
    waiting = (pl.col("before") - pl.col("started").fill_null(0)).clip(lower_bound=0)
    found = calls.hstack(started).with_columns(queued=waiting)
    return found.group_by("call_id").agg(pl.col("queued").max())


def _before(linked: Linked) -> pl.DataFrame:
    """Return GPU work without a call: it was queued before the capture began."""
    call, start = pl.lit(None, pl.UInt32), pl.lit(None, pl.Int64)
    return linked.gpu.filter(pl.col("call_id").is_null()).select(
        "process", "device", call.alias("call_id"), start.alias("start_ns"), first_ns="start_ns"
    )


def _after(linked: Linked) -> pl.DataFrame:
    """Return the last launches of a process, whose work starts after the capture has ended."""
    last = linked.submissions.group_by("process").agg(
        pl.col("device").sort_by("start_ns").last(), last_ns=pl.col("start_ns").max()
    )
    queueing = pl.col("kind").cast(pl.String).is_in(QUEUEING) & (pl.col("gpu_ops") == 0)
    calls = linked.calls.filter(queueing).join(last, on="process")
    late = calls.filter(pl.col("start_ns") > pl.col("last_ns"))
    first = pl.lit(None, pl.Int64).alias("first_ns")
    return late.select("process", "device", "call_id", "start_ns", first)


def _estimated(calls: pl.DataFrame) -> pl.Series:
    """Return how long each call waited, by what calls take over a short queue."""
    took = DURATION_NS.alias("took")
    queueing = pl.col("kind").cast(pl.String).is_in(QUEUEING) & pl.col("queued").is_not_null()
    asked = calls.select("process", "name", "queued", took, queueing=queueing)
    longest = pl.when("queueing").then("queued").max().over("process")
    short = pl.when(pl.col("queueing") & (pl.col("queued") <= longest * _SHORT)).then("took")
    asked = asked.with_columns(longest=longest, short=short)
    # A call that was never made over a short queue is held against all that were.
    for suffix, key in (("", ["process", "name"]), ("_all", ["process"])):
        asked = asked.with_columns(pl.col("short").median().over(key).alias(f"median{suffix}"))
        off = (pl.col("short") - pl.col(f"median{suffix}")).abs()
        asked = asked.with_columns(off.median().over(key).alias(f"mad{suffix}"))
    usual = pl.coalesce("median", "median_all")
    limit = usual + _MADS * pl.max_horizontal(pl.coalesce("mad", "mad_all"), usual / 10)
    is_full = (pl.col("longest") >= _FULL_FROM) & (pl.col("queued") * 2 >= pl.col("longest"))
    waited = pl.col("queueing") & is_full & (pl.col("took") > limit)
    excess = (pl.col("took") - usual).round().cast(pl.Int64)
    return asked.select(pl.when(waited).then(excess).otherwise(0).fill_null(0)).to_series()


def stall_table(calls: pl.DataFrame) -> pl.DataFrame:
    """Return what queueing calls took, by ``process`` and ``name``, stalls apart, worst first.

    Columns: ``count``, ``total_ns``, ``median_ns``, ``p90_ns``, ``stalled`` (calls that
    waited), ``stall_ns``, ``launch_ns`` (the rest), ``launch_median_ns``, ``longest_queue``,
    ``stall_method``.
    """
    took = DURATION_NS
    return (
        calls.filter(pl.col("kind").cast(pl.String).is_in(QUEUEING))
        .with_columns(took=took)
        .with_columns(own=pl.col("took") - pl.col("stall_ns"))
        .group_by("process", "name")
        .agg(
            count=pl.len(),
            total_ns=pl.col("took").sum(),
            median_ns=pl.col("took").median(),
            p90_ns=pl.col("took").quantile(0.9, "linear"),
            stalled=(pl.col("stall_ns") > 0).sum(),
            stall_ns=pl.col("stall_ns").sum(),
            launch_ns=pl.col("own").sum(),
            launch_median_ns=pl.col("own").median(),
            longest_queue=pl.col("queued").max(),
            stall_method=pl.col("stall_method").first(),
        )
        .sort("stall_ns", "total_ns", "name", descending=[True, True, False])
    )
