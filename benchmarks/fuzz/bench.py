"""``launchkit bench fuzz``: readers of files against files that somebody broke or forged.

Each input is a valid file changed at random. A reader may refuse it with the exception that it
documents; whatever it takes must pass the rules again, written apart from it.
"""

from __future__ import annotations

import functools
import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from launchkit import clock
from launchkit.benchmarks import trials
from launchkit.benchmarks.fuzz import watch as fuzz_watch
from launchkit.benchmarks.fuzz.one_input import Counts, run_one
from launchkit.benchmarks.fuzz.targets import TARGETS
from launchkit.errors import UsageError

_CHUNK = 250
"""Inputs that a process takes of one target at a time."""


def measure(
    targets: Sequence[str] = tuple(TARGETS),
    inputs: int = 100_000,
    seed: int = 0,
    processes: int = 1,
    advance: Callable[[int], None] = lambda inputs: None,
) -> dict[str, Any]:
    """Feed random inputs to the named readers and return what they came to, as JSON values.

    Args:
        targets: names in ``targets.TARGETS``.
        inputs: in all, spread evenly over the targets.
        seed: the same seed makes the same inputs, with any number of processes.
        processes: how many work at once.
        advance: called with a number of finished inputs, for progress.

    Raises:
        UsageError: an unknown target, or a number below 1.
        LaunchkitError: a process died of an input, or stood still; it says which inputs were read then.
    """
    from launchkit.benchmarks import machine

    trials.check(targets, tuple(TARGETS), ("target", "inputs"), inputs, processes)
    start_ns = clock.now_ns()
    found = {name: Counts(name) for name in targets}
    peak_bytes = 0
    work = list(trials.chunks(targets, inputs, seed, _CHUNK))
    with tempfile.TemporaryDirectory(prefix="launchkit-fuzz-") as notes:
        run = functools.partial(_run, notes)
        for counts, peak in trials.run_all(run, work, processes, lambda: _died(notes)):
            advance(counts.inputs)
            found[counts.target].add(counts)
            peak_bytes = max(peak_bytes, peak)
    for counts in found.values():
        counts.failures.sort(key=lambda failure: failure["seed"])
    rows = [counts.as_dict() for counts in found.values()]
    limits = {"seconds": fuzz_watch.LIMIT_S, "memory_bytes": fuzz_watch.MEMORY_BYTES}
    return {
        "machine": {**machine.facts(), "gpu": None},
        "method": {"seed": seed, "processes": processes, "limits_per_input": limits},
        "inputs": sum(row["inputs"] for row in rows),
        "accepted": sum(row["accepted"] for row in rows),
        "failures": sum(row["failures"] for row in rows),
        "peak_bytes": peak_bytes,
        "wall_s": round((clock.now_ns() - start_ns) / 1e9, 1),
        "rows": rows,
    }


def replay(seed: str) -> dict[str, Any]:
    """Run one input again, by a failure's ``seed``, and return its row.

    Raises UsageError for a seed of another form.
    """
    target = seed.split(":")[1] if seed.count(":") == 2 else ""
    if target not in TARGETS:
        raise UsageError(f"{seed!r} is no input's seed. Give one from a result's failures.")
    counts = Counts(target)
    with tempfile.TemporaryDirectory(prefix="launchkit-fuzz-") as sandbox:
        run_one(target, seed, Path(sandbox), counts)
    return counts.as_dict()


@functools.cache
def _place() -> tempfile.TemporaryDirectory[str]:
    """Make this process's sandbox; it goes with the process."""
    logging.getLogger("launchkit").setLevel(logging.CRITICAL)
    # In memory, if there is such a place: disks take milliseconds to remove a directory.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="launchkit-fuzz-", dir=memory)


@functools.cache
def _watch() -> fuzz_watch.Watch:
    return fuzz_watch.Watch(Path(_place().name))


@functools.cache
def _warm_up(target: str) -> None:
    """Load what is loaded on first use, codecs for one: it must not be seen as an input's doing.

    Nor be counted as its memory: polars alone maps most of a gigabyte for threads and caches.
    """
    for turn in range(40):
        run_one(target, f"warm-up:{target}:{turn}", Path(_place().name), Counts(target))
    fuzz_watch.limit_memory()


def _died(notes: str) -> str:
    seeds = sorted(path.read_text(encoding="utf-8") for path in Path(notes).iterdir())
    return (
        f"a process died or stood still while these were read: {', '.join(seeds) or 'none'}. Read "
        "each again with --replay."
    )


@functools.cache
def _note(notes: str) -> Path:
    """Return where this process writes which input it reads: its death takes all else along."""
    return Path(notes) / str(os.getpid())


def _run(notes: str, chunk: trials.Chunk) -> tuple[Counts, int]:
    watch, sandbox = _watch(), Path(_place().name)
    counts = Counts(chunk.kind)
    _warm_up(chunk.kind)
    for index in range(chunk.first, chunk.first + chunk.count):
        seed = f"{chunk.seed}:{chunk.kind}:{index}"
        _note(notes).write_text(seed, encoding="utf-8")
        run_one(chunk.kind, seed, sandbox, counts, watch.on)
    _note(notes).unlink()
    return counts, fuzz_watch.peak_bytes()
