"""Which process a row of a chrome trace belongs to, where the trace says another thing.

GPU events stand under their device instead of a process; ranges of the profiler's own may stand
under the process id that another namespace knows. Above the model.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.model import UNKNOWN


def with_owners(gpu: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return ``gpu`` with the column ``process``, and how many rows several processes could own.

    The owner is the process whose call has the row's correlation. Where several have it (ranks
    merged into one file), it is the one that the rest of the device's work belongs to.
    """
    callers = calls["process"].unique().to_list()
    by_call = (
        calls.drop_nulls("correlation")
        .group_by("correlation")
        .agg(pl.col("process").unique().alias("callers"))
    )
    sole = pl.col("callers").list.len() == 1
    first = pl.col("callers").list.get(0, null_on_oob=True)
    gpu = gpu.join(by_call, on="correlation", how="left", maintain_order="left").with_columns(
        pl.when(sole).then(first).alias("sure")
    )
    most = (
        gpu.drop_nulls("sure")
        .group_by("device", "sure")
        .len()
        .sort("device", "len", "sure", descending=[False, True, False])
        .unique("device", keep="first", maintain_order=True)
        .select("device", pl.col("sure").alias("usual"))
    )
    only = callers[0] if len(callers) == 1 else UNKNOWN
    gpu = gpu.join(most, on="device", how="left", maintain_order="left")
    shared = int((gpu["callers"].list.len() > 1).sum())
    owner = pl.coalesce("sure", "usual", first, pl.lit(only)).alias("process")
    return gpu.with_columns(owner).drop("callers", "sure", "usual", "lane"), shared


def at_home(ranges: pl.DataFrame, calls: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return ``ranges``, strays among them moved to the one process that calls; and their number.

    A stray stands on the main thread of a process that calls nothing.
    """
    callers = calls["process"].unique().to_list()
    if len(callers) != 1:
        return ranges, 0
    home = callers[0]
    stray = (
        (pl.col("process") != home)
        & (pl.col("process") == pl.col("thread"))
        & (pl.col("process") > 0)
        & (pl.lit(bool((calls["thread"] == home).any())))
    )
    moved = int(ranges.select(stray.sum()).item())
    here = pl.when(stray).then(pl.lit(home, dtype=pl.Int64))
    return ranges.with_columns(
        here.otherwise(pl.col("process")).alias("process"),
        here.otherwise(pl.col("thread")).alias("thread"),
    ), moved
