"""``launchkit bench differential``: what launchkit launches and what Triton launches, compared.

Random calls of kernels of every kind, on the driver that executes nothing, in several processes.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch

import launchkit
from launchkit import clock, hostonly
from launchkit.benchmarks import machine, trials
from launchkit.benchmarks.differential.cases import CASES, Pair
from launchkit.benchmarks.differential.compare import Comparison, compare
from launchkit.benchmarks.mode import core_seen

DEVICES = 2
_CHUNK = 5000
"""Calls that one process makes of one case from one seed, whatever the number of processes."""
_SHOWN = 5
"""Differences of a case that a result describes; all are counted."""


_DIED = (
    "a process of the comparison died, so there is no result. Run it again with --processes 1 and "
    "look at what that one says."
)


@dataclass
class _Counts:
    """What one chunk came to, as another process can read it."""

    case: str
    comparison: Comparison
    fast: int
    through_triton: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Counts) -> None:
        """Add another chunk of the same case."""
        self.comparison.merge(other.comparison)
        self.fast += other.fast
        self.through_triton += other.through_triton

    def as_dict(self) -> dict[str, Any]:
        found = self.comparison
        return {
            "case": self.case,
            "sets": found.calls,
            "fast": self.fast,
            "through_triton": dict(sorted(self.through_triton.items())),
            "raised": dict(sorted(found.raised.items())),
            "launched": found.launched,
            "nothing_launched": found.nothing_launched,
            "kinds": len(found.kinds),
            "forms": dict(sorted(found.forms.items())),
            "differences": len(found.differences),
            "first_differences": found.differences[:_SHOWN],
        }


def measure(
    cases: Sequence[str] = tuple(CASES),
    sets: int = 1_000_000,
    seed: int = 0,
    processes: int = 1,
    advance: Callable[[int], None] = lambda sets: None,
) -> dict[str, Any]:
    """Compare random argument sets of the named cases and return the result as JSON values.

    Each set is launched with launchkit and with Triton; compared are the returned kernel or the
    exception's type, and of each launch function, grid, block, shared memory, stream, attributes
    and every parameter's bytes, as long as the cubin says that they are.

    Args:
        cases: names in ``cases.CASES``.
        sets: argument sets in all, spread evenly over the cases.
        seed: the same seed draws the same sets, with any number of processes.
        processes: how many work at once, each with host-only mode of its own.
        advance: called with a number of finished sets, for progress.

    Raises:
        UsageError: an unknown case, or a number below 1.
        HostOnlyError: host-only mode cannot run here; beside a GPU's driver, for one.
    """
    trials.check(cases, tuple(CASES), ("case", "sets"), sets, processes)
    start_ns = clock.now_ns()
    found: dict[str, _Counts] = {}
    cores = set()
    # The first chunks of all cases compile, and others then find it on disk.
    work = list(trials.chunks(cases, sets, seed, _CHUNK))
    for core, counts in trials.run_all(_run, work, processes, lambda: _DIED):
        cores.add(core)
        advance(counts.comparison.calls)
        if counts.case in found:
            found[counts.case].add(counts)
        else:
            found[counts.case] = counts
    rows = [found[name].as_dict() for name in cases if name in found]
    return {
        "mode": hostonly.LABEL,
        "machine": {**machine.facts(), "gpu": None, "core": " and ".join(sorted(cores))},
        "method": {"seed": seed, "processes": processes, "devices": DEVICES},
        "sets": sum(row["sets"] for row in rows),
        "differences": sum(row["differences"] for row in rows),
        "wall_s": round((clock.now_ns() - start_ns) / 1e9, 1),
        "rows": rows,
    }


@functools.cache
def _enter() -> None:
    """Prepare a process for all of its chunks.

    With the first of them: what is raised there comes back as the chunk's, from an initializer
    it would not.
    """
    warnings.simplefilter("ignore")
    logging.getLogger("launchkit").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    hostonly.activate(devices=DEVICES)
    launchkit.use_store("memory:")


@functools.cache
def _pair(case: str) -> Pair:
    return CASES[case]()


_core = functools.cache(core_seen)


def _run(chunk: trials.Chunk) -> tuple[str, _Counts]:
    _enter()
    core, pair = _core(), _pair(chunk.kind)
    rng = Random(f"{chunk.seed} {chunk.kind} {chunk.first // _CHUNK}")
    with launchkit.count_launches():
        launchkit.stats(reset=True)
        found = compare(pair, chunk.count, rng)
        rows = launchkit.stats(reset=True).values()
    counts = _Counts(chunk.kind, found, sum(row.fast or 0 for row in rows))
    for row in rows:
        counts.through_triton.update(row.through_triton)
    return core, counts
