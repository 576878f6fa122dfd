"""Random trials of several kinds, in chunks that are spread over processes.

Which trials there are depends on the seed alone, and not on how many processes there are.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

from launchkit.errors import LaunchkitError, UsageError

ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Chunk:
    """Trials of one kind, ``first`` to ``first + count - 1``, that a process takes at a time."""

    kind: str
    first: int
    count: int
    seed: int


def check(
    kinds: Sequence[str], known: Sequence[str], what: tuple[str, str], total: int, processes: int
) -> None:
    """Raise UsageError for a kind that is not known, and for numbers below 1.

    ``what``: what a kind and what trials are called.
    """
    kind, trials = what
    unknown = [name for name in kinds if name not in known]
    if unknown:
        raise UsageError(f"no {kind} named {', '.join(unknown)}. There are: {', '.join(known)}.")
    if total < 1 or processes < 1:
        raise UsageError(f"{trials} and processes must be at least 1. Give larger ones.")


def chunks(kinds: Sequence[str], total: int, seed: int, size: int) -> Iterator[Chunk]:
    """Yield ``total`` trials, spread evenly over the kinds; the first chunks of all come first."""
    shares = [total // len(kinds) + (turn < total % len(kinds)) for turn in range(len(kinds))]
    for first in range(0, max(shares), size):
        for kind, share in zip(kinds, shares, strict=True):
            if first < share:
                yield Chunk(kind, first, min(size, share - first), seed)


def run_all(
    run: Callable[[Chunk], ResultT],
    work: Sequence[Chunk],
    processes: int,
    died: Callable[[], str],
) -> Iterator[ResultT]:
    """Yield what ``run`` gives for each chunk, in the order in which they are done.

    Raises what it raises, and LaunchkitError with the text of ``died()`` where a process ended.
    """
    # Spawned: a fork would have the memory of the parent's torch and Triton, without their threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        try:
            for done in as_completed([pool.submit(run, chunk) for chunk in work]):
                yield done.result()
        except BrokenProcessPool as error:
            raise LaunchkitError(died()) from error
        finally:
            pool.shutdown(cancel_futures=True)
