"""Tables by kernel, by waiting call and by device. Above attribution.

Times are int64 ns, quantiles and means float64.
"""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.analysis.attribution import waiting
from launchkit.profiling.timeline.analysis.intervals import covered_by, looked_up
from launchkit.profiling.timeline.analysis.layers import slot_of
from launchkit.profiling.timeline.analysis.linked import Linked
from launchkit.profiling.timeline.analysis.nesting import Nesting, innermost_at
from launchkit.profiling.timeline.figures import DURATION_NS, figures


def kernel_table(linked: Linked, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the GPU work by ``name`` and ``kind``, the most time first.

    ``count``, ``total_ns``, ``mean_ns``, ``median_ns``, ``p90_ns``, ``p99_ns``, ``min_ns``,
    ``max_ns`` of its durations; ``slot`` (see ``layers``); of the calls that started it
    ``orphans`` (not captured), ``launch_median_ns`` (without stalls and cold launches),
    ``queue_median_ns`` from the call's return to the start, of those ``queued`` that
    started after it.
    """
    own = calls.select(
        "call_id", "cold", returned="end_ns",
        launch=DURATION_NS - pl.col("stall_ns"),
    )  # fmt: skip
    lean = linked.gpu.select("name", "kind", "start_ns", "end_ns", "call_id")
    waited = pl.col("start_ns") - pl.col("returned")
    rows = looked_up(lean, own, "call_id").with_columns(took=DURATION_NS, waited=waited)
    table = rows.group_by("name", "kind").agg(
        pl.len().alias("count"), *figures(pl.col("took")),
        orphans=pl.col("call_id").is_null().sum(),
        launch_median_ns=pl.col("launch").filter(~pl.col("cold")).median(),
        queued=(pl.col("waited") >= 0).sum(),
        queue_median_ns=pl.col("waited").filter(pl.col("waited") >= 0).median(),
    )  # fmt: skip
    table = table.with_columns(slot=slot_of(pl.col("name")))
    return table.sort("total_ns", "name", "kind", descending=[True, False, False])


def sync_table(linked: Linked, calls: pl.DataFrame, nesting: Nesting) -> pl.DataFrame:
    """Return the waits for the GPU by ``name`` of the call and innermost ``range``.

    ``count``, ``total_ns``, ``median_ns``, ``max_ns``, and ``gpu_active_ns``: how much of
    it any GPU executed something. Blocking copies are among them.
    """
    waits = waiting(calls)
    tops = innermost_at(waits, nesting.segments, "start_ns")
    during = covered_by(waits, linked.active)
    named = nesting.ranges.select("order", "domain", range="name")
    rows = waits.hstack([tops]).with_columns(during.alias("during"), took=DURATION_NS)
    return (
        rows.join(named, left_on="top", right_on="order", how="left")
        .group_by("name", "domain", "range")
        .agg(
            count=pl.len(),
            total_ns=pl.col("took").sum(),
            median_ns=pl.col("took").median(),
            max_ns=pl.col("took").max(),
            gpu_active_ns=pl.col("during").sum(),
        )
        .sort("total_ns", "name", "range", descending=[True, False, False], nulls_last=True)
    )


def device_table(linked: Linked) -> pl.DataFrame:
    """Return for each ``device`` its ``span_ns`` from first to last work, ``busy_ns``, ``idle_ns``.

    ``work_ns`` is the sum of durations, which several streams make larger than ``busy_ns``.
    """
    work = linked.gpu.group_by("device").agg(count=pl.len(), work_ns=DURATION_NS.sum())
    spans = linked.busy.group_by("device").agg(
        busy_ns=DURATION_NS.sum(), span_ns=pl.col("end_ns").max() - pl.col("start_ns").min()
    )  # fmt: skip
    idle = pl.col("span_ns") - pl.col("busy_ns")
    return work.join(spans, on="device").with_columns(idle_ns=idle).sort("device")
