"""Recording without the C core: each kernel's launch function is replaced by a timed one. A leaf."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable

from launchkit import clock
from launchkit.profiling.open_ranges import OpenRanges
from launchkit.profiling.series import Times
from launchkit.profiling.tally import Batch, Subject, Tally

LaunchFn = Callable[..., object]

_CALIBRATION_ROUNDS = 301


class SlotRecording:
    """Fills a tally from wrapped launch functions, which ``set_slot`` puts in and takes out."""

    def __init__(
        self,
        tally: Tally,
        open_ranges: OpenRanges,
        set_slot: Callable[[Callable[[LaunchFn, str], LaunchFn] | None], None],
        is_host_only: Callable[[], bool],
    ) -> None:
        self._tally = tally
        self.ranges = open_ranges
        self._set_slot = set_slot
        self._is_host_only = is_host_only
        self._overhead_ns = 0.0

    def start(self) -> tuple[float, float]:
        """Begin; return the ns that recording puts into the time of a launch, and all it adds."""
        scratch = Tally(_CALIBRATION_ROUNDS)
        trial = SlotRecording(scratch, OpenRanges(scratch), self._set_slot, self._is_host_only)
        self._overhead_ns, added_ns = trial.calibrate()
        self._set_slot(self.wrap)
        return self._overhead_ns, added_ns

    def stop(self) -> None:
        """End the recording."""
        self._set_slot(None)

    def wrap(self, fn: LaunchFn, kernel: str) -> LaunchFn:
        """Return ``fn`` timed as launches of ``kernel``."""
        now_ns, is_host_only, open_ranges = clock.now_ns, self._is_host_only, self.ranges
        subject, add, overhead_ns = Subject(kernel, None), self._tally.add, self._overhead_ns

        def timed(grid: object, /, *args: object, **kwargs: object) -> object:
            if kernel in open_ranges.kernels:  # it is part of that launch
                return fn(grid, *args, **kwargs)
            open_ranges.kernels.append(kernel)
            start_ns = now_ns()
            try:
                result = fn(grid, *args, **kwargs)
            except BaseException:
                failed = Batch(subject, open_ranges.thread, Times(1), failed=True)
                add(open_ranges.innermost, failed)
                raise
            else:
                elapsed_ns = now_ns() - start_ns - overhead_ns
                times = Times(1, elapsed_ns, array("q", (round(elapsed_ns),)))
                batch = Batch(subject, open_ranges.thread, times, host_only=is_host_only())
                add(open_ranges.innermost, batch)
                return result
            finally:
                open_ranges.kernels.pop()

        return timed

    def calibrate(self) -> tuple[float, float]:
        """Return the ns that recording puts into the time of a launch, and adds to it in all."""
        now_ns = clock.now_ns
        timed = self.wrap(lambda grid: None, "calibration")
        clock_ns, launch_ns = [], []
        for _ in range(_CALIBRATION_ROUNDS):
            start_ns = now_ns()
            clock_ns.append(now_ns() - start_ns)
            start_ns = now_ns()
            timed(None)
            launch_ns.append(now_ns() - start_ns)
        overhead_ns = statistics.median(clock_ns)
        return overhead_ns, statistics.median(launch_ns) - overhead_ns
