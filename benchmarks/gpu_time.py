"""GPU time of calls, without their host cost: each is captured into a CUDA graph and replayed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from launchkit.benchmarks.timing import spread

_CALLS = 4
"""In one graph: between calls the GPU does not wait, between graphs it does."""


def gpu_times_us(calls: Sequence[Callable[[], Any]], rounds: int) -> list[list[float]]:
    """Return the GPU microseconds of one call of each, ``rounds`` times.

    All graphs are replayed in turn, once a round. The calls must have run before, so that
    nothing is compiled or tuned while they are captured.

    Left out: launching, and the start of a graph. Not left out: waiting for memory, but every
    replay has the same tensors, so that those which fit stay in the L2 cache; ``copy/bench.py``
    takes sets of blocks in turn instead.
    """
    graphs = [_captured(call) for call in calls]
    event: Any = torch.cuda.Event
    start, end = event(enable_timing=True), event(enable_timing=True)
    times_us: list[list[float]] = [[] for _ in graphs]
    for _ in range(rounds):
        for graph, times in zip(graphs, times_us, strict=True):
            # The first replay keeps the GPU busy while the host enqueues the measured one.
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / _CALLS)
    return times_us


def add_gpu_times(
    rows: Sequence[dict[str, Any]], calls: Sequence[Callable[[], Any]], rounds: int
) -> None:
    """Put each call's ``gpu_median_us``, ``gpu_p10_us`` and ``gpu_p90_us`` into its row."""
    for row, times_us in zip(rows, gpu_times_us(calls, rounds), strict=True):
        row |= gpu_spread(times_us)


def gpu_spread(times_us: Sequence[float]) -> dict[str, float]:
    """Return ``timing.spread`` of GPU times, named ``gpu_...``."""
    return {f"gpu_{name}": value for name, value in spread(times_us).items()}


def _captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph
