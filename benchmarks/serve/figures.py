"""The figures of ``launchkit bench serve``: of one run, of several, and of two variants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np

from launchkit.benchmarks.serve.engine import Served

HIGHER, LOWER = "higher", "lower"
FIGURES = {
    "output_tokens_per_s": HIGHER,
    "ttft_p50_ms": LOWER,
    "ttft_p95_ms": LOWER,
    "itl_p50_ms": LOWER,
    "itl_p95_ms": LOWER,
    "prefill_step_p50_ms": LOWER,
    "decode_step_p50_ms": LOWER,
}
"""By name: which is better. TTFT: from a request's arrival to its first token; ITL: from each of
its tokens to the next."""

Run = dict[str, "float | None"]


def figures(served: Served) -> Run:
    """Return the figures of one run; None for what it had nothing of."""
    ttft = [times[0] - at for times, at in zip(served.token_ns, served.arrived_ns, strict=True)]
    itl = [b - a for times in served.token_ns for a, b in itertools.pairwise(times)]
    count = sum(len(tokens) for tokens in served.tokens)
    return {
        "output_tokens_per_s": round(count / served.wall_ns * 1e9, 2),
        "ttft_p50_ms": percentile_ms(ttft, 50),
        "ttft_p95_ms": percentile_ms(ttft, 95),
        "itl_p50_ms": percentile_ms(itl, 50),
        "itl_p95_ms": percentile_ms(itl, 95),
        "prefill_step_p50_ms": percentile_ms(served.prefill_steps_ns, 50),
        "decode_step_p50_ms": percentile_ms(served.decode_steps_ns, 50),
    }


def percentile_ms(times_ns: Sequence[int], percent: float) -> float | None:
    """Return a percentile in milliseconds, between the two nearest times in proportion."""
    if not times_ns:
        return None
    return round(float(np.percentile(np.array(times_ns), percent)) / 1e6, 4)


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Return mean and standard deviation of each figure over at least two runs."""
    found: dict[str, Any] = {}
    for name in FIGURES:
        values = known([run[name] for run in runs])
        some = len(values) > 1
        found[name] = {
            "mean": round(mean(values), 4) if some else None,
            "stddev": round(stdev(values), 4) if some else None,
            "runs": [run[name] for run in runs],
        }
    return found


def ratios(ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
    """Return ours ÷ theirs of each figure, over pairs of runs: mean and standard deviation."""
    found: dict[str, Any] = {}
    for name, better in FIGURES.items():
        pairs = [(our[name], their[name]) for our, their in zip(ours, theirs, strict=True)]
        values = [our / their for our, their in pairs if our is not None and their]
        if len(values) > 1:
            spread = {"ratio": round(mean(values), 4), "stddev": round(stdev(values), 4)}
            found[name] = {**spread, "better": better}
    return found


def known(values: Sequence[float | None]) -> list[float]:
    """Return what is not None."""
    return [value for value in values if value is not None]
