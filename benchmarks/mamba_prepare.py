"""Before anything is timed: every kernel compiled and every launch counted, in other processes.

One process a model, at the same time: compiling keeps a core busy for long. What they compile
this process finds in Triton's disk cache. A profiler that has once watched the GPU slows down
launches for the rest of a process, so the timing one never starts it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from launchkit.benchmarks.mamba_cases import MambaCase, build
from launchkit.benchmarks.mamba_counts import Counts, count
from launchkit.benchmarks.mamba_steps import parts
from launchkit.benchmarks.mode import measuring
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.errors import LaunchkitError


def prepare(cases: Sequence[MambaCase], advance: Callable[[int], None]) -> dict[str, Counts]:
    """Compile what the cases launch; return the launches of each case by its name.

    ``advance`` is called with the number of cases that became ready.
    Raises LaunchkitError if a process dies, and what is raised in one.
    """
    by_model = list(_by_model(cases))
    workers = min(len(by_model), len(os.sched_getaffinity(0)))
    # Not forked: neither CUDA nor the host-only driver lives on in a copy of the process.
    context = multiprocessing.get_context("spawn")
    found: dict[str, Counts] = {}
    with ProcessPoolExecutor(workers, context) as pool:
        pending = [pool.submit(_prepare_model, group) for group in by_model]
        try:
            for future in as_completed(pending):
                ready = future.result()
                found |= ready
                advance(len(ready))
        except BrokenProcessPool as error:
            raise LaunchkitError(
                f"a process that compiled kernels died: {error} Free memory, or measure one model "
                "at a time."
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return found


def _by_model(cases: Sequence[MambaCase]) -> Iterable[list[MambaCase]]:
    for model in dict.fromkeys(case.model for case in cases):
        yield [case for case in cases if case.model == model]


def _prepare_model(cases: Sequence[MambaCase]) -> dict[str, Counts]:
    with measuring(record=True) as cuda, pinned() as ours:
        by_triton = triton_kernels()
        device = "cuda" if cuda else "cpu"
        return {
            case.name: count(parts(build(case, device), by_triton, ours), cuda) for case in cases
        }
