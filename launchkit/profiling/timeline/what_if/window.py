"""A window of an analysed timeline as a program: steps, calls and ranges. Above analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from launchkit.profiling.timeline.analysis.analysis import Analysis
from launchkit.profiling.timeline.what_if.gpu_work import Waits, ops_of
from launchkit.profiling.timeline.what_if.program import USUAL_QUEUE, Entry, Program


@dataclass(frozen=True)
class _Window:
    start_ns: int
    end_ns: int
    steps: int
    lane: int | None
    cut: bool


def program_of(
    analysis: Analysis, range_name: str | None = None, domain: str | None = None, *,
    max_calls: int = 200_000,
) -> Program:  # fmt: skip
    """Return the steps of ``analysis``, or all of it where it has none, as a program.

    The first step is left out where there are others (it is the cold one), and steps beyond
    ``max_calls`` calls. ``range_name``: the ranges whose entries get an ``instance``, the
    outermost where they nest, of one ``domain`` or of any.
    """
    window = _window(analysis, max_calls)
    inside = pl.col("start_ns").is_between(window.start_ns, window.end_ns, closed="left")
    calls = analysis.calls.filter(inside).sort("start_ns").head(max_calls)
    called = calls.select("call_id", called="start_ns", call_lane="lane")
    gpu = analysis.gpu.join(called, on="call_id").sort("called", "start_ns")
    marks = _marks(analysis, range_name, domain, window)
    entries = _entries(calls, gpu, marks, window)
    longest = analysis.stalls.filter(pl.col("stall_ns") > 0).get_column("longest_queue").max()
    own = gpu if window.lane is None else gpu.filter(pl.col("call_lane") == window.lane)
    return Program(
        start_ns=window.start_ns,
        end_ns=max(window.end_ns, int(own.get_column("end_ns").max() or 0)),  # type: ignore[arg-type]
        steps=window.steps,
        entries=entries,
        ops=ops_of(gpu),
        busy_until=_busy_until(analysis, window.start_ns),
        queue=int(longest or USUAL_QUEUE),  # type: ignore[arg-type]
        lane=window.lane,
        cold=calls.filter("cold").height,
        cut=window.cut,
    )


def ranges_of_steps(analysis: Analysis, *, max_calls: int = 200_000) -> list[str]:
    """Return the names of the ranges that lie in what ``program_of`` takes, on the thread of its steps."""
    window = _window(analysis, max_calls)
    own = pl.lit(window.lane is None) | (pl.col("lane") == (window.lane or 0))
    return _inside(analysis, window).filter(own).get_column("name").unique().to_list()


def _inside(analysis: Analysis, window: _Window) -> pl.DataFrame:
    return analysis.instances.filter(
        (pl.col("kind") == "push_pop") & pl.col("closed")
        & (pl.col("start_ns") >= window.start_ns) & (pl.col("end_ns") <= window.end_ns)
    )  # fmt: skip


def _window(analysis: Analysis, max_calls: int) -> _Window:
    rows = analysis.steps.select("start_ns", "end_ns").rows()
    if not rows:
        cut = analysis.calls.height > max_calls
        return _Window(*_whole(analysis, max_calls), 1, None, cut)
    chosen = rows[1:] if len(rows) > 1 else rows
    ends = [start for start, _ in chosen[1:]] + [chosen[-1][1]]
    starts = analysis.calls.get_column("start_ns").sort()
    first = int(starts.search_sorted(chosen[0][0]))
    kept = [end for end in ends if int(starts.search_sorted(end)) - first <= max_calls] or ends[:1]
    lane = analysis.steps.item(0, "lane")
    launching = analysis.calls.filter((pl.col("lane") == lane) & (pl.col("gpu_ops") > 0))
    return _Window(
        chosen[0][0], kept[-1], len(kept), lane if launching.height else None, len(kept) < len(ends)
    )


def _whole(analysis: Analysis, max_calls: int) -> tuple[int, int]:
    calls = analysis.calls.sort("start_ns").head(max_calls)
    if calls.is_empty():
        return 0, 0
    low, high = calls.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    spans = analysis.instances.filter("closed")
    if analysis.calls.height > max_calls or spans.is_empty():
        return low, high + 1
    outer = spans.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return min(low, outer[0]), max(high, outer[1]) + 1


def _marks(
    analysis: Analysis, name: str | None, domain: str | None, window: _Window
) -> list[tuple[int, int, int]]:
    """Return ``lane``, start and end of each range of that name in the window, the outermost."""
    rows = _inside(analysis, window).filter(
        (pl.col("name") == (name or ""))
        & (pl.lit(domain is None) | (pl.col("domain") == (domain or "")))
    ).sort("lane", "start_ns", "end_ns", descending=[False, False, True])  # fmt: skip
    reached = pl.col("end_ns").cum_max().shift(1).over("lane")
    outermost = rows.filter(reached.is_null() | (pl.col("start_ns") >= reached))
    return outermost.select("lane", "start_ns", "end_ns").rows()


def _busy_until(analysis: Analysis, start_ns: int) -> dict[tuple[int, int], int]:
    running = analysis.gpu.join(
        analysis.calls.filter(pl.col("start_ns") < start_ns).select("call_id"), on="call_id"
    ).filter(pl.col("end_ns") > start_ns)
    ends = running.group_by("device", pl.col("stream").fill_null(0)).agg(pl.col("end_ns").max())
    return {(device, stream): end for device, stream, end in ends.rows()}


def _entries(
    calls: pl.DataFrame,
    gpu: pl.DataFrame,
    marks: list[tuple[int, int, int]],
    window: _Window,
) -> list[Entry]:
    started: dict[int, list[int]] = {}
    for number, call in enumerate(gpu.get_column("call_id")):
        started.setdefault(call, []).append(number)
    waited = Waits(gpu)
    rows = [*_called(calls), *_marked(marks), *_last(window)]
    rows.sort(key=lambda row: (row["lane"], row["start_ns"], row["rank"]))
    reached: dict[int, int] = {}
    inside: dict[int, int] = {}
    made = []
    for row in rows:
        lane = row["lane"]
        if row["kind"] == "begin":
            inside[lane] = row["number"]
        begin = max(row["start_ns"], reached.get(lane, window.start_ns))
        before = begin - reached.get(lane, window.start_ns)
        reached[lane] = max(row["end_ns"], begin)
        made.append(_entry(row, before, reached[lane] - begin, started, waited, inside))
        if row["kind"] == "end":
            inside[lane] = -1
    return sorted(made, key=lambda entry: entry.at_ns)


def _called(calls: pl.DataFrame) -> Iterator[dict[str, Any]]:
    columns = calls.select(
        "call_id", "lane", "start_ns", "end_ns", "stall_ns", pl.col("kind").cast(pl.String),
        launches=pl.col("launches") > 0, driver=pl.col("layer") == "driver", rank=pl.lit(1),
    )  # fmt: skip
    return columns.iter_rows(named=True)


def _marked(marks: list[tuple[int, int, int]]) -> Iterator[dict[str, Any]]:
    for number, (lane, start, end) in enumerate(marks):
        for kind, at, rank in (("begin", start, 2), ("end", end, 0)):
            yield {"lane": lane, "start_ns": at, "end_ns": at, "kind": kind, "rank": rank,
                   "number": number}  # fmt: skip


def _entry(
    row: Mapping[str, Any], before: int, took: int, started: Mapping[int, list[int]],
    waited: Waits, inside: Mapping[int, int],
) -> Entry:  # fmt: skip
    lane, kind = row["lane"], row["kind"]
    common = {"lane": lane, "at_ns": row["start_ns"], "before_ns": before, "kind": kind,
              "instance": inside.get(lane, -1)}  # fmt: skip
    if "call_id" not in row:
        return Entry(cost_ns=0, **common)
    ops = tuple(started.get(row["call_id"], ()))
    cost = max(0, took - row["stall_ns"])
    wait, tail, cost = waited.of(row, ops, cost)
    return Entry(cost_ns=cost, driver=row["driver"], launches=row["launches"], ops=ops,
                 waits_for=wait, tail_ns=tail, **common)  # fmt: skip


def _last(window: _Window) -> Iterator[dict[str, Any]]:
    """Yield the end of the window, up to which the thread of the steps goes on."""
    if window.lane is not None:
        yield {"lane": window.lane, "start_ns": window.end_ns, "end_ns": window.end_ns,
               "kind": "last", "rank": 3}  # fmt: skip
