"""Launches of a kernel that does nothing, to see how launches go here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import launchkit
from launchkit.benchmarks.noop_kernels import noop_19
from launchkit.tools.doctor_check import FINDING, OK, Check

_CALLS = 4
_FIRST = "first launch of its kind"


def launches(x: Any) -> Iterator[Check]:
    """Launch the kernel a few times, alone and in a planned op; ``x``: a tensor on the device."""
    yield _alone(lambda: _launch(x))
    yield _planned(x)


def _launch(x: Any) -> None:
    constants = {f"C{i}": i for i in range(6)}
    launchkit.launch(noop_19, (1,), *[x] * 5, *range(8), **constants)


def _alone(launch: Callable[[], Any]) -> Check:
    with launchkit.count_launches():
        launchkit.stats(reset=True)
        for _ in range(_CALLS):
            launch()
        (row,) = launchkit.stats().values()
    reasons = sorted(set(row.through_triton) - {_FIRST})
    if row.fast and not reasons:
        return Check("launches", OK, f"{row.fast} of {_CALLS} launches of a kernel were fast.")
    says = f"{row.slow} of {_CALLS} launches of a kernel went through Triton: {', '.join(reasons)}."
    return Check("launches", FINDING, says, "Take away what these reasons name.")


def _planned(x: Any) -> Check:
    @launchkit.planned
    def op(x: Any) -> None:
        for _ in range(2):
            _launch(x)

    for _ in range(_CALLS):
        op(x)
    plans = op.op_plans  # type: ignore[attr-defined]
    if plans.replays:
        return Check(
            "op plans", OK, f"{plans.replays} of {_CALLS} calls of a planned op were replayed."
        )
    reasons = ", ".join(sorted(plans.reasons)) or "there is no C core"
    says = f"a planned op runs as it is: {reasons}."
    return Check("op plans", FINDING, says, "Take away what these reasons name: docs/op_plans.md.")
