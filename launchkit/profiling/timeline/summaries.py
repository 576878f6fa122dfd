"""Times by range, API function and kernel: the tables of a report. Above containment.

They agree with the reports that Nsight Systems itself makes of an export (nvtx_sum, cuda_api_sum,
cuda_gpu_kern_sum, cuda_kern_exec_sum, nvtx_kern_sum), but for what is said below. Every table has
``name``, ``count`` and ``total_ns`` first, is sorted by ``total_ns``, the most first, and has of
each time ``mean_ns``, ``median_ns``, ``p90_ns``, ``p99_ns``, ``min_ns``, ``max_ns`` and ``std_ns``
(of the sample; 0 of a single row). ``share`` is the part of the column's total, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from launchkit.profiling.timeline.containment import contained
from launchkit.profiling.timeline.figures import DURATION_NS, figures
from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS

_KEY = ["process", "correlation"]


def range_summary(timeline: Timeline, *, unclosed: bool = False) -> pl.DataFrame:
    """Return the wall time of ranges: ``name``, ``count``, ``total_ns``, ``domain``, ``kind``, the rest.

    A range that was never closed has no duration of its own (an export writes the capture's end):
    such are only counted, in ``unclosed``, unless ``unclosed`` is true, which is what nvtx_sum
    does.
    """
    ranges = timeline.ranges.filter(pl.col("kind") != "mark")
    lasted = DURATION_NS
    if "recorder_ns" in ranges.columns:  # of own profiles, whose recorder knows its share
        lasted -= pl.col("recorder_ns").fill_null(0)
    duration = lasted if unclosed else pl.when("closed").then(lasted)
    keys = ["name", "domain", "kind"]
    grouped = ranges.with_columns(duration_ns=duration).group_by(keys, maintain_order=True)
    made = grouped.agg(*_figures("duration_ns"), unclosed=(~pl.col("closed")).sum())
    return _ordered(made, keys)


def api_summary(timeline: Timeline) -> pl.DataFrame:
    """Return the time in API functions: ``name``, ``count``, ``total_ns``, ``kind``, the rest.

    Calls within calls (a driver call within a runtime call) count on their own, as in cuda_api_sum;
    names have no version suffix, where cuda_api_sum strips short ones only.
    """
    keys = ["name", "kind"]
    calls = timeline.calls.with_columns(duration_ns=DURATION_NS)
    made = calls.group_by(keys, maintain_order=True).agg(*_figures("duration_ns"))
    return _ordered(made, keys)


def kernel_summary(timeline: Timeline) -> pl.DataFrame:
    """Return the GPU time of kernels: ``name`` (short), ``count``, ``total_ns``, ``full_name``, the rest."""
    keys = ["name", "full_name"]
    kernels = _kernels(timeline).with_columns(duration_ns=DURATION_NS)
    made = kernels.group_by(keys, maintain_order=True).agg(*_figures("duration_ns"))
    return _ordered(made, keys)


def execution_summary(timeline: Timeline) -> pl.DataFrame:
    """Return launches with their kernels, by process, thread, device, API function and kernel.

    Columns as ``kernel_summary``, after them the figures of ``call`` (in the API), ``queue`` (from
    its return to the kernel's start) and ``whole`` (from the call's start until both are over). A
    kernel that starts before its call returns did not wait: it counts neither as a negative time
    nor as 0, so that ``queue_count`` may be below ``count``.
    """
    calls = _launches(timeline).select(
        *_KEY, "thread", api="name", call_start="start_ns", call_end="end_ns"
    )
    pairs = _kernels(timeline).join(calls, on=_KEY, how="inner", maintain_order="left")
    waited = pl.col("start_ns") - pl.col("call_end")
    pairs = pairs.with_columns(
        duration_ns=DURATION_NS,
        call_ns=pl.col("call_end") - pl.col("call_start"),
        queue_ns=pl.when(waited >= 0).then(waited),
        whole_ns=pl.max_horizontal("end_ns", "call_end") - pl.col("call_start"),
    )
    keys = ["name", "full_name", "api", "process", "thread", "device"]
    more = [
        each for name in ("call", "queue", "whole") for each in _figures(f"{name}_ns", f"{name}_")
    ]
    made = pairs.group_by(keys, maintain_order=True).agg(*_figures("duration_ns"), *more)
    return _ordered(made, keys)


def range_kernel_summary(timeline: Timeline) -> pl.DataFrame:
    """Return the kernels that each push/pop range launched, directly or in a range within it.

    ``name`` and ``domain`` are the range's, ``kernel`` and ``full_name`` the kernel's; ``ranges``
    is in how many of those ranges it was launched. A call counts for the ranges of its own thread.
    Start/end ranges belong to no thread and are left out.
    """
    stacked = timeline.ranges.filter(pl.col("kind") == "push_pop")
    ranges, range_names = _coded(stacked, ["name", "domain", "process", "thread"], "range_code")
    kernels, kernel_names = _coded(_kernels(timeline), ["name", "full_name"], "kernel_code")
    calls = _launches(timeline)
    # Numbers for names: there are several pairs for each kernel, one for every range around it.
    pairs = contained(stacked, calls)
    launched = calls.select("call_id", *_KEY).join(
        kernels.select(*_KEY, "kernel_code", duration_ns=DURATION_NS), on=_KEY
    )
    pairs = pairs.join(launched.drop(_KEY), on="call_id").drop("call_id")
    pairs = pairs.join(ranges.select("range_id", "range_code"), on="range_id")
    made = pairs.group_by("range_code", "kernel_code", maintain_order=True).agg(
        *_figures("duration_ns"), ranges=pl.col("range_id").n_unique()
    )
    made = made.join(range_names, on="range_code").join(
        kernel_names.rename({"name": "kernel"}), on="kernel_code"
    )
    keys = ["name", "domain", "process", "thread", "kernel", "full_name"]
    return _ordered(made.drop("range_code", "kernel_code"), keys)


def _coded(
    frame: pl.DataFrame, keys: Sequence[str], code: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return ``frame`` with a number for each combination of ``keys``, and the combinations by number."""
    names = frame.select(keys).unique(maintain_order=True).with_row_index(code)
    coded = frame.join(names, on=list(keys), how="left", maintain_order="left", nulls_equal=True)
    return coded, names


def _kernels(timeline: Timeline) -> pl.DataFrame:
    return timeline.gpu.filter(pl.col("kind") == "kernel")


def _launches(timeline: Timeline) -> pl.DataFrame:
    """Return the launches that may have GPU work, the outer one where two calls share it."""
    launches = timeline.calls.filter(pl.col("kind").is_in(LAUNCH_KINDS))
    launches = launches.drop_nulls("correlation")
    return launches.unique(_KEY, keep="first", maintain_order=True)


def _figures(column: str, prefix: str = "") -> list[pl.Expr]:
    """Return the figures of a column of ns; nulls are rows that have none."""
    value = pl.col(column)
    single = pl.when(value.count() == 1).then(0.0).otherwise(value.std())
    return [
        value.count().alias(f"{prefix}count"),
        *figures(value, prefix),
        single.alias(f"{prefix}std_ns"),
    ]


def _ordered(made: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    total = pl.col("total_ns").sum()
    share = pl.when(total > 0).then(pl.col("total_ns") / total).otherwise(0.0)
    first = [keys[0], "count", "total_ns", *keys[1:], "share"]
    made = made.with_columns(share=share).sort(
        "total_ns", *keys, descending=[True, *[False] * len(keys)]
    )
    return made.select(*first, pl.exclude(first))
