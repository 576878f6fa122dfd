"""The host part of ``launchkit bench copy``: what a step's bookkeeping costs, by how states move.

Runs on the current CUDA device; without one on the host-only driver, where figures hold
everything but the CUDA driver's own cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from launchkit.benchmarks import machine
from launchkit.benchmarks.copy import bookkeeping
from launchkit.benchmarks.mode import drain_for, measuring, refuse_launch_hooks
from launchkit.benchmarks.shapes import CACHE_SHAPES, CacheShape
from launchkit.benchmarks.timing import time_rows
from launchkit.errors import UsageError

REQS = (1, 8, 32)
"""Requests of a batch, where none are asked for."""

_CALLS = 10


def measure(
    models: Sequence[str],
    reqs: Sequence[int],
    rounds: int,
    before: dict[str, Any] | None = None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Measure a step's host time for every model and number of requests; return JSON values.

    models: of ``CACHE_SHAPES``; none for all. before: a result of ``bench.measure``,
    to which this part is added. finished: called after each case with the result so far, whose
    ``complete`` is false.

    Raises UsageError for an unknown model, a size below 1, fewer than 2 rounds, or a launch
    hook of another tool.
    """
    check(models, reqs, rounds)
    refuse_launch_hooks()
    with measuring() as cuda:
        document = _begun(before or _empty_document(cuda, rounds))
        for model in models or CACHE_SHAPES:
            for count in reqs:
                rows = _measured(CACHE_SHAPES[model], count, rounds, cuda)
                document["host"].extend(rows)
                document["host_ratios"].extend(_ratios(rows))
                finished(document)
    return {**document, "complete": True}


def check(models: Sequence[str], reqs: Sequence[int], rounds: int) -> None:
    """Raise UsageError for an unknown model, no or fewer requests than 1, or under 2 rounds."""
    unknown = [model for model in models if model not in CACHE_SHAPES]
    if unknown:
        raise UsageError(
            f"no model named {', '.join(unknown)}. There are: {', '.join(CACHE_SHAPES)}."
        )
    if rounds < 2 or not reqs or min(reqs) < 1:
        raise UsageError("rounds must be at least 2, requests at least 1. Give more.")


def _empty_document(cuda: bool, rounds: int) -> dict[str, Any]:
    return {
        **machine.measured_on(cuda),
        "method": {"rounds": rounds, "statistic": "median"},
        "rows": [],
        "failed": [],
    }


def _begun(document: dict[str, Any]) -> dict[str, Any]:
    method = {**document["method"], "host_calls_per_round": _CALLS}
    return {**document, "method": method, "complete": False, "host": [], "host_ratios": []}


def _measured(shape: CacheShape, reqs: int, rounds: int, cuda: bool) -> list[dict[str, Any]]:
    rows = bookkeeping.rows(shape.layers, reqs, "cuda" if cuda else "cpu")
    time_rows(rows, rounds, _CALLS, drain_for(cuda))
    return [{"model": shape.model, **row.summary()} for row in rows]


def _ratios(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return launchkit's ways ÷ state by state, of each op that has both."""
    slow = {row["op"]: row for row in rows if row["variant"] == bookkeeping.STATE_BY_STATE}
    return [
        {
            "model": row["model"],
            "reqs": row["reqs"],
            "op": row["op"],
            "of": row["variant"],
            "over": bookkeeping.STATE_BY_STATE,
            "ratio": round(row["median_us"] / slow[row["op"]]["median_us"], 4),
        }
        for row in rows
        if row["op"] in slow and row is not slow[row["op"]]
    ]
