"""What bounds each range: launches, Python, waits or the GPU, with the numbers. A leaf.

The numbers decide in this order. A range that spends half of its time waiting for a full launch
queue is GPU-bound, one that spends half in synchronizing calls sync-bound. If its devices execute
something for four fifths of the time from its start to the end of its work, the GPU hides the
host: GPU-bound. Else the GPU waits for the host, and the larger of calls and Python is the bound.
"""

from __future__ import annotations

import polars as pl

GPU_BOUND = "GPU-bound"
LAUNCH_BOUND = "launch-bound"
PYTHON_BOUND = "Python-bound"
SYNC_BOUND = "sync-bound"
NO_GPU_WORK = "no GPU work"
NEVER_CLOSED = "never closed"
OVERLAPPING = "overlapping"
TOO_SHORT = "too short"

VERDICTS = (
    GPU_BOUND, LAUNCH_BOUND, PYTHON_BOUND, SYNC_BOUND, NO_GPU_WORK, NEVER_CLOSED, OVERLAPPING,
    TOO_SHORT,
)  # fmt: skip
"""Every verdict. ``no GPU work``: the range launches nothing. ``overlapping``: a start/end range,
whose own Python is not known. ``too short``: as long as what recording it may have cost."""

HELPS = {
    GPU_BOUND: "faster kernels; less host time changes nothing",
    SYNC_BOUND: "fewer .item(), .cpu() and synchronize calls, or one later",
    LAUNCH_BOUND: "fewer launches: fused kernels, CUDA graphs; where other calls take the time "
    "(allocating, loading), fewer of those",
    PYTHON_BOUND: "launch_autotuned, install(), planned, CUDA graphs; launchkit profile --py-spy "
    "says what Python does",
    TOO_SHORT: "a range around more",
}
"""What helps, by verdict; of the others nothing can be said."""

_HALF = 0.5
_HIDDEN = 0.8


def verdicts(
    ranges: pl.DataFrame, steady: pl.DataFrame, *, host_only: bool, uncertainty_ns: float = 0
) -> pl.DataFrame:
    """Return a verdict for each row of ``attribution.by_name``, in its order.

    ``steady``: the same of ``attribution.without_cold``, which the verdict is of: a first launch
    also takes Python's time, to compile, and lasts longer than a thousand others.

    Columns: ``name``, ``domain``, ``count``, ``total_ns``, ``verdict``, the shares of the
    time without cold launches ``python_share``, ``api_share`` (launches and other calls without
    stalls), ``stall_share``, ``sync_share``; ``gpu_share``, the part of ``window_ns`` in which
    its devices executed something; ``gpu_active_share``, that of the range in which any did;
    ``cold_ns``, and ``reason``, a sentence. A share that cannot be known is null. ``host_only``: no GPU work was captured.
    ``uncertainty_ns``: what is not known of the cost of recording one range.
    """
    key = ["name", "domain"]
    shares = ranges.select(
        *key, "count", "total_ns", "unclosed", "launches", "gpu_ops", "overlapping", "cold_ns"
    ).join(steady.select(*key, "mean_ns", *_shares()), on=key, how="left", maintain_order="left",
           nulls_equal=True)  # fmt: skip
    decided = shares.with_columns(verdict=_verdict(host_only, uncertainty_ns))
    return decided.select(
        "name", "domain", "count", "total_ns", pl.col("verdict").cast(pl.Enum(VERDICTS)),
        "python_share", "api_share", "stall_share", "sync_share", "gpu_share",
        "gpu_active_share", "cold_ns", _reason(host_only),
    )  # fmt: skip


def _shares() -> list[pl.Expr]:
    steady = pl.col("total_ns") - pl.col("cold_ns")
    own = pl.col("api_ns") - pl.col("stall_ns") - pl.col("cold_ns")
    python = pl.when(~pl.col("overlapping")).then("inclusive_python_ns")
    return [
        _share(python, steady).alias("python_share"),
        _share(own.clip(lower_bound=0), steady).alias("api_share"),
        _share(pl.col("stall_ns"), steady).alias("stall_share"),
        _share(pl.col("sync_ns"), steady).alias("sync_share"),
        (1 - _share(pl.col("exposed_idle_ns"), pl.col("window_ns"))).alias("gpu_share"),
        _share(pl.col("gpu_active_ns"), pl.col("total_ns")).alias("gpu_active_share"),
    ]


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)


def _verdict(host_only: bool, uncertainty_ns: float) -> pl.Expr:
    nothing = (pl.col("launches") == 0) & (pl.col("gpu_ops") == 0)
    hidden = pl.lit(False) if host_only else pl.col("gpu_share") >= _HIDDEN
    launch_bound = pl.col("api_share") >= pl.col("python_share")
    return (
        pl.when(pl.col("count") == 0).then(pl.lit(NEVER_CLOSED))
        .when(pl.col("stall_share") >= _HALF).then(pl.lit(GPU_BOUND))
        .when(pl.col("sync_share") >= _HALF).then(pl.lit(SYNC_BOUND))
        .when(nothing).then(pl.lit(NO_GPU_WORK))
        .when(pl.col("mean_ns") <= uncertainty_ns).then(pl.lit(TOO_SHORT))
        .when(hidden).then(pl.lit(GPU_BOUND))
        .when("overlapping").then(pl.lit(OVERLAPPING))
        .when(launch_bound).then(pl.lit(LAUNCH_BOUND))
        .otherwise(pl.lit(PYTHON_BOUND))
    )  # fmt: skip


def _reason(host_only: bool) -> pl.Expr:
    idle = pl.format("its GPUs execute something for {} of it", _percent("gpu_share", _SOME))
    gpu = pl.lit("no GPU work was captured") if host_only else idle
    host = pl.format(
        "Python {}, calls {}, waits {}, a full launch queue {} of its steady time",
        *(_percent(f"{part}_share") for part in ("python", "api", "sync", "stall")),
    )
    active = pl.format("a GPU executes something during {}", _percent("gpu_active_share", _SOME))
    never = pl.format("{} never closed: where they end is not known", "unclosed")
    quiet = pl.format("{}; it launches nothing, and {}", host, active)
    busy = pl.format("{}; {}", host, gpu)
    submits = (pl.col("launches") > 0) | (pl.col("gpu_ops") > 0)
    reason = pl.when(submits).then(busy).otherwise(quiet)
    return pl.when(pl.col("count") == 0).then(never).otherwise(reason).alias("reason")


_SOME = "an unknown part"


def _percent(name: str, unknown: str = "unknown") -> pl.Expr:
    share = (pl.col(name) * 100).round(0).cast(pl.Int64)
    return pl.format("{} %", share).fill_null(unknown)
