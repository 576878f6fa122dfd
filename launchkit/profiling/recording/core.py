"""Recording by the C core, whose stamps are read here. Above open_ranges."""

from __future__ import annotations

import functools
from array import array
from types import ModuleType
from typing import Any

from launchkit import clock
from launchkit.profiling.recording import tally as tally_module
from launchkit.profiling.recording.calibration import ROUNDS, Calibration, Cost, cost_of
from launchkit.profiling.recording.open_ranges import NamedRanges, OpenRanges, RangeCosts
from launchkit.profiling.recording.range_costs import range_costs
from launchkit.profiling.recording.series import PHASES, REPLAY_PHASES, Times
from launchkit.profiling.recording.tally import Batch, Subject, Tally

# Kinds of records, as in profile.h.
_FAST, _, _FAILED, _REPLAYED, _REPLAY, _FAILED_REPLAY = range(6)
_PHASES_OF = {_FAST: PHASES, _REPLAY: REPLAY_PHASES}

# Intervals between stamps of a launch from its plan: find, grid, driver.
_INTERVALS = 3


@functools.lru_cache(maxsize=1)
def _tick_rate(extension: ModuleType) -> clock.TickRate:
    """Return the rate of the counter that launches are timed with, measured once a process."""
    if extension.use_clock(False):
        rate = clock.TickRate(extension.ticks)
        if rate.is_even:
            return rate
    extension.use_clock(True)
    return clock.TickRate(extension.ticks)


class CoreRecording:
    """Fills a tally from what the C core has recorded."""

    def __init__(
        self, tally: Tally, extension: ModuleType, hostonly: Any, sample_every: int = 1
    ) -> None:
        self._tally = tally
        self._hostonly = hostonly
        self._rate = _tick_rate(extension)
        self._names: list[str] = [""]
        self._numbers: dict[str, int] = {}
        named = NamedRanges(tally) if sample_every > 1 else None
        self._recorder: Any = extension.LaunchRecorder(
            self._number_of,
            tally.thread,
            tally.samples_per_row,
            tally_module.MAX_SAMPLES,
            sample_every,
            *(() if named is None else (named.locate,)),
        )
        self._costs = RangeCosts()
        self.ranges = named or OpenRanges(tally, self._recorder.set_range, self._costs)

    def start(self) -> Calibration:
        """Begin, and return what recording costs."""
        self._tally.refresh = self._fetch
        self._hostonly.watch_mode(self._set_host_only)
        between, added = self._recorder.start(ROUNDS)
        ns_per_tick = self._rate.ns_per_tick()
        read, whole = (
            cost_of([ticks * ns_per_tick for ticks in each]) for each in (between, added)
        )
        ticks_per_read = self._recorder.ticks_per_read = round(read.ns / ns_per_tick)
        own = Cost(_INTERVALS * ticks_per_read * ns_per_tick, _INTERVALS * read.uncertainty_ns)
        return Calibration(own, whole, *range_costs(self._costs, self._recorder.set_range))

    def stop(self) -> None:
        """End the recording."""
        self._recorder.stop()
        self._hostonly.unwatch_mode(self._set_host_only)

    def _set_host_only(self, active: bool) -> None:
        self._recorder.host_only = active

    def _number_of(self, owner: Any) -> int:
        """Return the number of a kernel's launcher or of an op's core; 0 of the calibration."""
        if owner is None:
            return 0
        number = self._numbers.setdefault(owner.name, len(self._names))
        if number == len(self._names):
            self._names.append(owner.name)
        return number

    def _fetch(self) -> None:
        ns, ticks = self._rate.moment()
        for taken in self._recorder.take(self._rate.ns_per_tick(), ticks, ns):
            self._add(*taken)
        self._tally.lost = self._recorder.lost
        self._tally.seen = self._recorder.seen

    def _add(
        self,
        range_number: int,
        thread: int,
        kernel: int,
        op: int,
        kind: int,
        host_only: int,
        launches: int,
        columns: tuple[tuple[float, bytes], ...],
        started_ns: bytes,
    ) -> None:
        subject = Subject(self._names[kernel] or None, self._names[op] or None)
        total, *phases = (Times(launches, ns, _array(samples)) for ns, samples in columns)
        named = dict(zip(_PHASES_OF.get(kind, ()), phases, strict=False))
        batch = Batch(
            subject,
            thread,
            total,
            {"driver": total} if kind == _REPLAYED else named,
            host_only=bool(host_only),
            failed=kind in (_FAILED, _FAILED_REPLAY),
            started_ns=_array(started_ns),
        )
        self._tally.add(self._tally.node(range_number), batch)


def _array(samples: bytes) -> array[int]:
    made = array("q")
    made.frombytes(samples)
    return made
