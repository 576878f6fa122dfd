"""``launchkit bench launch``: host microseconds per launch, several ways, in one interleaved run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any

import torch

import launchkit
from launchkit.benchmarks import machine
from launchkit.benchmarks.launch import floor
from launchkit.benchmarks.launch.cases import CASES, LaunchCase
from launchkit.benchmarks.launch.variants import (
    FORMS,
    RECORDED,
    VARIANTS,
    build,
)
from launchkit.benchmarks.mode import drain_for, measuring, refuse_launch_hooks
from launchkit.benchmarks.timing import Loop, TimedRow, time_rows
from launchkit.errors import UsageError

_LAUNCHES = 500
"""Per round and row: below the depth of a launch queue, so the host never waits for the GPU."""

_TORCH_ADD = "torch_add"
_ONE_FORM = {"floor": "c_loop", _TORCH_ADD: "positional"}
"""Variants that are called in one way, whatever launchkit's row beside them."""


def measure(
    cases: Sequence[str] = tuple(CASES),
    rounds: int = 15,
    launches: int = _LAUNCHES,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure the named cases and return the result as JSON values.

    Runs on the current CUDA device; without one, on the host-only driver, where figures hold
    everything but the CUDA driver's own cost. Nothing that is tuned here is stored.

    Args:
        cases: names in ``cases.CASES``.
        rounds: how often each row is timed; a row's figures are over rounds.
        launches: launches per round and row.
        advance: called once a round, for progress.

    Raises:
        UsageError: an unknown case, or a launch hook of another tool is installed.
    """
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise UsageError(f"no case named {', '.join(unknown)}. There are: {', '.join(CASES)}.")
    if rounds < 2 or launches < 1:
        raise UsageError("rounds must be at least 2 and launches at least 1. Give larger ones.")
    refuse_launch_hooks()
    with measuring() as cuda:
        rows = [
            row for name in cases for row in _rows(CASES[name]("cuda" if cuda else "cpu"), cuda)
        ]
        time_rows(rows, rounds, launches, drain_for(cuda), advance)
        summaries = [row.summary() for row in rows]
        return {
            **machine.measured_on(cuda),
            "method": {"rounds": rounds, "launches_per_round": launches, "statistic": "median"},
            "rows": summaries,
            "ratios": ratios(summaries),
            "recording": recording(rows),
        }


def _rows(case: LaunchCase, cuda: bool) -> list[TimedRow]:
    rows = []
    for form in FORMS:
        for variant in VARIANTS:
            loop = build(case, variant, form)
            if loop is not None:
                around = launchkit.profile_launches if variant == RECORDED else nullcontext
                rows.append(TimedRow(_labels(case, form, variant), loop, around))
    if cuda:
        rows.insert(0, TimedRow(_labels(case, _ONE_FORM["floor"], "floor"), _floor(case)))
        rows.append(TimedRow(_labels(case, _ONE_FORM[_TORCH_ADD], _TORCH_ADD), _torch_add()))
    return rows


def _labels(case: LaunchCase, form: str, variant: str) -> dict[str, Any]:
    return {"case": case.name, "args": case.args, "call_form": form, "variant": variant}


def _floor(case: LaunchCase) -> Loop:
    compiled = case.jit[case.grid](**case.arguments, **case.configs[0].all_kwargs())
    params = floor.kernel_params(compiled, case.arguments)
    return floor.floor_loop(compiled, case.grid, params, torch.cuda.current_stream().cuda_stream)


def _torch_add() -> Loop:
    """Return a loop of what everybody knows the price of: an addition by torch into a tensor."""
    x, y = torch.rand(2, 1024, device="cuda")
    out = torch.empty_like(x)

    def loop(n: int) -> None:
        for _ in range(n):
            torch.add(x, y, out=out)

    return loop


def recording(rows: Sequence[TimedRow]) -> list[dict[str, Any]]:
    """Return the µs that ``profile_launches`` adds to a launch: the median over rounds of what a
    recorded launch took more than an unrecorded one of the same case, form and round."""
    times = {
        (r.labels["case"], r.labels["call_form"], r.labels["variant"]): r.times_us for r in rows
    }
    return [
        {
            "case": case,
            "call_form": form,
            "added_us": round(
                median(
                    recorded - plain
                    for recorded, plain in zip(
                        times_us, times[case, form, "launchkit"], strict=True
                    )
                ),
                3,
            ),
        }
        for (case, form, variant), times_us in times.items()
        if variant == RECORDED
    ]


def ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return launchkit ÷ each other variant of the same case and call form; smaller is better."""
    by_place = {(r["case"], r["call_form"], r["variant"]): r["median_us"] for r in rows}
    found = []
    for (case, form, variant), ours in by_place.items():
        if variant != "launchkit":
            continue
        for other in ("floor", *VARIANTS, _TORCH_ADD):
            theirs = by_place.get((case, _ONE_FORM.get(other, form), other))
            if other != "launchkit" and theirs is not None:
                ratio = round(ours / theirs, 4)
                found.append(
                    {
                        "case": case,
                        "call_form": form,
                        "of": "launchkit",
                        "over": other,
                        "ratio": ratio,
                    }
                )
    return found
