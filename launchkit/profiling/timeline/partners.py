"""Which call launched which GPU work, whatever captured them; what has no partner. Above the leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS, capture_step

_KEY = ["process", "correlation"]


def with_partners(timeline: Timeline, calls_table: str, gpu_tables: Mapping[str, str]) -> Timeline:
    """Return ``timeline`` with ``outermost`` and ``captured`` filled in its calls, and the rest noted.

    ``captured`` tells launches into a stream that was being captured: they have no GPU work of their
    own. Launches and GPU work without a partner, GPU work that starts before its launch returns, or
    even before it starts, are noted in the counts of ``calls_table`` and of the table that
    ``gpu_tables`` has for their kind.
    """
    calls = _with_nesting(timeline.calls)
    calls = _with_captures(calls, timeline.gpu)
    timeline = replace(timeline, calls=calls)
    _note_orphans(timeline, calls_table, gpu_tables)
    early = _note_early(timeline, gpu_tables)
    if early:
        timeline = timeline.warned(
            f"{early} pieces of GPU work start before the call that launched them: the clocks of host "
            "and GPU differ"
        )
    return timeline


def _with_nesting(calls: pl.DataFrame) -> pl.DataFrame:
    on = ["process", "thread"]
    before = pl.col("end_ns").cum_max().shift(1).over(on)
    inside = (pl.col("end_ns") <= before) & (pl.col("start_ns") < before)
    return calls.with_columns(outermost=~inside.fill_null(False))


def _with_captures(calls: pl.DataFrame, gpu: pl.DataFrame) -> pl.DataFrame:
    steps = {name: capture_step(name) for name in calls["name"].unique().to_list()}
    steps = {name: step for name, step in steps.items() if step}
    if not steps:
        return calls.with_columns(captured=pl.lit(False))
    step = pl.col("name").replace_strict(steps, default=0, return_dtype=pl.Int64)
    depth = step.cum_sum().over(["process", "thread"])
    within = (depth > 0) & pl.col("kind").is_in(["launch", "memcpy", "memset"])
    partners = gpu.select(_KEY).drop_nulls().unique().with_columns(launched=pl.lit(True))
    joined = calls.join(partners, on=_KEY, how="left", maintain_order="left")
    return joined.with_columns(captured=within & pl.col("launched").is_null()).drop("launched")


def _note_orphans(timeline: Timeline, calls_table: str, gpu_tables: Mapping[str, str]) -> None:
    calls, gpu = timeline.calls, timeline.gpu
    launches = calls.filter(pl.col("kind").is_in(LAUNCH_KINDS))
    captured = int(launches["captured"].sum())
    lost = launches.filter(~pl.col("captured")).join(gpu, on=_KEY, how="anti").height
    timeline.counts.add(
        calls_table,
        noted={
            "launches into a CUDA graph being captured": captured,
            "launches without GPU work": lost if gpu.height else 0,
        },
    )
    orphans = gpu.join(calls, on=_KEY, how="anti")
    _note(timeline, gpu_tables, orphans, "without its launch call")


def _note_early(timeline: Timeline, gpu_tables: Mapping[str, str]) -> int:
    first = timeline.calls.select(*_KEY, called="start_ns", returned="end_ns").drop_nulls()
    first = first.unique(_KEY, keep="first")
    pairs = timeline.gpu.select(*_KEY, "start_ns", "kind").join(first, on=_KEY, how="inner")
    early = pairs.filter(pl.col("start_ns") < pl.col("returned"))
    earlier = early.filter(pl.col("start_ns") < pl.col("called"))
    early = early.filter(pl.col("start_ns") >= pl.col("called"))
    _note(timeline, gpu_tables, early, "starting before its launch call returns")
    _note(timeline, gpu_tables, earlier, "starting before its launch call starts")
    return earlier.height


def _note(timeline: Timeline, tables: Mapping[str, str], rows: pl.DataFrame, remark: str) -> None:
    for kind, count in rows.group_by("kind").len().iter_rows():
        timeline.counts.add(tables[kind], noted={remark: count})
