"""``launchkit bench soak``: whether memory stays flat over millions of launches."""

from __future__ import annotations

import gc
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import launchkit
from launchkit import clock
from launchkit.benchmarks import host, machine
from launchkit.benchmarks.growth import slope
from launchkit.benchmarks.mode import core_seen, measuring
from launchkit.benchmarks.soak.cases import CASES, Replayed, SoakCase
from launchkit.errors import UsageError

SAMPLES = 20
"""Per case, at equal distances, after a warm-up of as many launches as lie between two."""
ALLOWED_BYTES = 2**20
"""By so much the fitted size of the process may grow in a case: less is noise of allocators."""
ALLOWED_OBJECTS = 300


@dataclass(frozen=True)
class Sample:
    """The size of the process after a number of a case's launches."""

    launches: int
    rss_bytes: int
    """Resident memory."""
    blocks: int
    """Blocks that Python's allocator has given out."""
    objects: int
    """Objects that the garbage collector tracks and that are younger than the soak."""


def measure(
    cases: Sequence[str] = tuple(CASES),
    launches: int = 10_000_000,
    advance: Callable[[int], None] = lambda launches: None,
) -> dict[str, Any]:
    """Make many launches of each kind and return whether memory stayed flat, as JSON values.

    Runs on the driver that executes nothing, or on the current CUDA device. A case is flat if
    over its launches the fitted resident memory grows by less than ``ALLOWED_BYTES``, and
    allocated blocks and tracked objects by less than ``ALLOWED_OBJECTS``.

    Args:
        cases: names in ``cases.CASES``.
        launches: in all, shared out by the cases' shares.
        advance: called with a number of launches that were made, for progress.

    Raises:
        UsageError: an unknown case, or too few launches for the samples.
    """
    chosen = _chosen(cases, launches)
    start_ns = clock.now_ns()
    with measuring() as cuda:
        gc.collect()
        gc.freeze()  # else each collection would go through all of torch
        try:
            core = core_seen()
            rows = [_row(case, count, advance) for case, count in chosen]
        finally:
            gc.unfreeze()
        measured_on = machine.measured_on(cuda, core=core)
    return {
        **measured_on,
        "method": {
            "samples_per_case": SAMPLES,
            "allowed_bytes": ALLOWED_BYTES,
            "allowed_objects": ALLOWED_OBJECTS,
        },
        "launches": sum(row["launches"] for row in rows),
        "flat": all(row["flat"] for row in rows),
        "wall_s": round((clock.now_ns() - start_ns) / 1e9, 1),
        "rows": rows,
    }


def _chosen(cases: Sequence[str], launches: int) -> list[tuple[SoakCase, int]]:
    """Return each case with the rounds between two of its samples."""
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise UsageError(f"no case named {', '.join(unknown)}. There are: {', '.join(CASES)}.")
    shares = sum(CASES[name].share for name in cases)
    found = []
    for case in (CASES[name] for name in cases):
        per_sample = launches * case.share / shares / case.launches_per_round / (SAMPLES + 1)
        found.append((case, round(per_sample)))
    if min(count for _, count in found) < 1:
        raise UsageError(f"{launches} launches are too few for {SAMPLES} samples of each case. "
                         "Give more, or fewer cases.")  # fmt: skip
    return found


def _row(case: SoakCase, rounds: int, advance: Callable[[int], None]) -> dict[str, Any]:
    step = rounds * case.launches_per_round
    launchkit.stats(reset=True)
    with case.during():
        loop = case.make()
        sizes = array("q", bytes(8 * 3 * (SAMPLES + 1)))  # all of it now: samples would be growth
        for turn in range(SAMPLES + 1):
            loop(rounds)
            _measure_into(sizes, 3 * turn)
    advance((SAMPLES + 1) * step)
    samples = [Sample(turn * step, *sizes[3 * turn : 3 * turn + 3]) for turn in range(SAMPLES + 1)]
    counted = launchkit.stats(reset=True).values()
    fast = [row.fast for row in counted if row.fast is not None]
    through_triton: Counter[str] = Counter()
    for row in counted:
        through_triton.update(row.through_triton)
    return {
        "case": case.name,
        "launches": (SAMPLES + 1) * step,
        "fast": sum(fast) if len(fast) == len(counted) else None,
        "through_triton": dict(through_triton),
        "replays": loop.replays() if isinstance(loop, Replayed) else 0,
        **grown(samples),
        "samples": [asdict(sample) for sample in samples],
    }


def grown(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return by how much a process grew per launch, fitted over samples, and whether it is flat."""
    launches = [sample.launches for sample in samples]
    span = launches[-1] - launches[0]

    rss = slope(launches, [sample.rss_bytes for sample in samples])
    blocks = slope(launches, [sample.blocks for sample in samples])
    objects = slope(launches, [sample.objects for sample in samples])
    return {
        "slope_bytes_per_launch": round(rss, 4),
        "slope_blocks_per_launch": round(blocks, 6),
        "slope_objects_per_launch": round(objects, 6),
        "growth_bytes": round(rss * span),
        "least_seen_bytes_per_launch": round(ALLOWED_BYTES / span, 4),
        "flat": rss * span < ALLOWED_BYTES and max(blocks, objects) * span < ALLOWED_OBJECTS,
    }


def _measure_into(sizes: array[int], place: int) -> None:
    gc.collect()
    sizes[place] = host.resident_bytes()
    sizes[place + 1] = sys.getallocatedblocks()
    sizes[place + 2] = len(gc.get_objects())
