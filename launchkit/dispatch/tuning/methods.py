"""Timing of one config: Triton's way, eager, or replays of a CUDA graph. Below trials.py.

Times are milliseconds per launch, (median, p20, p80), as Triton's benchmark functions give them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

from launchkit.dispatch.tuning.failures import CaptureFailedError
from launchkit.dispatch.tuning.options import EAGER, has_own_benchmark

Call: TypeAlias = Callable[[], None]

QUANTILES = (0.5, 0.2, 0.8)
WARM_UP_MS = 25
MEASURE_MS = 100
"""How long one config is launched before it is timed, and while it is: what Triton takes."""
MAX_REPS = 2000
REPLAY_MS = 1.0
"""How long one replay of a graph with several launches should take, so that events can time it."""
MAX_UNROLL = 100


def measure(autotuner: Any, method: str, call: Call) -> tuple[Any, int | None]:
    """Time a launch by a method; return what the benchmark said, and how many launches it timed.

    The number is None where the benchmark function is not ours.

    Raises:
        CaptureFailedError: the launch cannot be captured; ``method`` is one of a graph.
    """
    if method == EAGER or has_own_benchmark(autotuner):
        return autotuner.do_bench(call, quantiles=QUANTILES), None
    time = time_graph if method.startswith("graph") else time_eager
    times_ms = time(call, cold=method.endswith("+cold"))
    return quantiles(times_ms[0]), times_ms[1]


def quantiles(times_ms: list[float]) -> list[float]:
    """Return (median, p20, p80), between the nearest two times as numpy's do."""
    ordered = sorted(times_ms)
    return [_quantile(ordered, share) for share in QUANTILES]


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def time_eager(call: Call, *, cold: bool) -> tuple[list[float], int]:
    """Return the times of single launches, and their number."""
    estimate_ms = _estimate_ms(call)
    for _ in range(_count(WARM_UP_MS, estimate_ms)):
        call()
    reps = _count(MEASURE_MS, estimate_ms)
    return _time(call, reps, _flusher() if cold else None), reps


def time_graph(call: Call, *, cold: bool) -> tuple[list[float], int]:
    """Return the times per launch of replays, and the number of launches.

    With a warm cache a replay has several launches, so that it is long enough for events.
    """
    estimate_ms = _estimate_ms(call)
    unroll = 1 if cold else max(1, min(MAX_UNROLL, int(REPLAY_MS / max(estimate_ms, 1e-6))))
    graph = _capture(call, unroll)
    graph.replay()
    reps = max(10, _count(MEASURE_MS, estimate_ms * unroll))
    times_ms = _time(graph.replay, reps, _flusher() if cold else None)
    return [time_ms / unroll for time_ms in times_ms], reps * unroll


def _time(call: Call, reps: int, flush: Call | None) -> list[float]:
    spans = [(_event(), _event()) for _ in range(reps)]
    for start, end in spans:
        if flush is not None:
            flush()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in spans]


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _estimate_ms(call: Call) -> float:
    call()  # compiles
    torch.cuda.synchronize()
    start, end = _event(), _event()
    start.record()
    for _ in range(5):
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 5


def _count(total_ms: float, each_ms: float) -> int:
    return max(1, min(MAX_REPS, int(total_ms / max(each_ms, 1e-6))))


def _flusher() -> Call:
    """Return what empties the L2 cache: writing twice its size."""
    size = getattr(torch.cuda.get_device_properties(), "L2_cache_size", 0) or 128 * 2**20
    buffer = torch.empty(2 * size, dtype=torch.int8, device="cuda")

    def flush() -> None:
        buffer.zero_()

    return flush


def _capture(call: Call, launches: int) -> Any:
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.current_stream()
    try:
        # Other threads may use the GPU meanwhile.
        with _no_collection(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(launches):
                call()
    except Exception as error:
        # torch leaves the stream of a failed capture the current one.
        torch.cuda.set_stream(stream)
        raise CaptureFailedError(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
    return graph


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector off: a compiled kernel that it frees would unload its module,
    which CUDA forbids while it captures."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
