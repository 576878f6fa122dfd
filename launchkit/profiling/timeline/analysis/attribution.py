"""What the host and the GPU did in each range, inclusive and exclusive. Above nesting and linked.

Inclusive figures are differences of running sums at a range's two ends; exclusive ones are sums
over the times at which the range is the innermost of its thread. Both take a few sorts and ordered
joins, so their cost does not depend on how deep ranges nest.

A call belongs to the ranges open when it begins. Python is what remains of a range: wall time less
calls, waits and the ranges inside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from launchkit.profiling.timeline.analysis import intervals
from launchkit.profiling.timeline.analysis.intervals import looked_up
from launchkit.profiling.timeline.analysis.linked import Linked
from launchkit.profiling.timeline.analysis.nesting import Nesting, innermost_at, nest
from launchkit.profiling.timeline.figures import DURATION_NS, figures

_SUMMED = ("launches", "kernels", "gpu_ops", "gpu_ns", "stall_ns", "cold_ns", "added_ns")
_PROFILER = ("flush", "instrumentation", "resource", "other")


@dataclass(frozen=True)
class HostTime:
    """Unions of what threads spend outside Python, by ``lane`` or by ``process``.

    ``sync``: waits for the GPU. ``busy``: those and all calls. ``profiler``: what the profiler and
    the driver report as their own.
    """

    sync: pl.DataFrame
    busy: pl.DataFrame
    profiler: pl.DataFrame


def host_time(linked: Linked, calls: pl.DataFrame, key: str) -> HostTime:
    """Return the unions over the threads or processes that ``key`` names."""
    waits = waiting(calls)
    spans = (key, "start_ns", "end_ns")
    every = pl.concat([waits.select(spans), calls.select(spans)])
    own = linked.overheads.filter(pl.col("kind").cast(pl.String).is_in(_PROFILER))
    return HostTime(
        intervals.unions(waits, key), intervals.unions(every, key), intervals.unions(own, key)
    )


def waiting(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the times in which calls wait for the GPU: synchronizing ones and blocking copies.

    A copy that returns after it is done on the GPU has waited for it, and for what was before it.
    """
    copied = (pl.col("kind") == "memcpy") & (pl.col("gpu_last_ns") <= pl.col("end_ns"))
    waited = calls.filter((pl.col("kind") == "sync") | copied.fill_null(False))
    end = pl.when(pl.col("kind") == "memcpy").then("gpu_last_ns").otherwise("end_ns")
    return waited.select("lane", "process", "name", "start_ns", end_ns=end).filter(
        pl.col("end_ns") > pl.col("start_ns")
    )


def nested_ranges(linked: Linked) -> Nesting:
    """Sweep the ranges that nest: those pushed and popped on one thread."""
    return nest(linked.ranges.filter(pl.col("kind") == "push_pop"))


def instances(
    linked: Linked, calls: pl.DataFrame, nesting: Nesting, host: HostTime | None = None
) -> pl.DataFrame:
    """Return a row for each range, times in ns.

    ``range_id``, ``process``, ``thread``, ``lane``, ``domain``, ``name``, ``category``,
    ``payload``, ``kind``, ``closed``, ``start_ns``, ``end_ns``; ``order``, ``parent`` and ``depth``
    of ``Nesting``. Inclusive: ``wall_ns``, ``api_ns`` (calls without waits), of which ``stall_ns``
    waited for a full launch queue and ``cold_ns`` were cold launches; ``sync_ns``, ``profiler_ns``,
    ``inclusive_python_ns``, ``launches``, ``kernels``, ``gpu_ops``, ``gpu_ns`` (sum of durations),
    ``gpu_active_ns`` (while any GPU executed anything). Exclusive: ``exclusive_ns``,
    ``exclusive_api_ns``, ``exclusive_sync_ns``, ``python_ns``, ``own_launches``. On the GPU, see
    ``gpu_windows``: ``devices``, ``gpu_first_ns``, ``gpu_last_ns``, ``gpu_busy_ns``,
    ``gpu_idle_ns``, ``window_ns``, ``exposed_idle_ns``.

    Start/end ranges overlap others and may span threads: calls of their whole process count by
    containment, and they have nothing exclusive (null). ``host`` is that of lanes, if it is known.
    """
    calls = calls.with_columns(cold_ns=pl.when("cold").then(_took()).otherwise(0))
    lanes = host or host_time(linked, calls, "lane")
    nested = _inclusive(nesting.ranges, calls, lanes, "lane")
    nested = nested.hstack(gpu_windows(nested, linked, "lane"))
    own = exclusive(nesting, calls, lanes)
    nested = looked_up(nested, own, "order").with_columns(pl.col(own.columns[1:]).fill_null(0))
    nested = _without_recorder(nested)
    loose = linked.ranges.filter(pl.col("kind") == "start_end")
    every = nested if loose.is_empty() else pl.concat(
        [nested, _overlapping(loose, linked, calls)], how="diagonal"
    )  # fmt: skip
    every = every.sort("range_id")
    return every.with_columns(gpu_active_ns=intervals.covered_by(every, linked.active))


