"""How long ranges were open: how often, and the first times singly. A leaf."""

from __future__ import annotations

from array import array
from typing import NamedTuple

COLUMNS = ("started_ns", "length_ns", "within_each_ns", "recorder_ns", "thread")
"""What is kept of single visits."""


class Visit(NamedTuple):
    """A time that a range was open; ``within_ns`` of it in ranges directly inside."""

    thread: int
    start_ns: int
    length_ns: int
    within_ns: int
    recorder_ns: int = 0


class Visits:
    """The visits of one range path, in host ns without the share of recording ranges.

    ``within_ns`` is what of ``ns`` was spent in ranges directly inside. The arrays hold the first
    visits singly: when each began, both times, the recorder's share that was taken off (so that
    ``started_ns`` + ``length_ns`` + ``recorder_ns`` is when it ended), and its thread's number.
    """

    __slots__ = ("count", "ns", "within_ns", *COLUMNS)

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0
        self.within_ns = 0
        self.started_ns = array("q")
        self.length_ns = array("q")
        self.within_each_ns = array("q")
        self.recorder_ns = array("q")
        self.thread = array("q")

    def keep(self, visit: Visit) -> None:
        """Keep a visit singly."""
        self.started_ns.append(visit.start_ns)
        self.length_ns.append(visit.length_ns)
        self.within_each_ns.append(visit.within_ns)
        self.recorder_ns.append(visit.recorder_ns)
        self.thread.append(visit.thread)

    def merge(self, other: Visits) -> None:
        """Add those of ``other``."""
        self.count += other.count
        self.ns += other.ns
        self.within_ns += other.within_ns
        for name in COLUMNS:
            getattr(self, name).extend(getattr(other, name))
