"""Changes at the launches of ranges, and what they make of a program. Above program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from launchkit.profiling.timeline.what_if.program import (
    Entry,
    Op,
    Program,
    instances_of,
    usual_between_ns,
)

# A piece of work that starts later than this after its call waits for something else.
_LATE_NS = 50_000
_SHORT_NS = 10_000


@dataclass(frozen=True)
class CachedLaunches:
    """Launches in ``range`` cost less Python, as with ``launchkit.launch_autotuned``.

    ``saves_ns`` is taken off the Python before each launch, but ``python_ns`` remains at least.
    None: all above that, which is the most that could be saved, since ops compute more than
    launches. ``driver_only``: only launches through the driver's functions, as Triton's are.
    """

    range: str
    domain: str | None = None
    saves_ns: int | None = None
    python_ns: int = 2_000
    driver_only: bool = True


@dataclass(frozen=True)
class OpPlan:
    """Each ``range`` is replayed as one native call, as with ``launchkit.planned``.

    All Python inside and calls besides launches, copies and waits become ``python_ns`` in all;
    launches keep what the driver takes. Ranges without a launch through the driver's functions, as
    Triton's are, stay as they are.
    """

    range: str
    domain: str | None = None
    python_ns: int = 10_000


@dataclass(frozen=True)
class CudaGraph:
    """The launches of each ``range`` become one graph launch of ``launch_ns`` and ``python_ns``.

    GPU work of the graph follows in its order, ``between_ns`` apart (None: as in the capture, at
    most 1 us). Ranges with less than two launches stay as they are, and those that wait for the GPU
    inside, which cannot be captured.
    """

    range: str
    domain: str | None = None
    launch_ns: int = 10_000
    python_ns: int = 5_000
    between_ns: int | None = None


@dataclass(frozen=True)
class Fused:
    """The kernels of each ``range`` become one launch whose GPU work takes as long as theirs.

    A fused kernel usually reads and writes less, so the GPU side is the least that is saved.
    """

    range: str
    domain: str | None = None


Change = CachedLaunches | OpPlan | CudaGraph | Fused

_Edited: TypeAlias = dict[int, Entry | None]
"""Entries by number, as a change makes them; None: it leaves them out."""

_Edit = Callable[[Program, list[int], Any], _Edited | None]


def apply(program: Program, change: Change) -> tuple[Program, int, int]:
    """Return ``program`` with ``change``, how many ranges were changed, and how many not."""
    found = instances_of(program)
    edit = _EDITS[type(change)]
    ops = list(program.ops)
    working = replace(program, ops=ops)
    edited: _Edited = {}
    skipped = 0
    for numbers in found:
        made = edit(working, numbers, change)
        skipped += made is None
        edited.update(made or {})
    entries = [edited.get(number, entry) for number, entry in enumerate(program.entries)]
    kept = [entry for entry in entries if entry is not None]
    return replace(working, entries=kept), len(found) - skipped, skipped


def _cached(program: Program, numbers: list[int], change: CachedLaunches) -> _Edited | None:
    made: _Edited = {}
    for number in numbers:
        entry = program.entries[number]
        if entry.launches and (entry.driver or not change.driver_only):
            least = min(entry.before_ns, change.python_ns)
            saved = entry.before_ns if change.saves_ns is None else change.saves_ns
            made[number] = entry._replace(before_ns=max(least, entry.before_ns - saved))
    return made or None


def _planned(program: Program, numbers: list[int], change: OpPlan) -> _Edited | None:
    if not any(program.entries[number].launches and program.entries[number].driver
               for number in numbers):  # fmt: skip
        return None
    inside = numbers[1:]
    made: _Edited = {}
    left = min(change.python_ns, sum(program.entries[number].before_ns for number in inside))
    for number in inside:
        entry = program.entries[number]
        works = entry.ops or entry.waits_for >= 0 or entry.launches
        cost = entry.cost_ns if works else 0
        made[number] = entry._replace(before_ns=left, cost_ns=cost)
        left = 0
    return made


def _as_graph(program: Program, numbers: list[int], change: CudaGraph) -> _Edited | None:
    inside = [program.entries[number] for number in numbers]
    ops = tuple(op for entry in inside for op in entry.ops)
    launches = sum(entry.launches for entry in inside)
    if launches < 2 or not ops or any(entry.waits_for >= 0 for entry in inside):
        return None
    between = change.between_ns
    if between is None:
        between = min(1_000, usual_between_ns(program))
    for place, number in enumerate(ops):
        op = program.ops[number]
        least = op.latency_ns if op.latency_ns > _LATE_NS else min(op.latency_ns, _SHORT_NS)
        program.ops[number] = op._replace(
            latency_ns=least, between_ns=between if place else op.between_ns
        )
    begin, first, *others = numbers
    made: _Edited = dict.fromkeys(others[:-1])
    made[begin] = inside[0]
    made[first] = inside[1]._replace(
        before_ns=change.python_ns, cost_ns=change.launch_ns, ops=ops, launches=True
    )
    if others:
        made[others[-1]] = inside[-1]._replace(before_ns=0, cost_ns=0, ops=())
    return made


def _fused(program: Program, numbers: list[int], _: Fused) -> _Edited | None:
    launching = [number for number in numbers if program.entries[number].launches
                 and program.entries[number].ops]  # fmt: skip
    if len(launching) < 2:
        return None
    first, *others = launching
    ops = [op for number in launching for op in program.entries[number].ops]
    whole = sum(program.ops[number].duration_ns for number in ops)
    kept: Op = program.ops[ops[0]]
    program.ops[ops[0]] = kept._replace(duration_ns=whole)
    made: _Edited = dict.fromkeys(others)
    made[first] = program.entries[first]._replace(ops=(ops[0],))
    waits = {number: entry for number in numbers
             if (entry := program.entries[number]).waits_for in ops[1:]}  # fmt: skip
    made.update({number: entry._replace(waits_for=ops[0]) for number, entry in waits.items()})
    return made


WARM_SHARE = 0.75
"""What host code that stays takes where Python between it went away, as a share of before.

Chosen after two runs of ``launchkit bench predict`` on H200 machines; in a third one
(benchmarks/results/predict_h200.json) write-backs by torch beside scans that Triton's Autotuner no
longer launched took 0.77 and 0.81 of their time.
"""


def warmed(program: Program, change: Change) -> Program:
    """Return a changed program whose host code takes ``WARM_SHARE``, driver calls included.

    But for the Python that the change gives to a range: that is an assumption, not found.
    """
    given_ns = 0 if isinstance(change, Fused) else change.python_ns

    def warm(entry: Entry) -> Entry:
        least = min(entry.before_ns, given_ns) if entry.instance >= 0 else 0
        before_ns = max(least, round(entry.before_ns * WARM_SHARE))
        return entry._replace(before_ns=before_ns, cost_ns=round(entry.cost_ns * WARM_SHARE))

    entries = [
        warm(entry) if program.lane in (None, entry.lane) else entry for entry in program.entries
    ]
    return replace(program, entries=entries)


_EDITS: dict[type, _Edit] = {
    CachedLaunches: _cached,
    OpPlan: _planned,
    CudaGraph: _as_graph,
    Fused: _fused,
}
