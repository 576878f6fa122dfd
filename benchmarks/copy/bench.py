"""``launchkit bench copy``: GPU time of state copies, as shares of a plain copy's bandwidth.

A launch is timed among others: one graph holds many, over sets of blocks that take turns, and
its time is divided by their number. Alone it would pay for the start of a graph. The ceiling is
one large device copy by torch, timed with events in the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
import triton

from launchkit.benchmarks import machine
from launchkit.benchmarks.copy.host import check
from launchkit.benchmarks.copy.pool import BlockSet, Pool, sets_of
from launchkit.benchmarks.copy.variants import CopyVariant
from launchkit.benchmarks.shapes import CACHE_SHAPES, CacheShape
from launchkit.benchmarks.timing import spread
from launchkit.errors import UsageError

REQS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Requests of a launch in the table."""

LAUNCHES = 24
"""In one graph; as many on each set of blocks where there are MAX_SETS."""

_CEILING_BYTES = 2 * 2**30
_DATASHEET_GB_PER_S = {"H200": 4800.0, "H100 80GB HBM3": 3350.0, "A100-SXM4-80GB": 2039.0}
_LONG_US = 20_000.0
"""A graph that runs longer need not be kept company: its start is too short to matter."""

Report = Callable[[dict[str, Any]], None]
_Held = tuple[list[BlockSet], list[Callable[[], object]]]


def measure(
    models: Sequence[str],
    reqs: Sequence[int],
    variants: Callable[[CacheShape], Sequence[CopyVariant]],
    rounds: int,
    finished: Report = lambda _document: None,
) -> dict[str, Any]:
    """Measure every variant for every model and number of requests; return JSON values.

    variants: what is compared for a model, one of ``variants``.
    finished: called after each case with the result so far, whose ``complete`` is false.

    Raises UsageError for an unknown model, a size below 1, fewer than 2 rounds, or no GPU.
    """
    check(models, reqs, rounds)
    _require_gpu()
    document = _empty_document(rounds)
    for model in models or CACHE_SHAPES:
        shape = CACHE_SHAPES[model]
        pool = Pool(shape, tuple(reqs))
        for count in reqs:
            rows = _case(shape, pool, count, variants(shape), rounds, document["failed"])
            document["rows"].extend(rows)
            finished(document)
        del pool
        torch.cuda.empty_cache()
    return {**document, "complete": True}


def _require_gpu() -> None:
    if not torch.cuda.is_available():
        raise UsageError(
            "this benchmark times copies on a GPU, and torch finds none. Run it on a CUDA GPU, or "
            "give --host for the host's part alone."
        )


def _empty_document(rounds: int) -> dict[str, Any]:
    facts = machine.facts()
    return {
        "mode": "cuda",
        "machine": facts,
        "method": {
            "rounds": rounds,
            "launches_per_graph": LAUNCHES,
            "ceiling_bytes": _CEILING_BYTES,
            "bytes": "read and written",
            "statistic": "median",
            "datasheet_gb_per_s": _datasheet(facts["gpu"]),
        },
        "complete": False,
        "rows": [],
        "failed": [],
    }


def _datasheet(gpu: str) -> float | None:
    return next((rate for name, rate in _DATASHEET_GB_PER_S.items() if name in gpu), None)


def _case(
    shape: CacheShape,
    pool: Pool,
    reqs: int,
    variants: Sequence[CopyVariant],
    rounds: int,
    failed: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the rows of one number of requests, timed in turn, the ceiling among them.

    A variant that this GPU or this Triton cannot run is added to ``failed`` instead.
    """
    graphs: dict[CopyVariant, tuple[torch.cuda.CUDAGraph, _Held]] = {}
    for variant in variants:
        try:
            graphs[variant] = _captured(variant, pool, reqs)
        except (RuntimeError, triton.TritonError) as error:
            failed.append(_failure(shape, reqs, variant, error))
    ceiling = _Ceiling()
    ceiling_us: list[float] = []
    times_us: dict[CopyVariant, list[float]] = {variant: [] for variant in graphs}
    for _ in range(rounds):
        ceiling_us.append(ceiling.time_us())
        for variant, (graph, _) in graphs.items():
            times_us[variant].append(_replay_us(graph) / LAUNCHES)
    moved = 2 * reqs * shape.request_bytes
    ceiling_rate = 2 * _CEILING_BYTES / median(ceiling_us) / 1e3
    datasheet = _datasheet(torch.cuda.get_device_name())
    return [
        _row(shape, reqs, variant, times, moved, ceiling_rate, datasheet)
        for variant, times in times_us.items()
    ]


def _failure(
    shape: CacheShape, reqs: int, variant: CopyVariant, error: Exception
) -> dict[str, Any]:
    first_line = str(error).partition("\n")[0]
    return {
        "model": shape.model,
        "reqs": reqs,
        "variant": variant.name,
        "error": f"{type(error).__name__}: {first_line}",
    }


def _row(
    shape: CacheShape,
    reqs: int,
    variant: CopyVariant,
    times_us: Sequence[float],
    moved: int,
    ceiling: float,
    datasheet: float | None,
) -> dict[str, Any]:
    rate = moved / median(times_us) / 1e3
    return {
        "model": shape.model,
        "reqs": reqs,
        "variant": variant.name,
        "tiles": variant.tiles,
        "block_size": variant.block_size,
        "num_warps": variant.num_warps,
        "options": dict(variant.options),
        "sets": sets_of(shape, reqs),
        "bytes": moved,
        **spread(times_us),
        "gb_per_s": round(rate, 1),
        "ceiling_gb_per_s": round(ceiling, 1),
        "of_ceiling": round(rate / ceiling, 4),
        "of_datasheet": None if datasheet is None else round(rate / datasheet, 4),
    }


def _captured(variant: CopyVariant, pool: Pool, reqs: int) -> tuple[torch.cuda.CUDAGraph, _Held]:
    """Return a graph of LAUNCHES launches over sets in turn, its copies checked, and what it reads.

    The graph holds addresses alone: the sets, and what the calls have made of them, have to
    live as long as it.
    """
    sets = pool.sets(reqs)
    calls = [variant.call(pool, blocks) for blocks in sets]
    calls[0]()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for number in range(LAUNCHES):
            calls[number % len(calls)]()
    for blocks in sets:
        pool.spoil(blocks)
    graph.replay()
    if not all(pool.copied(blocks) for blocks in sets):
        raise RuntimeError("it did not copy every byte, so its time would mean nothing")
    return graph, (sets, calls)


def _replay_us(graph: torch.cuda.CUDAGraph) -> float:
    """Return the GPU microseconds of a replay whose start is hidden behind another's end."""
    start, end = _events()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    alone_us = float(start.elapsed_time(end) * 1e3)
    if alone_us > _LONG_US:
        return alone_us
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) * 1e3)


def _events() -> tuple[Any, Any]:
    event: Any = torch.cuda.Event
    return event(enable_timing=True), event(enable_timing=True)


class _Ceiling:
    """A device copy of 2 GiB by torch, launched as it is: a graph's copy node is slower."""

    def __init__(self) -> None:
        self._src = torch.ones(_CEILING_BYTES, dtype=torch.uint8, device="cuda")
        self._dst = torch.zeros_like(self._src)
        self._dst.copy_(self._src)

    def time_us(self) -> float:
        """Return the GPU microseconds of one copy behind another."""
        start, end = _events()
        self._dst.copy_(self._src)
        start.record()
        self._dst.copy_(self._src)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end) * 1e3)
