"""``launchkit bench predict``: what a capture predicts of a step, against the step as it then runs."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from launchkit import LaunchProfile, jsonio
from launchkit.benchmarks.child_process import run_task
from launchkit.benchmarks.failures import named
from launchkit.benchmarks.launch import bench as launch_bench
from launchkit.benchmarks.mamba.cases import MambaCase, select
from launchkit.benchmarks.mode import refuse_launch_hooks
from launchkit.benchmarks.predict.comparing import (
    agreement,
    captured_us,
    middle,
    predictions,
    shares,
)
from launchkit.benchmarks.predict.steps import BASELINE, VARIANTS
from launchkit.errors import UsageError
from launchkit.profiling.timeline import Timeline, read_timeline

SIZES = ((1, 32), (4, 2048))
"""Sequences and tokens of the batches: one that the GPU has done at once, and one that keeps it busy."""

_CHILD = "launchkit.benchmarks.predict.process"
_LIMIT_BYTES = 10**7
_LAUNCH_CASE, _LAUNCH_FORM = "state_passing", "kwargs"
"""The row of ``bench launch`` that tells what ``launch_autotuned`` saves: a kernel of the scan."""


def measure(
    model: str,
    layers: int | None,
    rounds: int,
    steps: int,
    keep: Path | None = None,
    advance: Callable[[], None] = lambda: None,
    finished: Callable[[dict[str, Any]], None] = lambda _document: None,
) -> dict[str, Any]:
    """Capture, predict and run steps of ``model``; docs/json.md has the fields of the result.

    Args:
        model: a name in ``shapes.MAMBA_SHAPES``.
        layers: of a step; None: the model's own number.
        rounds: how often each variant takes its turn.
        steps: of a turn, at least 2: the first is not counted.
        keep: a new directory that the captures are left in.
        advance: called after each part of the work, ``parts()`` in number.
        finished: called after each case with the result so far, whose ``complete`` is false.

    Raises:
        UsageError: no GPU, no nsys, numbers that cannot be run, or a directory that cannot be made.
        LaunchkitError: a process of it failed; its message is in the error.
    """
    cases = [case for size in SIZES for case in select([model], size[:1], size[1:], False)]
    _check(rounds, steps, layers)
    refuse_launch_hooks()
    if keep is not None:
        _make(keep)
    launches = launch_bench.measure((_LAUNCH_CASE,), rounds=7, launches=200)
    saves_ns = _saved_ns(launches["rows"])
    advance()
    document: dict[str, Any] = {
        "mode": launches["mode"],
        "machine": launches["machine"],
        "method": {
            "model": model, "layers": layers or cases[0].shape.layers, "rounds": rounds,
            "steps_per_round": steps, "statistic": "median over rounds of the mean step",
            "launch_saves_us": round(saves_ns / 1e3, 3), "launch_saves_of": "bench launch, "
            f"{_LAUNCH_CASE}, {_LAUNCH_FORM}: triton_autotuner - launchkit",
        },
        "complete": False,
        "steps": [], "predictions": [], "agreement": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            place = (keep or Path(folder)) / f"S{case.sequences}-T{case.tokens}"
            with named(case.name):
                _measure(document, case, place, saves_ns, advance)
            finished(document)
    return {**document, "complete": True}


def parts() -> int:
    """Return how often ``measure`` advances."""
    return 1 + 3 * len(SIZES)


def _check(rounds: int, steps: int, layers: int | None) -> None:
    if rounds < 1 or steps < 2 or (layers is not None and layers < 1):
        raise UsageError("there must be a round, two steps and a layer at least. Give more.")
    if not torch.cuda.is_available():
        raise UsageError(
            "predictions are held to what a GPU does, and there is none. Run it on a machine with "
            "one; `launchkit report` predicts from any capture."
        )
    if shutil.which("nsys") is None:
        raise UsageError(
            "nsys is not on the PATH, and the steps are captured with it. Install Nsight Systems "
            "(it comes with the CUDA toolkit)."
        )


def _make(keep: Path) -> None:
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise UsageError(
            f"{keep} cannot be made: {error.strerror}. Give a new directory with --keep.",
            keep=str(keep),
        ) from error


def _saved_ns(rows: Sequence[dict[str, Any]]) -> int:
    us = {row["variant"]: row["median_us"] for row in rows if row["call_form"] == _LAUNCH_FORM}
    saved_us: float = us["triton_autotuner"] - us["launchkit"]
    return round(saved_us * 1e3)


def _measure(
    document: dict[str, Any], case: MambaCase, place: Path, saves_ns: int,
    advance: Callable[[], None],
) -> None:  # fmt: skip
    method = document["method"]
    place.mkdir(parents=True)
    task = {
        "model": case.model, "sequences": case.sequences, "tokens": case.tokens,
        "layers": method["layers"], "rounds": method["rounds"], "steps": method["steps_per_round"],
        "profile": None, "result": str(place / "plain.json"),
    }  # fmt: skip
    plain = _run(task, ())
    advance()
    profile, captures = place / "profile.json.gz", place / "nsys"
    _run(
        {**task, "profile": str(profile), "result": str(place / "captured.json")},
        ("-m", "launchkit", "profile", "--nsys", "--output", str(captures), "--", sys.executable),
    )
    advance()
    timeline = read_timeline(captures / "capture.sqlite")
    document["method"]["nsys"] = timeline.source.version
    labels = {"case": case.name}
    rounds = method["rounds"]
    document["steps"] += [labels | row for row in _steps(timeline, plain["step_us"], rounds)]
    document["predictions"] += [labels | row for row in predictions(timeline, rounds, saves_ns)]
    document["agreement"] += [
        labels | row for row in agreement(timeline, LaunchProfile.load(profile))
    ]
    advance()


def _steps(
    timeline: Timeline, plain_us: dict[str, list[list[float]]], rounds: int
) -> list[dict[str, Any]]:
    plain = {
        variant: [sum(times[1:]) / len(times[1:]) for times in turns]
        for variant, turns in plain_us.items()
    }
    captured = {
        variant: [captured_us(timeline, variant, turn) for turn in range(rounds)]
        for variant in VARIANTS
    }
    return [
        {
            "variant": variant,
            "captured_us": middle(captured[variant]),
            "captured_share": middle(shares(captured[variant], captured[BASELINE]), 4),
            "plain_us": middle(plain[variant]),
            "plain_share": middle(shares(plain[variant], plain[BASELINE]), 4),
        }
        for variant in VARIANTS
    ]


def _run(task: dict[str, Any], through: Sequence[str]) -> dict[str, Any]:
    run_task(_CHILD, task, through)
    found = jsonio.loads(
        Path(task["result"]).read_bytes(), source=task["result"], limit_bytes=_LIMIT_BYTES
    )
    assert isinstance(found, dict), "the process writes an object"
    return found
