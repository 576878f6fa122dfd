"""``launchkit bench libraries``: operators of other libraries with and without install()."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import launchkit
from launchkit.benchmarks import machine
from launchkit.benchmarks.libraries.ops import (
    OPERATORS,
    LibraryOperator,
    PreparedOperator,
    equal,
    pin_configs,
    pretended_gpu,
)
from launchkit.benchmarks.libraries.timing import OperatorTimes, RunTimer
from launchkit.benchmarks.mode import core_seen, installed, measuring, one_thread
from launchkit.errors import UsageError


def measure(
    operators: Sequence[str] = tuple(OPERATORS),
    rounds: int = 7,
    calls: int = 50,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure the named operators, forward and backward, and return the result as JSON values.

    Every autotuned kernel keeps its first config alone. Per operator: host microseconds of a
    call, the part of them that is spent in launches and in Triton's run, and on a GPU whether
    outputs and gradients have the same bits with install() as without. An operator that cannot
    be measured here is in ``skipped``, with the reason.

    Args:
        operators: names in ``ops.OPERATORS``.
        rounds: how often each row is timed, with and without install() in turn.
        calls: calls per round; the GPU is waited for after each.
        advance: called once an operator, for progress.

    Raises:
        UsageError: an unknown operator, or none of them can be measured.
    """
    unknown = [name for name in operators if name not in OPERATORS]
    if unknown:
        raise UsageError(
            f"no operator named {', '.join(unknown)}. There are: {', '.join(OPERATORS)}."
        )
    if rounds < 1 or calls < 1:
        raise UsageError("rounds and calls must be at least 1. Give larger ones.")
    with ExitStack() as stack:
        cuda = stack.enter_context(measuring())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the libraries', and of no use here
        if not cuda:
            stack.enter_context(pretended_gpu())
            stack.enter_context(one_thread())
        core = core_seen()
        rows, skipped = _rows(operators, cuda, rounds, calls, advance)
        return {
            **machine.measured_on(cuda, core=core),
            "libraries": _versions({row["library"] for row in rows}),
            "method": {
                "rounds": rounds,
                "calls_per_round": calls,
                "statistic": "median",
                "configs": "the first one of each kernel",
            },
            "rows": rows,
            "skipped": skipped,
            "total": _total(rows),
        }


def _rows(
    operators: Sequence[str], cuda: bool, rounds: int, calls: int, advance: Callable[[], None]
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    rows, skipped = [], []
    for name in operators:
        operator = OPERATORS[name]
        try:
            rows.append(_row(operator, cuda, rounds, calls))
        except Exception as error:  # noqa: BLE001 - whatever another library raises is its reason
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            skipped.append({"operator": name, "library": operator.library, "reason": reason})
        advance()
    if not rows:
        reasons = "; ".join(sorted({each["reason"] for each in skipped}))
        raise UsageError(
            f"none of the operators can be measured: {reasons}. Install "
            f"{' and '.join(sorted({each['library'] for each in skipped}))}."
        )
    return rows, skipped


_TIMES = ("host_us", "launch_us", "triton_run_us")


def _total(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    sums = {
        f"{name}_{state}": round(sum(row[f"{name}_{state}"] for row in rows), 2)
        for name in _TIMES
        for state in ("before", "after")
    }
    return {**sums, **_ratios(sums)}


def _ratios(times: dict[str, float]) -> dict[str, float]:
    """Return after ÷ before of each time; smaller is better."""
    return {
        f"{name.removesuffix('_us')}_ratio": round(
            times[f"{name}_after"] / times[f"{name}_before"], 4
        )
        for name in _TIMES
    }


def _versions(libraries: set[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in sorted(libraries)}


def _row(operator: LibraryOperator, cuda: bool, rounds: int, calls: int) -> dict[str, Any]:
    device = "cuda" if cuda else "cpu"
    prepared = operator.prepare(device)
    pin_configs()
    before, after = OperatorTimes(), OperatorTimes()
    for _ in range(rounds):
        before.add(prepared, calls)
        with installed():
            after.add(prepared, calls)
    for _ in range(rounds):
        with RunTimer() as timer:
            before.add_run(prepared, calls, timer)
            with installed():
                after.add_run(prepared, calls, timer)
    times = {
        f"{name}_{state}": value
        for state, found in (("before", before), ("after", after))
        for name, value in zip(_TIMES, (found.host_us, found.launch_us, found.run_us), strict=True)
    }
    return {
        "operator": operator.name,
        "library": operator.library,
        "launches": before.launches,
        **_paths(prepared),
        **times,
        **_ratios(times),
        **(_checked(operator, device) if cuda else {}),
    }


def _paths(prepared: PreparedOperator) -> dict[str, Any]:
    """Return how the launches of a call go once each was made before."""
    through_triton: Counter[str] = Counter()
    with installed(), launchkit.count_launches():
        prepared()
        launchkit.stats(reset=True)
        prepared()
        rows = launchkit.stats(reset=True).values()
    for row in rows:
        through_triton.update(row.through_triton)
    return {"fast": sum(row.fast or 0 for row in rows), "through_triton": dict(through_triton)}


def _checked(operator: LibraryOperator, device: str) -> dict[str, bool]:
    plain, again = operator.prepare(device)(), operator.prepare(device)()
    with installed():
        operator.prepare(device)()
        fast = operator.prepare(device)()
    return {"equal": equal(plain, fast), "deterministic": equal(plain, again)}
