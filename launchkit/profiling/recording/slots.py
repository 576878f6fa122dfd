"""Recording without the C core: launch functions are replaced by timed ones. Above open_ranges."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable

from launchkit import clock
from launchkit.profiling.recording.calibration import ROUNDS, Calibration, Cost, cost_of
from launchkit.profiling.recording.open_ranges import NamedRanges, OpenRanges, RangeCosts
from launchkit.profiling.recording.range_costs import range_costs
from launchkit.profiling.recording.series import Times
from launchkit.profiling.recording.tally import Batch, Subject, Tally

LaunchFn = Callable[..., object]


class SlotRecording:
    """Fills a tally from wrapped launch functions, which ``set_slot`` puts in and takes out."""

    def __init__(
        self,
        tally: Tally,
        set_slot: Callable[[Callable[[LaunchFn, str], LaunchFn] | None], None],
        is_host_only: Callable[[], bool],
        sample_every: int = 1,
    ) -> None:
        self._tally = tally
        self._sample_every = sample_every
        self._skip = random.randrange(2 * sample_every - 1)
        self._costs = RangeCosts()
        self.ranges: OpenRanges | NamedRanges = (
            NamedRanges(tally) if sample_every > 1 else OpenRanges(tally, None, self._costs)
        )
        self._set_slot = set_slot
        self._is_host_only = is_host_only
        self._overhead_ns = 0.0

    def start(self) -> Calibration:
        """Begin, and return what recording costs."""
        scratch = Tally(ROUNDS)
        trial = SlotRecording(scratch, self._set_slot, self._is_host_only)
        launch, added = trial.calibrate()
        self._overhead_ns = launch.ns
        self._set_slot(self.wrap)
        return Calibration(launch, added, *range_costs(self._costs))

    def stop(self) -> None:
        """End the recording."""
        self._set_slot(None)

    def wrap(self, fn: LaunchFn, kernel: str) -> LaunchFn:
        """Return ``fn`` timed as launches of ``kernel``, or those of them that are in the sample."""
        timed = self._timed(fn, kernel)
        return self._sampled(fn, timed) if self._sample_every > 1 else timed

    def _sampled(self, fn: LaunchFn, timed: LaunchFn) -> LaunchFn:
        open_ranges, drawn = self.ranges, self._drawn

        def sampled(grid: object, /, *args: object, **kwargs: object) -> object:
            # What is launched inside a launch of the sample is a part of that.
            launch = timed if open_ranges.kernels or drawn() else fn
            return launch(grid, *args, **kwargs)

        return sampled

    def _timed(self, fn: LaunchFn, kernel: str) -> LaunchFn:
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
                batch = Batch(
                    subject, open_ranges.thread, times, host_only=is_host_only(),
                    started_ns=array("q", (start_ns,)),
                )  # fmt: skip
                add(open_ranges.innermost, batch)
                return result
            finally:
                open_ranges.kernels.pop()

        return timed

    def _drawn(self) -> bool:
        """Tell whether a launch is in the sample: a random one of so many, for they come in patterns.

        Threads may draw at once; which of their launches are counted then is as random.
        """
        self._tally.seen += 1
        self._skip -= 1
        if self._skip >= 0:
            return False
        self._skip = random.randrange(2 * self._sample_every - 1)
        return True

    def calibrate(self) -> tuple[Cost, Cost]:
        """Return what recording puts into the time of a launch, and what it adds to it in all."""
        now_ns = clock.now_ns
        timed = self.wrap(lambda grid: None, "calibration")
        clock_ns, launch_ns = [], []
        for _ in range(ROUNDS):
            start_ns = now_ns()
            clock_ns.append(now_ns() - start_ns)
            start_ns = now_ns()
            timed(None)
            launch_ns.append(now_ns() - start_ns)
        own, whole = cost_of(clock_ns), cost_of(launch_ns)
        return own, Cost(whole.ns - own.ns, whole.uncertainty_ns)
