"""Before anything is timed: every kernel compiled and every launch counted, in other processes.

One process a model, at the same time: compiling keeps a core busy for long. What they compile
this process finds in Triton's disk cache. A profiler that has once watched the GPU slows down
launches for the rest of a process, so the timing one never starts it.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event

from launchkit.benchmarks.failures import failure, named
from launchkit.benchmarks.mamba.cases import MambaCase, build
from launchkit.benchmarks.mamba.counts import Counts, count
from launchkit.benchmarks.mamba.steps import parts
from launchkit.benchmarks.mode import measuring
from launchkit.benchmarks.pinned_configs import pinned, triton_kernels
from launchkit.errors import LaunchkitError


def prepare(cases: Sequence[MambaCase], advance: Callable[[int], None]) -> dict[str, Counts]:
    """Compile what the cases launch; return the launches of each case by its name.

    ``advance`` is called with the number of cases that became ready.
    Raises LaunchkitError, which names the case or the models, for whatever ends a process's work.
    """
    by_model = {group[0].model: group for group in _by_model(cases)}
    workers = min(len(by_model), len(os.sched_getaffinity(0)))
    # Not forked: neither CUDA nor the host-only driver lives on in a copy of the process.
    context = multiprocessing.get_context("spawn")
    found: dict[str, Counts] = {}
    stop = context.Event()
    with ProcessPoolExecutor(workers, context, _heed, (stop,)) as pool:
        pending = {pool.submit(_prepare_model, group): name for name, group in by_model.items()}
        try:
            for future in as_completed(pending):
                ready = _result(future, pending)
                found |= ready
                advance(len(ready))
        finally:
            # Waited for: no process may outlive this, nor keep a core busy while others time.
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
    return found


_Prepared = Future[dict[str, Counts]]


def _result(future: _Prepared, models: dict[_Prepared, str]) -> dict[str, Counts]:
    try:
        return future.result()
    except LaunchkitError:
        raise
    except BrokenProcessPool as error:
        # It breaks every future that is left, so that there is no telling whose process it was.
        left = [name for each, name in models.items() if not each.done() or each.exception()]
        raise LaunchkitError(
            f"a process that compiled kernels of {' or '.join(left)} died: {error} Free memory, "
            "give fewer tokens or sequences, or measure one model at a time.",
            models=left,
        ) from error
    except Exception as error:
        raise failure(models[future], error) from error


def _by_model(cases: Sequence[MambaCase]) -> Iterable[list[MambaCase]]:
    for model in dict.fromkeys(case.model for case in cases):
        yield [case for case in cases if case.model == model]


_stops: list[Event] = []
"""In a worker: one event, set when no result is wanted any more."""


def _heed(stop: Event) -> None:
    _stops.append(stop)


def _prepare_model(cases: Sequence[MambaCase]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    try:
        with measuring(record=True) as cuda, pinned() as ours:
            by_triton = triton_kernels()
            for case in cases:
                if any(stop.is_set() for stop in _stops):
                    break
                with named(case.name):
                    inputs = build(case, "cuda" if cuda else "cpu")
                    found[case.name] = count(parts(inputs, by_triton, ours), cuda)
    except LaunchkitError:
        raise
    except Exception as error:
        # Here, as not every error of other packages can be sent to another process.
        raise failure(cases[0].model, error) from error
    return found