def _without_recorder(nested: pl.DataFrame) -> pl.DataFrame:
    """Take off exclusive times what the recorder took in a range, and in none inside it."""
    inner = nested.group_by(order="parent").agg(inner_ns=pl.col("recorder_ns").sum())
    own = pl.col("recorder_ns") - pl.col("inner_ns").fill_null(0)
    return (
        looked_up(nested, inner, "order")
        .with_columns((pl.col("exclusive_ns", "python_ns") - own).clip(lower_bound=0))
        .drop("inner_ns")
    )


def _overlapping(loose: pl.DataFrame, linked: Linked, calls: pl.DataFrame) -> pl.DataFrame:
    spans = _inclusive(loose, calls, host_time(linked, calls, "process"), "process")
    spans = spans.hstack(gpu_windows(spans, linked, "process"))
    return spans.with_columns(inclusive_python_ns=pl.lit(None, pl.Int64))


def _took() -> pl.Expr:
    return DURATION_NS - pl.col("stall_ns")


def _inclusive(ranges: pl.DataFrame, calls: pl.DataFrame, host: HostTime, key: str) -> pl.DataFrame:
    some = pl.any_horizontal(pl.col(name) != 0 for name in _SUMMED)
    ordered = calls.lazy().filter(some).select(key, "start_ns", *_SUMMED).sort(
        key, "start_ns", maintain_order=True
    )  # fmt: skip
    running = [pl.col(name).cast(pl.Int64).cum_sum().over(key) for name in _SUMMED]
    sums = ordered.select(key, "start_ns", *running).collect()
    at = [intervals.values_before(ranges, sums, key, end, _SUMMED).fill_null(0)
          for end in ("start_ns", "end_ns")]  # fmt: skip
    counted = [at[1][name] - at[0][name] for name in _SUMMED]
    covered = {
        f"{name}_ns": intervals.covered_between(ranges, islands, key, "start_ns", "end_ns")
        for name, islands in vars(host).items()
    }
    found = ranges.with_columns(*counted, **covered)
    recorder = pl.col("recorder_ns") + pl.col("added_ns")
    wall = (DURATION_NS - recorder).clip(lower_bound=0)
    found = found.with_columns(wall.alias("wall_ns"), recorder_ns=recorder)
    return found.with_columns(
        api_ns=pl.col("busy_ns") - pl.col("sync_ns"),
        inclusive_python_ns=(pl.col("wall_ns") - pl.col("busy_ns")).clip(lower_bound=0),
    ).drop("busy_ns", "added_ns")


def exclusive(nesting: Nesting, calls: pl.DataFrame, host: HostTime) -> pl.DataFrame:
    """Return by ``order`` the exclusive times of ranges that nest, and ``own_launches``."""
    spans = nesting.segments.filter(pl.col("top").is_not_null())
    sync, busy = (
        intervals.covered_between(spans, islands, "lane", "start_ns", "end_ns").alias(name)
        for name, islands in (("sync", host.sync), ("busy", host.busy))
    )
    times = (
        spans.with_columns(sync, busy, wall=DURATION_NS)
        .group_by("top")
        .agg(
            exclusive_ns=pl.col("wall").sum(),
            exclusive_api_ns=(pl.col("busy") - pl.col("sync")).sum(),
            exclusive_sync_ns=pl.col("sync").sum(),
            python_ns=(pl.col("wall") - pl.col("busy")).sum(),
        )
    )
    tops = innermost_at(calls, nesting.segments, "start_ns")
    launches = pl.DataFrame([tops, calls["launches"].cast(pl.Int64)]).group_by("top")
    counted = launches.agg(own_launches=pl.col("launches").sum())
    return times.join(counted, on="top", how="left").rename({"top": "order"})


def gpu_windows(ranges: pl.DataFrame, linked: Linked, key: str) -> pl.DataFrame:
    """Return what GPUs did for and during ``ranges``, over the devices that each submits to.

    ``devices``: how many. ``gpu_first_ns`` and ``gpu_last_ns``: the first start and last end of
    work submitted in the range. ``gpu_busy_ns`` and ``gpu_idle_ns``: whether the device executed
    anything between those two, a union over all streams. ``window_ns``: from the start of the range
    to its end or that of its work, whichever is later; ``exposed_idle_ns``: how much of it the
    device was idle. Sums over the devices; null where there are none.
    """
    names = sorted(linked.submissions.get_column("device").unique())
    parts = [_on_device(ranges, linked.submissions, linked.busy, key, name) for name in names]
    if not parts:
        return pl.DataFrame(schema=_WINDOWS).clear(ranges.height)
    rows = pl.concat([part.with_row_index("row") for part in parts])
    added = ("gpu_busy_ns", "gpu_idle_ns", "window_ns", "exposed_idle_ns")
    any_device = pl.col("gpu_first_ns").is_not_null()
    summed = [pl.when(pl.len() > 0).then(pl.col(name).sum()).alias(name) for name in added]
    found = rows.filter(any_device).group_by("row").agg(
        pl.len().alias("devices"), pl.col("gpu_first_ns").min(), pl.col("gpu_last_ns").max(), *summed
    )  # fmt: skip
    every = pl.DataFrame({"row": pl.int_range(ranges.height, dtype=pl.UInt32, eager=True)})
    joined = every.join(found, on="row", how="left", maintain_order="left").drop("row")
    return joined.with_columns(pl.col("devices").fill_null(0)).cast(_WINDOWS)  # type: ignore[arg-type]


