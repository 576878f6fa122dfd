"""``launchkit bench layer``: launches, host µs and GPU µs of a short continuation, layer and step."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from launchkit.benchmarks import machine
from launchkit.benchmarks.failures import failure, named
from launchkit.benchmarks.gpu_time import add_gpu_times
from launchkit.benchmarks.layer import mixed, steps
from launchkit.benchmarks.mamba.counts import Counts, count
from launchkit.benchmarks.mamba.steps import Part
from launchkit.benchmarks.mode import drain_for, keep_freed_memory, measuring, refuse_launch_hooks
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.benchmarks.timing import TimedRow, repeated, time_rows
from launchkit.errors import UsageError

MODELS = ("Granite-4.0-h-micro", "Nemotron-3-Nano")
"""What is measured by default."""

_CALLS = {"layer": 5, "step": 1} | dict.fromkeys(mixed.MIXES, 1)
"""Per round, of each part: few enough launches for any launch queue."""


def measure(
    models: Sequence[str],
    rounds: int,
    advance: Callable[[], None] = lambda: None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Measure one request's continuation by 32 tokens in these models; return JSON values.

    Runs on the current CUDA device; without one, on the host-only driver, where figures hold
    everything but the CUDA driver's own cost and there are no GPU times. Configs are fixed;
    nothing is tuned and nothing stored. The variants take turns.

    Args:
        models: names in ``shapes.MAMBA_SHAPES``.
        rounds: how often each variant is timed, at least 2.
        advance: called after each model.
        finished: called after each part with the result so far, whose ``complete`` is false.

    Raises:
        UsageError: fewer than 2 rounds, no model or an unknown one, or a launch hook of another
            tool is installed.
        LaunchkitError: a model could not be compiled or measured; it is named.
    """
    if rounds < 2:
        raise UsageError(f"rounds must be at least 2, not {rounds}. Give more.", rounds=rounds)
    unknown = [model for model in models if model not in MAMBA_SHAPES]
    if unknown or not models:
        found = f"no model named {', '.join(unknown)}" if unknown else "no model is given"
        raise UsageError(f"{found}. There are: {', '.join(MAMBA_SHAPES)}.")
    refuse_launch_hooks()
    launches = _counted(models)
    with measuring() as cuda, pinned():
        document = _empty_document(cuda, rounds, not cuda and keep_freed_memory())
        for model in models:
            with named(model):
                for rows in _measured(model, rounds, launches[model], cuda):
                    document["rows"].extend(rows)
                    document["ratios"].extend(_ratios(rows))
                    finished(document)
            advance()
    return {**document, "complete": True}


def _empty_document(cuda: bool, rounds: int, kept_memory: bool) -> dict[str, Any]:
    return {
        **machine.measured_on(cuda),
        "method": {
            "rounds": rounds,
            "calls_per_round": _CALLS,
            "statistic": "median",
            "tokens": steps.TOKENS,
            "groups": steps.GROUPS,
            "keep_freed_memory": kept_memory,
            "separate_states": "whole states" if cuda else "one element of each state",
        },
        "complete": False,
        "rows": [],
        "ratios": [],
    }


def _counted(models: Sequence[str]) -> dict[str, Counts]:
    """Return the launches of each part, seen in a process a model, which also compiles them.

    A profiler that has once watched the GPU slows down launches for the rest of a process.
    """
    context = multiprocessing.get_context("spawn")
    workers = min(len(models), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, context) as pool:
        pending = {model: pool.submit(_count, model) for model in models}
        found = {}
        for model, future in pending.items():
            try:
                found[model] = future.result()
            except Exception as error:
                pool.shutdown(cancel_futures=True)
                raise failure(model, error) from error
    return found


def _count(model: str) -> Counts:
    with measuring(record=True) as cuda, pinned():
        return count(_parts(model, cuda), cuda)


def _parts(model: str, cuda: bool) -> list[Part]:
    device = "cuda" if cuda else "cpu"
    return [
        *steps.parts(model, device, triton_kernels()),
        *mixed.parts(model, device),
    ]


def _measured(
    model: str, rounds: int, launches: Counts, cuda: bool
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a layer, of a step, and of each mixed batch's step."""
    every = _parts(model, cuda)
    for what, calls in _CALLS.items():
        parts = [part for part in every if part.what == what]
        timed = [TimedRow(_labels(model, part, launches), repeated(part.call)) for part in parts]
        time_rows(timed, rounds, calls, drain_for(cuda))
        rows = [row.summary() for row in timed]
        if cuda:
            add_gpu_times(rows, [part.call for part in parts], rounds)
        yield rows


def _labels(model: str, part: Part, launches: Counts) -> dict[str, Any]:
    return {
        "model": model,
        "layers": MAMBA_SHAPES[model].layers,
        "what": part.what,
        "variant": part.step,
        "launches": launches[part.step, part.what],
    }


def _ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return launchkit ÷ each other variant of one model, of host and, if there, GPU times."""
    ours = {row["what"]: row for row in rows if row["variant"] == "launchkit"}
    return [
        {
            "model": row["model"],
            "what": row["what"],
            "time": time,
            "of": "launchkit",
            "over": row["variant"],
            "ratio": round(ours[row["what"]][field] / row[field], 4),
        }
        for time, field in (("host", "median_us"), ("gpu", "gpu_median_us"))
        for row in rows
        if row["variant"] != "launchkit" and field in row
    ]
