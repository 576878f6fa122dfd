"""Interleaved timing: every row once per round, so that a drift of the machine hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

from launchkit import clock

Loop = Callable[[int], Any]
"""Launches n times and returns; it must not wait for the GPU."""


def repeated(call: Callable[[], Any]) -> Loop:
    """Return a loop of a call without arguments."""

    def loop(count: int) -> None:
        for _ in range(count):
            call()

    return loop


@dataclass
class TimedRow:
    """One thing to time and its per-launch times, one per round, in microseconds."""

    labels: dict[str, Any]
    loop: Loop
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Entered before each timed loop and left after it; neither is timed."""
    times_us: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return the labels with median, 10th and 90th percentile over the rounds."""
        return {**self.labels, **spread(self.times_us)}


def spread(times_us: Sequence[float]) -> dict[str, float]:
    """Return ``median_us``, ``p10_us`` and ``p90_us`` of at least two times."""
    cuts = quantiles(times_us, n=10, method="inclusive")
    return {
        "median_us": round(median(times_us), 3),
        "p10_us": round(cuts[0], 3),
        "p90_us": round(cuts[-1], 3),
    }


def time_rows(
    rows: list[TimedRow],
    rounds: int,
    launches: int,
    drain: Callable[[], None],
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Time every row ``rounds`` times, ``launches`` launches at a time.

    A round goes through the rows forwards, the next one backwards, and each row runs once
    untimed before it is timed: else it would pay for the caches that its neighbour filled.
    ``drain`` waits for the GPU between loops and is not timed: a full launch queue would make
    the host wait for the GPU, which is not a launch cost. ``advance`` is called per round.
    """
    for row in rows:
        row.loop(min(launches, 20))
        drain()
    for turn in range(rounds):
        for row in rows if turn % 2 == 0 else reversed(rows):
            with row.around():
                row.loop(1)
                start_ns = clock.now_ns()
                row.loop(launches)
                elapsed_ns = clock.now_ns() - start_ns
                drain()
            row.times_us.append(elapsed_ns / launches / 1e3)
        advance()
