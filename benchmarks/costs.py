"""``launchkit bench costs``: what launchkit costs a program beside its launches, without a GPU."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import triton

import launchkit
from launchkit import clock, hostonly
from launchkit.benchmarks import machine
from launchkit.benchmarks.launch.cases import CASES
from launchkit.benchmarks.mode import core_seen, measuring
from launchkit.benchmarks.timing import Loop, TimedRow, spread, time_rows
from launchkit.errors import UsageError

KINDS = 400
"""Kinds of calls of one kernel, or of one op: fewer than either keeps plans of."""
LOOPS = 200
"""Short: a loop of ranges ends within a time slice of a busy core."""
_FIRST_KEY = 4097

Row = dict[str, Any]


def measure(
    rounds: int = 15, kinds: int = KINDS, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Measure imports, first launches, plans, ranges and recording; return JSON values.

    Runs on the driver that executes nothing: what is measured is Python's and the C core's.

    Args:
        rounds: how often each import and each loop is timed, at least 2.
        kinds: kinds of calls whose plans are made, from 2 to ``KINDS``.
        advance: called once for each of the four parts, for progress.

    Raises:
        UsageError: too few rounds, kinds out of range, a process that could not import, or a
            process with a GPU.
    """
    if rounds < 2 or not 2 <= kinds <= KINDS:
        raise UsageError(f"rounds must be at least 2, and kinds 2 to {KINDS}. Give others.")
    with measuring() as cuda:
        if cuda:
            raise UsageError("costs are measured without a GPU. Hide it: CUDA_VISIBLE_DEVICES=.")
        rows = []
        for part in (_imports, _first_calls, _plans, _ranges):
            rows += part(rounds, kinds)
            advance()
        facts = {**machine.facts(), "core": core_seen()}
    method = {"rounds": rounds, "kinds": kinds, "loops_per_round": LOOPS, "statistic": "median"}
    return {"mode": hostonly.LABEL, "machine": facts, "method": method, "rows": rows}


_IMPORTS = {
    "import launchkit": ("", "import launchkit"),
    "import of the launch path": ("import torch, triton", "import launchkit; launchkit.launch"),
}
_TIMED = (
    "import sys; {before}\n"
    "from time import process_time_ns as now\n"
    "start = now()\n{timed}\nprint((now() - start) / 1e3)"
)


def _imports(rounds: int, _kinds: int) -> list[Row]:
    """Time imports in fresh processes, as CPU time: of the package, and of what launches."""
    return [
        {"what": what, **spread([_import_us(*code) for _ in range(min(rounds, 7))])}
        for what, code in _IMPORTS.items()
    ]


def _import_us(before: str, timed: str) -> float:
    code = _TIMED.format(before=before, timed=timed)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    if done.returncode:
        raise UsageError(
            f"importing failed: {done.stderr.strip().splitlines()[-1]}. Mend what it names."
        )
    return float(done.stdout)


def _noop() -> tuple[Any, list[Any], int]:
    """Return a new autotuned kernel, launched before, its 19 arguments, and its key's place."""
    case = CASES["noop_19"]("cpu")
    kernel = launchkit.autotuned(list(case.configs), list(case.keys))(triton.jit(case.jit.fn))
    arguments = list(case.arguments.values())
    place = list(case.arguments).index(case.keys[0])
    arguments[place] = _FIRST_KEY
    for _ in range(2):
        kernel[(1,)](*arguments)
    return kernel, arguments, place


def _launcher() -> Callable[[int], Any]:
    """Return a launch of a new kernel, given the value of its autotune key."""
    kernel, arguments, place = _noop()

    def launch(key: int) -> Any:
        arguments[place] = key
        return kernel[(1,)](*arguments)

    return launch


def _op() -> Callable[[int], Any]:
    """Return a new planned op of two launches, given a number of which each value is a kind."""
    kernel, arguments, _ = _noop()

    def twice(arguments: list[Any], number: int) -> None:
        for _ in range(2):
            kernel[(1,)](*arguments)

    op: Any = launchkit.planned(twice)
    op(arguments, _FIRST_KEY)
    return lambda number: op(arguments, number)


_CALLS = {"launch": _launcher, "op": _op}


def _keys(kinds: int) -> range:
    """Return keys that were not launched; all odd, so that one compiled kernel serves all."""
    return range(_FIRST_KEY + 2, _FIRST_KEY + 2 + 2 * kinds, 2)


def _first_calls(_rounds: int, kinds: int) -> list[Row]:
    """Time the first call of each kind, whose kernel is compiled and whose config is given."""
    found = []
    for what, make in _CALLS.items():
        call, times_us = make(), []
        for key in _keys(kinds):
            start_ns = clock.now_ns()
            call(key)
            times_us.append((clock.now_ns() - start_ns) / 1e3)
        found.append({"what": f"first {what} of a kind", **spread(times_us)})
    return found


def _plans(_rounds: int, kinds: int) -> list[Row]:
    """Measure the memory of what a kind of call leaves behind: key, choice and plan."""
    found = []
    for what, make in _CALLS.items():
        call = make()
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for key in _keys(kinds):
                call(key)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        found.append({"what": f"plan of a kind of {what}", "bytes": round(grown / kinds)})
    return found


def _ranges(rounds: int, _kinds: int) -> list[Row]:
    """Time a range and a launch: off, recorded, and sampled."""
    launch = _launcher()
    around: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "off": launchkit.count_launches,
        "recorded": launchkit.profile_launches,
        "sampled": lambda: launchkit.profile_launches(sample_every=1000),
    }
    rows = [
        TimedRow({"what": f"{what}, {how}"}, loop, enter)
        for how, enter in around.items()
        for what, loop in (("range", _range_loop), ("launch", _launch_loop(launch)))
    ]
    rows.append(TimedRow({"what": "empty loop"}, _empty_loop))
    time_rows(rows, rounds, LOOPS, lambda: None)
    return [row.summary() for row in rows]


def _range_loop(times: int) -> None:
    named = launchkit.annotate("range")
    for _ in range(times):
        with named:
            pass


def _launch_loop(launch: Callable[[int], Any]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            launch(_FIRST_KEY)

    return loop


def _empty_loop(times: int) -> None:
    for _ in range(times):
        pass
