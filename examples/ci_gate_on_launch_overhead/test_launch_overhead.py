"""A CI gate on launch overhead that needs no GPU: ``pytest`` this file, or run it to see a table.

What is compared with baseline.json: which kernels a step launches and how often, how many launches
go through Triton, both exactly; and a launch's host time as a multiple of what the cheapest
possible launch takes in the same run, so that a slow or busy machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import sys
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from rich.console import Console
from rich.table import Table

import launchkit
from launchkit import hostonly

BASELINE = Path(__file__).with_name("baseline.json")
LAYERS, N = 4, 4096
MOST = 2.0  # times the baseline's host time; a launch too many is caught exactly, by its count

# -- your code: import your step instead of this one


@launchkit.autotuned(configs=[triton.Config({"BLOCK": 1024})], key=["n"], name="gate.scale")
@triton.jit
def scale(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(y_ptr + at, total, mask=at < n)


blocks = launchkit.grid(launchkit.cdiv("n", "BLOCK"))


def step(x: torch.Tensor, y: torch.Tensor) -> None:
    """What is to stay cheap."""
    for _ in range(LAYERS):
        scale[blocks](x, y, 0.5, N)
        launchkit.launch(add, blocks, x, y, N, BLOCK=1024)


def careless_step(x: torch.Tensor, y: torch.Tensor) -> None:
    """The same after a hurried change: a launch too many, and a check that should not stay."""
    for _ in range(LAYERS):
        assert not torch.isnan(x).any()
    step(x, y)
    launchkit.launch(add, blocks, x, y, N, BLOCK=1024)


def measure(run: Callable[[torch.Tensor, torch.Tensor], None]) -> dict[str, Any]:
    """Return what ``run`` launches, how much of it through Triton, and a launch's relative time."""
    with ExitStack() as stack:
        cuda = torch.cuda.is_available()
        if not cuda:
            stack.enter_context(hostonly.activate())
            stack.enter_context(hostonly.recording(False))
        x, y = (torch.zeros(N, device="cuda" if cuda else "cpu") for _ in range(2))
        run(x, y)  # compiles
        launchkit.stats(reset=True)
        with launchkit.profile_launches() as profile:
            run(x, y)
        through_triton = sum(row.slow for row in launchkit.stats(reset=True).values())
        # Without the module, which is another one when this file is run as a program.
        launches = {row.kernel.rpartition(".")[2]: row.launches for row in profile.rows}
        # The floor: a launch in which nothing is looked up or compared, only the driver called.
        floor = launchkit.freeze(scale, blocks, x, y, 0.5, N)
        times_us = []
        for _ in range(15):  # in turns, so that a slow moment hits both
            floor_us = timeit.timeit(floor, number=200) / 200 * 1e6
            run_us = timeit.timeit(lambda: run(x, y), number=20) / 20 * 1e6
            times_us.append((run_us / sum(launches.values()), floor_us))
            if cuda:
                torch.cuda.synchronize()  # a full launch queue would make the host wait
    per_launch_us, floor_us = (min(each) for each in zip(*times_us, strict=True))
    ratio = round(per_launch_us / floor_us, 2)
    mode = "cuda" if cuda else "host-only"
    return {"launches": launches, "through_triton": through_triton, "times_floor": {mode: ratio}}


def findings(baseline: dict[str, Any], now: dict[str, Any], most: float = MOST) -> list[str]:
    """Return what is worse than the baseline; a mode that it lacks has no time to compare."""
    found = [
        f"{count} launches of {kernel}, not {baseline['launches'].get(kernel, 0)}"
        for kernel, count in now["launches"].items()
        if count > baseline["launches"].get(kernel, 0)
    ]
    if now["through_triton"] > baseline["through_triton"]:
        found.append(f"{now['through_triton']} launches through Triton")
    for mode, ratio in now["times_floor"].items():
        allowed = most * baseline["times_floor"].get(mode, ratio)
        if not ratio <= allowed:  # nor is NaN a limit
            found.append(f"a launch takes {ratio} floors, not at most {allowed:.1f}")
    return found


def committed() -> dict[str, Any]:
    """Return baseline.json, or end with what to do where it is missing or broken."""
    try:
        found: dict[str, Any] = json.loads(BASELINE.read_text())
        counted, timed = found["launches"].values(), found["times_floor"].values()
        sum([*counted, found["through_triton"], *timed])  # all that is compared is numbers
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.exit(f"{BASELINE}: {error!r}. Take it from git, or delete it and use --update.")
    return found


def test_a_step_costs_no_more_than_the_baseline() -> None:
    """Fails when a change makes a step launch more, launch slower, or leave the fast path."""
    baseline = committed()
    for _ in range(3):  # what a neighbour of the machine does is gone the next time
        found = findings(baseline, measure(step))
        if not found:
            return
    raise AssertionError("\n".join(found))


def main() -> int:
    """Show the gate on the step and on a careless change of it; 1 if the step does not pass."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--update", action="store_true", help="write baseline.json anew")
    options.add_argument("--most", type=float, default=MOST, help="times the baseline's host time")
    given = options.parse_args()
    baseline = {"times_floor": {}} if given.update and not BASELINE.exists() else committed()
    ours, careless = measure(step), measure(careless_step)
    if given.update:
        baseline = {**ours, "times_floor": {**baseline["times_floor"], **ours["times_floor"]}}
        try:
            BASELINE.write_text(json.dumps(baseline, indent=2, sort_keys=True) + "\n")
        except OSError as error:
            sys.exit(f"the baseline was not written: {error}. Make its folder writable.")
    table = Table("", "launches", "through Triton", "a launch in floors", "verdict")
    for name, row in (("baseline", baseline), ("the step", ours), ("careless change", careless)):
        launches = [f"{kernel} {count}" for kernel, count in sorted(row["launches"].items())]
        floors = [f"{ratio} ({mode})" for mode, ratio in row["times_floor"].items()]
        found = "\n".join(findings(baseline, row, given.most))
        cells = ", ".join(launches), str(row["through_triton"]), "\n".join(floors)
        table.add_row(name, *cells, "" if row is baseline else found or "passes")
    Console(width=110).print(table)
    return 1 if findings(baseline, ours, given.most) else 0


if __name__ == "__main__":
    sys.exit(main())
