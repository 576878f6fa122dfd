"""``launchkit bench mamba``: host µs, GPU µs and launches per Mamba2 layer, in cumulative steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from launchkit.benchmarks import machine
from launchkit.benchmarks.failures import named
from launchkit.benchmarks.gpu_time import gpu_spread, gpu_times_us
from launchkit.benchmarks.mamba.cases import MambaCase, build
from launchkit.benchmarks.mamba.counts import Counts
from launchkit.benchmarks.mamba.prepare import prepare
from launchkit.benchmarks.mamba.steps import OPS, STEPS, Part, parts, per_op
from launchkit.benchmarks.mode import drain_for, keep_freed_memory, measuring, refuse_launch_hooks
from launchkit.benchmarks.pinned_configs import (
    PINNED_CONFIGS,
    ScanKernels,
    pinned,
    triton_kernels,
)
from launchkit.benchmarks.timing import TimedRow, repeated, spread, time_rows
from launchkit.errors import UsageError

_CALLS = 3
"""Per round and part: a fraction of the time that the system leaves a process a core, and few
enough launches for any launch queue."""

_LAST = STEPS[-1]

Samples = dict[tuple[str, str], list[float]]
"""Times in microseconds, one a round, by (step, what) or by (op, step)."""


def measure(
    cases: Sequence[MambaCase],
    rounds: int,
    report: Callable[[str, int], None] = lambda _stage, _cases: None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Measure the cases and return the result as JSON values.

    Runs on the current CUDA device; without one, on the host-only driver, where figures hold
    everything but the CUDA driver's own cost and there are no GPU times. Configs are fixed;
    nothing is tuned and nothing stored.

    Args:
        cases: from ``cases.select``.
        rounds: how often each part is timed; figures are over rounds.
        report: called with ``prepared`` or ``timed`` and how many cases became so.
        finished: called after each case with the result so far, whose ``complete`` is false.

    Raises:
        UsageError: fewer than 2 rounds, no cases, or a launch hook of another tool is installed.
        LaunchkitError: a case could not be compiled or measured; it is named.
    """
    if rounds < 2:
        raise UsageError(f"rounds must be at least 2, not {rounds}. Give more.", rounds=rounds)
    if not cases:
        raise UsageError("there are no cases to measure. Give at least one.")
    refuse_launch_hooks()
    launches = prepare(cases, lambda number: report("prepared", number))
    with measuring() as cuda, pinned() as ours:
        document = _empty_document(cuda, rounds, not cuda and keep_freed_memory())
        by_triton = triton_kernels()
        for case in cases:
            with named(case.name):
                rows = _measured(case, rounds, by_triton, ours, launches[case.name], cuda)
            document["cases"].append(_described(case))
            document["rows"].extend(rows)
            document["ratios"].extend(ratios(rows))
            finished(document)
            report("timed", 1)
    return {**document, "complete": True}


def _empty_document(cuda: bool, rounds: int, kept_memory: bool) -> dict[str, Any]:
    return {
        **machine.measured_on(cuda),
        "method": {
            "rounds": rounds,
            "calls_per_round": _CALLS,
            "statistic": "median",
            "configs": {
                name: [str(config) for config in pair] for name, pair in PINNED_CONFIGS.items()
            },
            "keep_freed_memory": kept_memory,
            "separate_write_back": "whole states" if cuda else "one element of each state",
        },
        "complete": False,
        "cases": [],
        "rows": [],
        "ratios": [],
    }


def _described(case: MambaCase) -> dict[str, Any]:
    return {
        "case": case.name,
        "model": case.model,
        "layers": case.shape.layers,
        "sequences": case.sequences,
        "tokens": case.tokens,
        "initial_states": case.initial_states,
    }


def _measured(
    case: MambaCase,
    rounds: int,
    by_triton: ScanKernels,
    ours: ScanKernels,
    launches: Counts,
    cuda: bool,
) -> list[dict[str, Any]]:
    """Return the rows of one case."""
    timed = parts(build(case, "cuda" if cuda else "cpu"), by_triton, ours)
    host_us = per_op(_host_us(timed, rounds, cuda))
    gpu_us: Samples = {}
    if cuda:
        times = gpu_times_us([part.call for part in timed], rounds)
        gpu_us = per_op({(p.step, p.what): us for p, us in zip(timed, times, strict=True)})
        del timed
        torch.cuda.empty_cache()
    counts = _launches_per_op(launches)
    return [
        {
            "case": case.name,
            "op": op,
            "step": step,
            "launches": counts[op, step],
            **spread(host_us[op, step]),
            **(gpu_spread(gpu_us[op, step]) if cuda else {}),
        }
        for op in OPS
        for step in STEPS
    ]


def _host_us(timed: Sequence[Part], rounds: int, cuda: bool) -> Samples:
    rows = [TimedRow({"part": (part.step, part.what)}, repeated(part.call)) for part in timed]
    time_rows(rows, rounds, _CALLS, drain_for(cuda))
    return {row.labels["part"]: row.times_us for row in rows}


def _launches_per_op(counts: Counts) -> dict[tuple[str, str], int | None]:
    if None in counts.values():
        return dict.fromkeys(((op, step) for op in OPS for step in STEPS), None)
    known = {place: [float(number or 0)] for place, number in counts.items()}
    return {place: int(number) for place, (number,) in per_op(known).items()}


def ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, per case, launchkit ÷ each step before it for a whole layer; smaller is better.

    ``time`` is ``host``; or ``gpu``, which is over the step whose kernels are the same,
    launched by Triton.
    """
    layers = {(row["case"], row["step"]): row for row in rows if row["op"] == "layer"}
    found = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ours = layers[case, _LAST]
        compared = [("host", "median_us", step) for step in STEPS[:-1]]
        if "gpu_median_us" in ours:
            compared.append(("gpu", "gpu_median_us", "fused_write"))
        for time, field, step in compared:
            ratio = round(ours[field] / layers[case, step][field], 4)
            found.append(
                {"case": case, "op": "layer", "time": time, "of": "launchkit", "over": step,
                 "ratio": ratio}
            )  # fmt: skip
    return found
