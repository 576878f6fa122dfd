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
    counts those that raised.
    """

    __slots__ = ("failed", "phases", "total")

    def __init__(self) -> None:
        self.failed = 0
        self.total = Times()
        self.phases: dict[str, Times] = {}

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

    def merge(self, other: Series) -> None:
        """Add the figures of ``other`` to these."""
        self.failed += other.failed
        self.add(other.total, other.phases, len(other.total.samples))
