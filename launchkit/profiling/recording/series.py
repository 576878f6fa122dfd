"""Times of launches that are counted together. A leaf."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

PHASES = ("find", "grid", "driver")
"""Of a launch from its plan: binding, guard and lookup; stream, grid and parameters; the driver."""

REPLAY_PHASES = ("find", "prepare", "launches")
"""Of the replay of an op: comparing its arguments; allocating; the driver, launch by launch."""


class Times:
    """Durations of launches in ns: how many, their sum, and the first ones singly."""

    __slots__ = ("launches", "ns", "samples")

    def __init__(self, launches: int = 0, ns: float = 0, samples: array[int] | None = None) -> None:
        self.launches = launches
        self.ns = ns
        self.samples = array("q") if samples is None else samples

    def take(self, other: Times, room: int) -> int:
        """Add those of ``other``, at most ``room`` of them singly; return how many those were."""
        self.launches += other.launches
        self.ns += other.ns
        singly = other.samples[: max(room, 0)]
        self.samples.extend(singly)
        return len(singly)


class Series:
    """The launches of one subject in one range, in host ns without the recorder's share.

    ``total`` has every launch that returned, ``phases`` those whose phases are known; ``failed``
    counts those that raised. Of each of ``total``'s samples ``started_ns`` has when it began,
    ``thread`` its thread's number, and ``phase_at`` the place of its phases' samples, or -1.
    """

    __slots__ = ("failed", "phase_at", "phases", "started_ns", "thread", "total")

    def __init__(self) -> None:
        self.failed = 0
        self.total = Times()
        self.phases: dict[str, Times] = {}
        self.started_ns = array("q")
        self.thread = array("q")
        self.phase_at = array("q")

    @property
    def launches(self) -> int:
        """Launches that returned."""
        return self.total.launches

    @property
    def dropped(self) -> int:
        """Launches whose time is in the total but not among the samples."""
        return self.launches - len(self.total.samples)

    def add(self, total: Times, phases: Mapping[str, Times], room: int) -> int:
        """Add launches, at most ``room`` of them singly; return how many those were."""
        for name, times in phases.items():
            self.phases.setdefault(name, Times()).take(times, room)
        return self.total.take(total, room)

    def locate(self, started_ns: array[int], thread: int, phases: Mapping[str, Times]) -> None:
        """Say when the samples that were added last began, on which thread, and with which phases."""
        place, end = len(self.started_ns), len(self.total.samples)
        known = min((len(self.phases[name].samples) for name in phases), default=0)
        for sample in range(end - place):
            self.started_ns.append(started_ns[sample] if sample < len(started_ns) else 0)
            self.thread.append(thread)
            self.phase_at.append(known - (end - place) + sample if phases else -1)

    def merge(self, other: Series) -> None:
        """Add the figures of ``other`` to these."""
        self.failed += other.failed
        self.add(other.total, other.phases, len(other.total.samples))
