"""What a capture of ``launchkit bench predict`` says: predictions, what was run, and the recorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import median, quantiles
from typing import Any

import polars as pl

from launchkit import LaunchProfile
from launchkit.benchmarks.predict.steps import (
    AUTOTUNED,
    BASELINE,
    GRAPH,
    OPS,
    PLANNED,
    RECORDED,
    recorded_range,
    step_range,
)
from launchkit.kernels.mamba_layer import SSD_SCAN
from launchkit.profiling.timeline import (
    CachedLaunches,
    Change,
    CudaGraph,
    OpPlan,
    Prediction,
    Timeline,
    analyse,
    predict,
)


def changes(saves_ns: int | None) -> list[tuple[str, Change]]:
    """Return each variant with the change that predicts it, of the scans alone.

    ``saves_ns``: what ``launch_autotuned`` saves a launch, as ``bench launch`` measured it; the rest
    are the defaults of ``launchkit report``. Nothing is taken from the steps that are predicted.
    """
    bounds: list[tuple[str, Change]] = [(AUTOTUNED, CachedLaunches(SSD_SCAN))]
    if saves_ns is not None:
        bounds.append((AUTOTUNED, CachedLaunches(SSD_SCAN, saves_ns=saves_ns)))
    return [*bounds, (PLANNED, OpPlan(SSD_SCAN)), (GRAPH, CudaGraph(SSD_SCAN))]


def captured_us(timeline: Timeline, variant: str, turn: int) -> float | None:
    """Return the mean time of a round's steps but the first, as a prediction counts them."""
    named = timeline.ranges.filter((pl.col("name") == step_range(variant, turn)) & pl.col("closed"))
    steps = named.sort("start_ns").select("start_ns", "end_ns").rows()[1:]
    return (steps[-1][1] - steps[0][0]) / len(steps) / 1e3 if steps else None


def predictions(timeline: Timeline, rounds: int, saves_ns: int | None) -> list[dict[str, Any]]:
    """Return a row for each change: medians over rounds, each predicted from its own baseline."""
    wanted = changes(saves_ns)
    found: list[list[Prediction]] = [[] for _ in wanted]
    for turn in range(rounds):
        analysis = analyse(timeline, step_range=step_range(BASELINE, turn))
        for each, (_, change) in zip(found, wanted, strict=True):
            each.append(predict(analysis, change))
    return [
        _row(
            variant, change, each, [captured_us(timeline, variant, turn) for turn in range(rounds)]
        )
        for (variant, change), each in zip(wanted, found, strict=True)
    ]


def _row(
    variant: str, change: Change, found: Sequence[Prediction], ran_us: Sequence[float | None]
) -> dict[str, Any]:
    predicted, warm = (
        [getattr(one, name) / 1e3 for one in found] for name in ("predicted_ns", "warm_ns")
    )
    baseline = [one.measured_ns / 1e3 for one in found]
    parameters = {k: v for k, v in asdict(change).items() if k not in ("range", "domain")}
    return {
        "variant": variant,
        "change": type(change).__name__,
        "range": change.range,
        "parameters": parameters,
        "baseline_us": middle(baseline),
        "replayed_us": middle([one.replayed_ns / 1e3 for one in found]),
        "predicted_us": middle(predicted),
        "predicted_share": middle(shares(predicted, baseline), 4),
        "warm_us": middle(warm),
        "measured_us": middle(ran_us),
        **_errors("error", predicted, ran_us),
        **_errors("warm_error", warm, ran_us),
        "saved_us": middle([one.saved_ns / 1e3 for one in found]),
        "hidden_us": middle([one.hidden_ns / 1e3 for one in found]),
        "gpu_us": middle([one.gpu_ns / 1e3 for one in found]),
        "notes": list(found[0].notes),
    }


def _errors(
    name: str, times: Sequence[float], ran_us: Sequence[float | None]
) -> dict[str, float | None]:
    errors = [share - 1 for share in shares(times, ran_us) if share is not None]
    cuts = quantiles(errors, n=10, method="inclusive") if len(errors) > 1 else [None] * 2
    low, *_, high = cuts
    return {
        f"{name}": middle(errors, 4),
        f"{name}_p10": middle([low], 4),
        f"{name}_p90": middle([high], 4),
    }


def agreement(timeline: Timeline, profile: LaunchProfile) -> list[dict[str, Any]]:
    """Return a row for each op of the recorded steps: the recorder's time, and that of its NVTX ranges."""
    rows = []
    for variant in RECORDED:
        outer = recorded_range(variant)
        for op in OPS:
            nvtx = _inside(timeline, outer, op)
            own = [row for row in profile.ranges if row.path == (outer, op)]
            own_us = sum(row.wall_us or 0.0 for row in own)
            nvtx_us = sum(end - start for start, end in nvtx.rows()) / 1e3
            rows.append(
                {
                    "variant": variant,
                    "op": op,
                    "recorder_calls": sum(row.calls for row in own),
                    "nvtx_calls": nvtx.height,
                    "recorder_us": round(own_us, 3),
                    "nvtx_us": round(nvtx_us, 3),
                    "ratio": round(own_us / nvtx_us, 4) if nvtx_us else None,
                }
            )
    return rows


def _inside(timeline: Timeline, outer: str, name: str) -> pl.DataFrame:
    ranges = timeline.ranges.filter("closed")
    (around,) = ranges.filter(pl.col("name") == outer).rows(named=True)
    return ranges.filter(
        (pl.col("name") == name)
        & (pl.col("thread") == around["thread"])
        & pl.col("start_ns").is_between(around["start_ns"], around["end_ns"])
    ).select("start_ns", "end_ns")


def shares(times: Sequence[float | None], wholes: Sequence[float | None]) -> list[float | None]:
    """Return ``times`` ÷ ``wholes`` of each round; None where either is."""
    return [
        time / whole if time is not None and whole else None
        for time, whole in zip(times, wholes, strict=True)
    ]


def middle(values: Sequence[float | None], digits: int = 3) -> float | None:
    """Return the median of what is known, rounded; None where nothing is."""
    known = [value for value in values if value is not None]
    return round(median(known), digits) if known else None
