"""Processes and ranks of a capture side by side: which launches late. Above the model.

Ranks do the same work: the n-th launch of a kernel in one is the n-th in the others. How much later
than the first of them a rank makes it is its lateness. Clocks of different hosts differ by some µs
to ms, which is in every lateness of a rank alike; what varies is its own.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.figures import DURATION_NS

_QUANTILES = {"late_median_ns": 0.5, "late_p90_ns": 0.9}


def process_table(processes: pl.DataFrame, calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each process with calls, by ``rank`` and ``process``; none of a lone process.

    ``name``, ``rank``, ``process``; ``count`` launches, ``total_ns`` in them, ``stall_ns`` of it
    for a full queue, ``launch_median_ns`` without stalls and cold launches, ``first_ns`` and
    ``last_ns`` (start of the first and the last launch), ``gpu_ns`` (sum of durations). Of launches
    that other processes have too (``matched`` of them): ``late_median_ns``, ``late_p90_ns``,
    ``late_max_ns`` after the first process, and ``last_share``, the part of them in which
    this process was the last.
    """
    launches = calls.filter(pl.col("launches") > 0)
    took = DURATION_NS
    steady = (took - pl.col("stall_ns")).filter(~pl.col("cold"))
    rows = launches.group_by("process").agg(
        pl.len().alias("count"), took.sum().alias("total_ns"), pl.col("stall_ns").sum(),
        launch_median_ns=steady.median(), first_ns=pl.col("start_ns").min(),
        last_ns=pl.col("start_ns").max(),
    )  # fmt: skip
    if rows.height < 2:
        rows = rows.clear()
    work = gpu.group_by("process").agg(gpu_ns=took.sum())
    named = processes.select("process", "name", "rank").unique("process", keep="first")
    table = (
        rows.join(named, on="process", how="left")
        .join(work, on="process", how="left")
        .join(_lateness(launches), on="process", how="left")
    )
    return table.select(
        pl.col("name").fill_null(""), "count", "total_ns", "rank", "process",
        "stall_ns", "launch_median_ns", "first_ns", "last_ns", pl.col("gpu_ns").fill_null(0),
        pl.col("matched").fill_null(0), *_QUANTILES, "late_max_ns", "last_share",
    ).sort("rank", "process", nulls_last=True)  # fmt: skip


def _lateness(launches: pl.DataFrame) -> pl.DataFrame:
    """Return by process how late its launches are, of kernels that each process launches as often."""
    own = launches.select("process", "start_ns", "cold", kernel=pl.coalesce("kernel", "name"))
    turn = pl.int_range(pl.len()).over("process", "kernel").alias("turn")
    turns = own.sort("process", "start_ns").with_columns(turn)
    # Where one launched a kernel more often, nobody knows which of its launches the others' are.
    often = turns.group_by("process", "kernel").len().group_by("kernel").agg(
        even=(pl.col("len").n_unique() == 1) & (pl.len() > 1)
    )  # fmt: skip
    shared = turns.join(often.filter("even"), on="kernel", how="semi", nulls_equal=True)
    late = pl.col("start_ns") - pl.col("start_ns").min().over("kernel", "turn")
    cold = pl.col("cold").any().over("kernel", "turn")
    found = shared.with_columns(late=late, cold=cold).filter(~pl.col("cold"))
    last = pl.col("late") == pl.col("late").max().over("kernel", "turn")
    return found.with_columns(last=last).group_by("process").agg(
        matched=pl.len(),
        **{name: pl.col("late").quantile(part, "linear") for name, part in _QUANTILES.items()},
        late_max_ns=pl.col("late").max(),
        last_share=pl.col("last").mean(),
    )  # fmt: skip
