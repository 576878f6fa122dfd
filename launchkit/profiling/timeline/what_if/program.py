"""What ``replay`` replays: the entries of host threads and the work of GPUs. A leaf.

Each thread is a row of entries: how long it computes before a call, and what the call costs. Each
piece of GPU work is ordered on its stream behind the one before, and cannot start before it was
launched, nor before the work of another stream that it evidently waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

USUAL_QUEUE = 1024
USUAL_LATENCY_NS = 5_000
USUAL_BETWEEN_NS = 1_000


class Entry(NamedTuple):
    """One call of a thread, or the begin or end of a range that is looked at.

    ``before_ns``: what the thread computes since the entry before. ``cost_ns``: what the call
    itself takes, no waits. ``ops``: the GPU work that it starts. ``waits_for``: the piece of work
    whose end it waits for, and ``tail_ns`` how long it takes to return after that. ``instance``:
    number of the range it is in, -1 in none.
    """

    lane: int
    at_ns: int
    before_ns: int
    cost_ns: int
    kind: str
    driver: bool = False
    launches: bool = False
    ops: tuple[int, ...] = ()
    waits_for: int = -1
    tail_ns: int = 0
    instance: int = -1


class Op(NamedTuple):
    """One piece of GPU work.

    It starts ``latency_ns`` after its call began, ``between_ns`` after the work before it on
    its ``stream`` ended, and ``lag_ns`` after the work ``after`` of another stream ended (-1:
    none), whichever is last.
    """

    stream: tuple[int, int]
    duration_ns: int
    latency_ns: int
    between_ns: int
    after: int = -1
    lag_ns: int = 0


@dataclass(frozen=True)
class Program:
    """What ``replay`` takes. ``entries`` stand in the order in which they began.

    ``end_ns`` is when host and GPU had finished, as captured. ``lane``: the thread of the steps,
    None where every thread counts. ``busy_until``: when streams become free of work from before the
    window. ``queue``: how many launches a device holds that did not start. ``cold``: how many
    launches are cold. ``cut``: there were more steps.
    """

    start_ns: int
    end_ns: int
    steps: int
    entries: list[Entry]
    ops: list[Op]
    busy_until: Mapping[tuple[int, int], int] = field(default_factory=dict)
    queue: int = USUAL_QUEUE
    lane: int | None = None
    cold: int = 0
    cut: bool = False


def instances_of(program: Program) -> list[list[int]]:
    """Return the numbers of the entries of each instance, its begin and end included."""
    found: dict[int, list[int]] = {}
    for number, entry in enumerate(program.entries):
        if entry.instance >= 0:
            found.setdefault(entry.instance, []).append(number)
    return [found[number] for number in sorted(found)]


def usual_between_ns(program: Program) -> int:
    """Return the median time between two pieces of work that wait for each other on a stream."""
    queued = [op.between_ns for op in program.ops if op.after < 0]
    return int(median(queued)) if queued else USUAL_BETWEEN_NS
