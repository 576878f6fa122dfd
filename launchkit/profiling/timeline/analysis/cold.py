"""Cold launches: those that load or compile something, apart from the steady ones. Above linked.

A launch is cold if it is the first of its kernel in its process, if the driver says that it
compiled or loaded during it, or if it was held up while another thread's cold launch held a lock.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.analysis.intervals import covered_between, unions
from launchkit.profiling.timeline.figures import DURATION_NS

LOADING = ("jit", "lazy_loading", "module_loading")
"""Kinds of overhead that belong to a first launch."""

_HELD = 10


def mark_cold(
    calls: pl.DataFrame, overheads: pl.DataFrame, *, sampled: bool = False
) -> pl.DataFrame:
    """Return ``calls`` (of ``stalls.with_stalls``) with ``loading_ns``, ``first`` and ``cold``.

    ``loading_ns`` is how much of the call the driver compiled or loaded; ``first`` marks the
    first launch of a kernel in its process: none where launches are ``sampled``, whose first is
    any. A kernel that no GPU work names is known by the call.
    """
    loads = unions(overheads.filter(pl.col("kind").cast(pl.String).is_in(LOADING)), "lane")
    loading = covered_between(calls, loads, "lane", "start_ns", "end_ns").alias("loading_ns")
    named = calls.with_columns(loading, kernel=kernel_name())
    launch = pl.col("launches") > 0
    known = launch & pl.col("kernel").is_not_null() & pl.lit(not sampled)
    full = pl.coalesce("full_kernel", "kernel")
    earliest = pl.when(known).then("start_ns").min().over("process", full)
    first = (known & (pl.col("start_ns") == earliest)).fill_null(False)
    marked = named.with_columns(first=first, cold=first | (launch & (pl.col("loading_ns") > 0)))
    return marked.with_columns(cold=pl.col("cold") | _held_up(marked))


def _held_up(calls: pl.DataFrame) -> pl.Series:
    """Return which launches took much longer than usual beside a cold launch of their process."""
    cold = unions(calls.filter("cold"), "process")
    beside = covered_between(calls, cold, "process", "start_ns", "end_ns")
    took = DURATION_NS - pl.col("stall_ns")
    usual = pl.when(pl.col("launches") > 0).then(took).median().over("process", "name")
    asked = calls.select("launches", took.alias("took"), usual.alias("usual"), beside=beside)
    held = (pl.col("took") > _HELD * pl.col("usual")) & (pl.col("beside") * 2 > pl.col("took"))
    return asked.select((pl.col("launches") > 0) & held.fill_null(False)).to_series()


def kernel_name() -> pl.Expr:
    """Return the kernel of a call; of a launch of an own profile that is the call's name."""
    # A driver's call without GPU work was captured into a graph, or its work is not in the file.
    own = pl.col("correlation").is_null() & (pl.col("launches") > 0)
    return pl.coalesce("kernel", pl.when(own).then("name"))


def cold_launches(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the cold launches beside the steady ones of their kernel, the dearest first.

    Columns: ``process``, ``kernel``, ``call_id``, ``name`` (of the call), ``start_ns``, ``cold_ns``
    (how long it took, less what it waited for the queue), ``loading_ns``, ``first``,
    ``steady_count``, ``steady_median_ns`` (null: there is no other launch) and ``excess_ns`` over
    that.
    """
    launches = calls.lazy().filter(pl.col("launches") > 0)
    took = DURATION_NS - pl.col("stall_ns")
    key = ["process", "full"]
    named = launches.with_columns(full=pl.coalesce("full_kernel", "kernel"))
    steady = (
        named.filter(~pl.col("cold"))
        .group_by(key)
        .agg(steady_count=pl.len(), steady_median_ns=took.median())
    )
    cold = named.filter("cold").join(steady, on=key, how="left", nulls_equal=True)
    excess = pl.col("cold_ns") - pl.col("steady_median_ns").fill_null(0)
    return (
        cold.select(
            "process", "kernel", "call_id", "name", "start_ns", took.alias("cold_ns"),
            "loading_ns", "first", pl.col("steady_count").fill_null(0), "steady_median_ns",
        )
        .with_columns(excess_ns=excess)
        .sort("excess_ns", "call_id", descending=[True, False])
        .collect()
    )  # fmt: skip
