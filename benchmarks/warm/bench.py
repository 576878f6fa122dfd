"""How long a fresh process takes to its first prefill: cold, with stored configs, and warmed.

Each row is a process of its own (``process.py``) with a disk cache of Triton's and a config
store of its own; what an earlier row has made is copied into them where the row says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from launchkit import clock, hostonly, jsonio
from launchkit.benchmarks import machine
from launchkit.benchmarks.child_process import run_task

MODEL, SEQUENCES, TOKENS = "Nemotron-3-Nano", 4, 2048
_LIMIT_BYTES = 10**6
_CHILD = "launchkit.benchmarks.warm.process"


@dataclass(frozen=True)
class Variant:
    """What a process finds when it starts, and does before its first prefill."""

    name: str
    configs: bool
    """The config store has what the cold process tuned."""
    compiled: bool
    """Triton's disk cache has what the cold process compiled."""
    warms: bool
    """It calls ``launchkit.warm`` with the manifest of the cold process."""


VARIANTS = (
    Variant("cold", configs=False, compiled=False, warms=False),
    Variant("store", configs=True, compiled=False, warms=False),
    Variant("store_disk", configs=True, compiled=True, warms=False),
    Variant("warm", configs=True, compiled=False, warms=True),
    Variant("warm_disk", configs=True, compiled=True, warms=True),
)


def measure(
    advance: Callable[[], None] = lambda: None,
    finished: Callable[[dict[str, Any]], None] = lambda document: None,
) -> dict[str, Any]:
    """Measure every variant once; docs/json.md has the fields of the result.

    ``advance`` is called after each process, ``finished`` with the result so far.
    Raises LaunchkitError for a process that fails.
    """
    cuda = torch.cuda.is_available() and not hostonly.is_active()
    document: dict[str, Any] = {
        **machine.measured_on(cuda),
        "method": {"model": MODEL, "sequences": SEQUENCES, "tokens": TOKENS, "kernels": 5,
                   "configs_per_kernel": 2, "processes_per_row": 1},
        "complete": False,
        "rows": [],
        "ratios": [],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        for variant in VARIANTS:
            document["rows"].append(_row(variant, Path(place)))
            finished(document)
            advance()
    document["ratios"] = _ratios(document["rows"])
    return {**document, "complete": True}


def _row(variant: Variant, place: Path) -> dict[str, Any]:
    own = place / variant.name
    cold = place / "cold"
    for folder, copied in (("store", variant.configs), ("cache", variant.compiled)):
        if copied and (cold / folder).exists():
            shutil.copytree(cold / folder, own / folder)
        (own / folder).mkdir(parents=True, exist_ok=True)
    task = {
        "records": variant.name == "cold",
        "warms": variant.warms,
        "cache_dir": str(own / "cache"),
        "store": str(own / "store"),
        "manifest": str(place / "manifest.json"),
        "started_us": _now_us(),
    }
    start_ns = clock.now_ns()
    found = _run(task, own)
    process_s = (clock.now_ns() - start_ns) / 1e9
    return {"variant": variant.name, **found, "process_s": round(process_s, 3)}


def _now_us() -> int:
    return int(clock.utc_now().timestamp() * 1e6)


def _run(task: dict[str, Any], own: Path) -> dict[str, Any]:
    printed = run_task(
        _CHILD, task,
        changes={"TRITON_CACHE_DIR": task["cache_dir"], "LAUNCHKIT_REQUIRE_TUNED": "0"},
    )  # fmt: skip
    last = printed.strip().splitlines()[-1]
    found = jsonio.loads(last.encode(), source=str(own), limit_bytes=_LIMIT_BYTES)
    assert isinstance(found, dict), "the process prints an object"
    return found


def _ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    cold, *others = rows
    return [
        {"of": row["variant"], "over": cold["variant"], "time": time,
         "ratio": round(row[time] / cold[time], 4)}
        for row in others
        for time in ("first_call_s", "to_first_call_s")
    ]  # fmt: skip