_WINDOWS = {
    "devices": pl.UInt32,
    "gpu_first_ns": pl.Int64,
    "gpu_last_ns": pl.Int64,
    "gpu_busy_ns": pl.Int64,
    "gpu_idle_ns": pl.Int64,
    "window_ns": pl.Int64,
    "exposed_idle_ns": pl.Int64,
}


def _on_device(
    ranges: pl.DataFrame, submissions: pl.DataFrame, busy: pl.DataFrame, key: str, device: int
) -> pl.DataFrame:
    here = submissions.filter(pl.col("device") == device).sort(key, "start_ns")
    # Row numbers, not counts within a key: windows are rows of the whole table.
    rows = here.select(key, "start_ns", row=pl.int_range(1, pl.len() + 1))
    first, stop = (
        intervals.values_before(ranges, rows, key, end, ["row"])["row"]
        for end in ("start_ns", "end_ns")
    )
    begin = ranges.select(key).join(
        rows.group_by(key).agg(begin=pl.col("row").min() - 1), on=key, how="left",
        maintain_order="left",
    )["begin"]  # fmt: skip
    windows = pl.DataFrame({"first": first, "stop": stop, "begin": begin}).select(
        first=pl.coalesce("first", "begin").fill_null(0),
        stop=pl.coalesce("stop", "begin").fill_null(0),
    )
    ends = intervals.window_extrema(here, windows, "first_ns", "last_ns")
    spans = ranges.select("start_ns", "end_ns", device=pl.lit(device, pl.Int64)).hstack(ends)
    spans = spans.with_columns(until=pl.max_horizontal("end_ns", "high"))
    used = [intervals.covered_between(spans, busy, "device", *ends).alias(name)
            for name, ends in (("own", ("low", "high")), ("all", ("start_ns", "until")))]  # fmt: skip
    return spans.with_columns(used).select(
        gpu_first_ns="low",
        gpu_last_ns="high",
        gpu_busy_ns="own",
        gpu_idle_ns=pl.col("high") - pl.col("low") - pl.col("own"),
        window_ns=pl.col("until") - pl.col("start_ns"),
        exposed_idle_ns=pl.col("until") - pl.col("start_ns") - pl.col("all"),
    )


_TOTALS = (
    "exclusive_ns", "python_ns", "inclusive_python_ns", "api_ns", "stall_ns", "cold_ns",
    "sync_ns", "profiler_ns", "launches", "own_launches", "kernels", "gpu_ops", "gpu_ns",
    "gpu_active_ns", "gpu_busy_ns", "gpu_idle_ns", "window_ns", "exposed_idle_ns",
)  # fmt: skip


def without_cold(rows: pl.DataFrame, key: Sequence[str] = ("name", "domain")) -> pl.DataFrame:
    """Return the ranges without a cold launch; those of a name that has no other stay all."""
    steady = pl.col("closed") & (pl.col("cold_ns") == 0)
    return rows.filter(steady | ~steady.any().over(key))


def by_name(rows: pl.DataFrame, key: Sequence[str] = ("name", "domain")) -> pl.DataFrame:
    """Return ranges by ``key``, the most time first.

    ``count`` ranges that were closed, their ``total_ns``, ``mean_ns``, ``median_ns``,
    ``p90_ns``, ``p99_ns``, ``min_ns`` and ``max_ns`` (wall), and the sums of the columns of
    ``instances``; ``unclosed`` ranges have an end that nobody set and count in nothing but
    that column and ``unclosed_launches``. ``overlapping``: they are start/end ranges.
    """
    closed, wall = pl.col("closed"), pl.col("wall_ns").filter("closed")
    return (
        rows.group_by(key)
        .agg(
            closed.sum().alias("count"),
            *figures(wall),
            *(pl.col(name).filter("closed").sum() for name in _TOTALS),
            unclosed=(~closed).sum(),
            unclosed_launches=pl.col("launches").filter(~closed).sum(),
            overlapping=(pl.col("kind") == "start_end").any(),
        )
        .select(*key, pl.exclude(key))
        .sort("total_ns", *key, descending=[True, *(False for _ in key)])
    )
