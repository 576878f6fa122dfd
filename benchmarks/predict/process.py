"""One process of ``launchkit bench predict``: runs the steps, under a profiler or not, and times them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks import machine
from launchkit.benchmarks.mamba.cases import MambaCase
from launchkit.benchmarks.mode import measuring
from launchkit.benchmarks.pinned_configs import pinned
from launchkit.benchmarks.predict.steps import Call, make_layers, make_steps, record, run_rounds

_WARM_UP = 3
"""Steps of each variant before the first that counts."""


def main(task: str) -> None:
    """Do one task, JSON as bench.py writes it, and write its result where the task says."""
    read = jsonio.loads(task.encode(), source="the task", limit_bytes=10**6)
    assert isinstance(read, dict), "a task is an object"
    Path(read["result"]).write_bytes(jsonio.dumps(run(read)))


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Run what a task asks for; return the µs of each step by variant and round."""
    case = MambaCase(task["model"], task["sequences"], task["tokens"], initial_states=False)
    with measuring() as cuda, pinned():
        steps = make_steps(make_layers(case, task["layers"], cuda), cuda)
        for step in steps.values():
            for _ in range(_WARM_UP):
                step()
        times = run_rounds(steps, task["rounds"], task["steps"], _timed_us)
        if task["profile"] is not None:
            record(steps, task["steps"], task["profile"])
        return {**machine.measured_on(cuda), "step_us": times}


def _timed_us(step: Call) -> float:
    start_ns = clock.now_ns()
    step()
    return (clock.now_ns() - start_ns) / 1e3
