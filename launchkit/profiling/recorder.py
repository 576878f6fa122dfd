"""``profile_launches``: time each launch, by the ranges around it. Above dispatch.

While a recording runs, the dispatcher's launch functions and the ends of ranges are replaced
by timed ones; when it ends, they are the untimed ones again.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator

from launchkit import clock, hostonly
from launchkit.dispatch import launcher
from launchkit.errors import UsageError
from launchkit.profiling import ranges
from launchkit.profiling.launch_profile import LaunchProfile
from launchkit.profiling.tally import RangeNode, Tally

LaunchFn = Callable[..., object]

_CALIBRATION_ROUNDS = 301

_recording_lock = threading.Lock()


@contextlib.contextmanager
def profile_launches(*, samples_per_row: int = 8192) -> Iterator[LaunchProfile]:
    """Time every launch that goes through launchkit while the block runs.

    Launches of all threads are recorded, each under the ranges that its own thread opened
    inside the block. A launch that raises is counted as failed and has no time. A first
    launch that tunes or compiles is a launch like others: see its row's p90 and total. A
    launch made inside another one (by a hook) is in the time of both. ``samples_per_row``
    bounds memory: counts and totals go on beyond it, percentiles do not.

    Launches that torch.compile traced are Triton's, not launchkit's: they are not seen.

    Raises ``UsageError`` for a limit that is not an int above 0, and when a recording is
    already running, in this thread or another: its figures would hold the other's overhead.
    """
    if type(samples_per_row) is not int or samples_per_row < 1:
        raise UsageError(
            f"samples_per_row={samples_per_row!r} is not a number of samples. Pass 1 or more.",
            samples_per_row=samples_per_row,
        )
    if not _recording_lock.acquire(blocking=False):
        raise UsageError(
            "launches are already being recorded. Use one profile_launches around both parts, "
            "or leave the first one before."
        )
    try:
        yield from _record(Tally(samples_per_row))
    finally:
        _recording_lock.release()


def _record(tally: Tally) -> Iterator[LaunchProfile]:
    overhead_ns, added_ns = _calibrate()
    recording = _Recording(tally)
    try:
        ranges.set_range_slot((recording.enter, recording.leave))
        launcher.set_launch_slot(recording.wrap)
        yield LaunchProfile(tally, overhead_ns, added_ns)
    finally:
        launcher.set_launch_slot(None)
        ranges.set_range_slot(None)
        tally.close()


class _OpenRanges(threading.local):
    """The ranges that the current thread has open, innermost last."""

    def __init__(self, root: RangeNode) -> None:
        self.stack: list[tuple[ranges.annotate | None, RangeNode]] = [(None, root)]


class _Recording:
    """Fills a tally from range callbacks and wrapped launch functions."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._open = _OpenRanges(tally.root)

    def enter(self, entered: ranges.annotate) -> None:
        stack = self._open.stack
        stack.append((entered, self._tally.child(stack[-1][1], entered.name, entered.layer)))

    def leave(self, left: ranges.annotate) -> None:
        stack = self._open.stack
        # Not always the last one: ranges held open over an await cross each other.
        for index in range(len(stack) - 1, 0, -1):
            if stack[index][0] is left:
                del stack[index]
                return

    def wrap(self, fn: LaunchFn, kernel: str) -> LaunchFn:
        """Return ``fn`` timed as launches of ``kernel``."""
        now_ns, is_host_only = clock.now_ns, hostonly.is_active
        tally, open_ranges = self._tally, self._open

        def timed(grid: object, /, *args: object, **kwargs: object) -> object:
            start_ns = now_ns()
            try:
                result = fn(grid, *args, **kwargs)
            except BaseException:
                tally.add_failure(open_ranges.stack[-1][1], kernel)
                raise
            elapsed_ns = now_ns() - start_ns
            tally.add(open_ranges.stack[-1][1], kernel, elapsed_ns, is_host_only())
            return result

        return timed


def _calibrate() -> tuple[float, float]:
    """Return the ns that recording puts into the time of a launch, and adds to it in all."""
    now_ns = clock.now_ns
    timed = _Recording(Tally(_CALIBRATION_ROUNDS)).wrap(lambda grid: None, "calibration")
    clock_ns, launch_ns = [], []
    for _ in range(_CALIBRATION_ROUNDS):
        start_ns = now_ns()
        clock_ns.append(now_ns() - start_ns)
        start_ns = now_ns()
        timed(None)
        launch_ns.append(now_ns() - start_ns)
    overhead_ns = statistics.median(clock_ns)
    return overhead_ns, statistics.median(launch_ns) - overhead_ns
