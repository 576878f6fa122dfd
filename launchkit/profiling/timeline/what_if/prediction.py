"""What a change at the launches of some ranges would make of the step time. Above replay.

A change takes host time away; whether a step gets shorter depends on what the GPU does meanwhile.
So the window is replayed as it was and as it would be, host and GPU with all that they wait for,
and the difference is the prediction. What the host saves beyond that is hidden behind the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from launchkit.errors import UsageError
from launchkit.profiling.timeline.analysis.analysis import Analysis
from launchkit.profiling.timeline.what_if.changes import (
    CachedLaunches,
    Change,
    CudaGraph,
    Fused,
    OpPlan,
    apply,
    warmed,
)
from launchkit.profiling.timeline.what_if.program import Program, instances_of
from launchkit.profiling.timeline.what_if.replay import Replayed, replay
from launchkit.profiling.timeline.what_if.window import program_of, ranges_of_steps


@dataclass(frozen=True)
class Prediction:
    """What a change is predicted to do, times in ns per step (or for the whole, without steps).

    ``measured_ns``: as captured. ``replayed_ns``: replayed unchanged; the model is as good as these
    two agree (``model_error``, a share). ``predicted_ns``: replayed with the change; ``saved_ns``
    the difference, ``host_saved_ns`` what threads have less to do, ``hidden_ns`` the part of that
    which the GPU hides. ``warm_ns``: replayed with the change, and the host code that stays as much
    faster as it was found to get with less Python around it (``changes.WARM_SHARE``): what is to be
    expected lies near these two. ``gpu_ns``: sum of the durations of GPU work. ``instances``:
    ranges changed; ``skipped``: those that could not be. ``notes`` say what the model leaves out.
    """

    change: Change
    steps: int
    instances: int
    skipped: int
    measured_ns: float
    replayed_ns: float
    predicted_ns: float
    warm_ns: float
    saved_ns: float
    host_saved_ns: float
    hidden_ns: float
    gpu_ns: float
    notes: tuple[str, ...]

    @property
    def model_error(self) -> float:
        """By which share the unchanged replay differs from what was captured."""
        return self.replayed_ns / self.measured_ns - 1 if self.measured_ns else 0.0


def predict(analysis: Analysis, change: Change, *, max_calls: int = 200_000) -> Prediction:
    """Return what ``change`` would make of the steps of ``analysis``.

    Raises:
        UsageError: there is no closed push/pop range of that name in the steps.
    """
    program = _program(analysis, change.range, change.domain, max_calls)
    return _predicted(program, change, replay(program))


def _program(analysis: Analysis, name: str, domain: str | None, max_calls: int) -> Program:
    program = program_of(analysis, name, domain, max_calls=max_calls)
    if not instances_of(program):
        raise UsageError(
            f"no range {name!r} lies within the steps of the capture. Name one that is in "
            "the table of ranges, or choose other steps with step_range (--step-range).",
            range=name,
            domain=domain,
        )
    return program


def _predicted(program: Program, change: Change, before: Replayed) -> Prediction:
    """Return what a change makes of a program whose replay, as it is, took ``before``."""
    changed, instances, skipped = apply(program, change)
    after, steps = replay(changed), program.steps
    saved = (before.total_ns - after.total_ns) / steps
    host = (_host_ns(program) - _host_ns(changed)) / steps
    warm = replay(warmed(changed, change)) if host > 0 and _warms(change) else after
    return Prediction(
        change=change,
        steps=steps,
        instances=instances,
        skipped=skipped,
        measured_ns=(program.end_ns - program.start_ns) / steps,
        replayed_ns=before.total_ns / steps,
        predicted_ns=after.total_ns / steps,
        warm_ns=warm.total_ns / steps,
        saved_ns=saved,
        host_saved_ns=host,
        hidden_ns=max(0.0, host - saved),
        gpu_ns=after.gpu_ns / steps,
        notes=tuple(_notes(program, after, change, skipped)),
    )


def _warms(change: Change) -> bool:
    """Whether code that stays gets faster: not where Python stays, nor below an upper bound."""
    return not isinstance(change, Fused) and not _is_bound(change)


def _is_bound(change: Change) -> bool:
    return isinstance(change, CachedLaunches) and change.saves_ns is None


def _host_ns(program: Program) -> int:
    own = (each for each in program.entries if program.lane in (None, each.lane))
    return sum(entry.before_ns + entry.cost_ns for entry in own)


def _notes(program: Program, after: Replayed, change: Change, skipped: int) -> list[str]:
    lanes = {entry.lane for entry in program.entries if entry.ops}
    begun = (program.entries[numbers[0]].lane for numbers in instances_of(program))
    elsewhere = sum(program.lane not in (None, lane) for lane in begun)
    found = {
        "threads do not wait for each other in the replay": len(lanes) > 1,
        "only the first steps were replayed": program.cut,
        f"{elsewhere} of these ranges are on other threads than the steps, whose time it is":
        elsewhere > 0,
        "what other Python an op does between its launches is taken for launch cost: an upper bound":
        _is_bound(change),
        "fusing also saves GPU time, which is not counted": isinstance(change, Fused),
        f"{program.cold} cold launches are in these steps and stay as they are": program.cold > 0,
        f"{skipped} ranges cannot be changed so, and stay as they are": skipped > 0,
        "the GPU is the bound afterwards: further host time would save nothing":
        after.gpu_done_ns > after.host_ns and after.gpu_ns >= 0.9 * after.gpu_done_ns,
    }  # fmt: skip
    return [text for text, holds in found.items() if holds]


_SUGGESTED_CALLS = 50_000
"""Calls that each suggestion replays, in whole steps: some seconds for a dozen of them."""


def suggestions(
    analysis: Analysis, ranges: Sequence[str] | None = None, *, limit: int = 5
) -> pl.DataFrame:
    """Return what changes at ``ranges`` would save, the most per step first.

    Without ``ranges``, the ``limit`` ranges of the steps' thread with most Python and calls of
    their own that launch are tried. Columns: ``change``, ``range``, ``instances``, ``skipped``,
    ``measured_ns``, ``replayed_ns``, ``predicted_ns``, ``warm_ns``, ``saved_ns``,
    ``host_saved_ns``, ``hidden_ns``, ``notes``.
    """
    names = list(ranges) if ranges is not None else _candidates(analysis, limit)
    rows = []
    for name in names:
        try:
            program = _program(analysis, name, None, _SUGGESTED_CALLS)
        except UsageError:
            if ranges is not None:
                raise
            continue
        before = replay(program)
        changes = (kind(name) for kind in (CachedLaunches, OpPlan, CudaGraph, Fused))
        rows += [_row(_predicted(program, change, before)) for change in changes]
    made = pl.DataFrame(rows, schema=_ROW, orient="row").filter(pl.col("instances") > 0)
    return made.sort("saved_ns", "range", "change", descending=[True, False, False])


_ROW: dict[str, Any] = {
    "change": pl.String, "range": pl.String, "instances": pl.Int64, "skipped": pl.Int64,
    "measured_ns": pl.Float64, "replayed_ns": pl.Float64, "predicted_ns": pl.Float64,
    "warm_ns": pl.Float64, "saved_ns": pl.Float64, "host_saved_ns": pl.Float64,
    "hidden_ns": pl.Float64, "notes": pl.List(pl.String),
}  # fmt: skip


def _row(found: Prediction) -> tuple[Any, ...]:
    figures = [getattr(found, name) for name in list(_ROW)[2:-1]]
    return type(found.change).__name__, found.change.range, *figures, list(found.notes)


def _candidates(analysis: Analysis, limit: int) -> list[str]:
    own = pl.col("exclusive_ns") - pl.col("stall_ns")
    inside = ranges_of_steps(analysis, max_calls=_SUGGESTED_CALLS)
    launching = analysis.ranges.filter(
        (pl.col("own_launches") > 0)
        & (pl.col("count") > 0)
        & ~pl.col("overlapping")
        & pl.col("name").is_in(inside)
    )
    return launching.sort(own, descending=True).get_column("name").unique(
        maintain_order=True
    ).head(limit).to_list()  # fmt: skip
