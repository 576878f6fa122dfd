"""Which call launched which GPU work, whatever captured them. Above the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from launchkit.profiling.timeline.model import Timeline
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS, capture_step

_KEY = ["process", "correlation"]


def with_partners(timeline: Timeline, calls_table: str, gpu_tables: Mapping[str, str]) -> Timeline:
    """Return ``timeline`` with ``outermost`` and ``captured`` filled in its calls, and the rest noted.

    ``captured`` tells launches into a stream that was being captured: they have no GPU work of
    their own. Launches and GPU work without a partner, GPU work that starts before its launch
    returns, or even before it starts, are noted in the counts of ``calls_table`` and of the table
    that ``gpu_tables`` has for their kind.
    """
    calls = _with_nesting(timeline.calls)
    calls = _with_captures(calls, timeline.gpu)
    timeline = replace(timeline, calls=calls)
    _note_launches(timeline, calls_table)
    early = _note_partners(timeline, gpu_tables)
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


def _note_launches(timeline: Timeline, calls_table: str) -> None:
    calls, gpu = timeline.calls, timeline.gpu
    launches = calls.filter(pl.col("kind").is_in(LAUNCH_KINDS)).select(*_KEY, "captured")
    captured = int(launches["captured"].sum())
    lost = _without_work(launches.filter(~pl.col("captured")), gpu)
    timeline.counts.add(
        calls_table,
        noted={
            "launches into a CUDA graph being captured": captured,
            "launches without GPU work": lost if gpu.height else 0,
        },
    )


def _without_work(launches: pl.DataFrame, gpu: pl.DataFrame) -> int:
    lost = 0
    for (process,), mine in launches.partition_by("process", as_dict=True).items():
        done = gpu.filter(pl.col("process") == process)["correlation"].drop_nulls().sort()
        lost += _places(mine["correlation"], done).null_count()
    return lost


def _note_partners(timeline: Timeline, gpu_tables: Mapping[str, str]) -> int:
    """Note GPU work without a call, or too early for it; return how much started before its call."""
    pairs = _pairs(timeline)
    called, returned = (
        pl.col("called") <= pl.col("start_ns"),
        pl.col("returned") <= pl.col("start_ns"),
    )
    earlier = pairs.filter(~called)
    _note(timeline, gpu_tables, pairs.filter(pl.col("called").is_null()), "without its launch call")
    early = pairs.filter(called & ~returned)
    _note(timeline, gpu_tables, early, "starting before its launch call returns")
    _note(timeline, gpu_tables, earlier, "starting before its launch call starts")
    return earlier.height


def _pairs(timeline: Timeline) -> pl.DataFrame:
    """Return GPU work with the times of its call: of the first one, where several share its id.

    Looked up in sorted ids, process by process: a join would need several times the memory.
    """
    work = timeline.gpu.select(*_KEY, "start_ns", "kind")
    calls = timeline.calls.select(*_KEY, called="start_ns", returned="end_ns").drop_nulls()
    pairs = [
        work.clear().with_columns(called=pl.lit(None, pl.Int64), returned=pl.lit(None, pl.Int64))
    ]
    for (process,), mine in work.partition_by("process", as_dict=True).items():
        same = calls.filter(pl.col("process") == process)
        same = same.sort("correlation", maintain_order=True)
        places = _places(mine["correlation"], same["correlation"])
        times = [same[name].gather(places).alias(name) for name in ("called", "returned")]
        pairs.append(mine.with_columns(times))
    return pl.concat(pairs)


def _places(wanted: pl.Series, ordered: pl.Series) -> pl.Series:
    """Return where in ``ordered`` each wanted value stands first, null where it does not."""
    if not len(ordered):
        return pl.Series([None] * len(wanted), dtype=pl.UInt32)
    found = ordered.search_sorted(wanted, side="left").clip(upper_bound=len(ordered) - 1)
    there = (ordered.gather(found) == wanted).fill_null(False)
    return pl.select(pl.when(there).then(found)).to_series()


def _note(timeline: Timeline, tables: Mapping[str, str], rows: pl.DataFrame, remark: str) -> None:
    for kind, count in rows.group_by("kind").len().iter_rows():
        timeline.counts.add(tables[kind], noted={remark: count})
