"""How long ranges were open: how often, and the first times singly. A leaf."""

from __future__ import annotations

from array import array


class Visits:
    """The visits of one range path, in host ns without the share of recording ranges.

    ``within_ns`` is what of ``ns`` was spent in ranges directly inside. The arrays hold the first
    visits singly: when each began, both times, and its thread's number.
    """

    __slots__ = ("count", "length_ns", "ns", "started_ns", "thread", "within_each_ns", "within_ns")

    def __init__(self) -> None:
        self.count = 0
        self.ns = 0
        self.within_ns = 0
        self.started_ns = array("q")
        self.length_ns = array("q")
        self.within_each_ns = array("q")
        self.thread = array("q")

    def add(self, thread: int, start_ns: int, length_ns: int, within_ns: int, keep: bool) -> None:
        """Count a visit; with ``keep`` also singly."""
        self.count += 1
        self.ns += length_ns
        self.within_ns += within_ns
        if keep:
            self.started_ns.append(start_ns)
            self.length_ns.append(length_ns)
            self.within_each_ns.append(within_ns)
            self.thread.append(thread)

    def merge(self, other: Visits) -> None:
        """Add those of ``other``."""
        self.count += other.count
        self.ns += other.ns
        self.within_ns += other.within_ns
        for name in ("started_ns", "length_ns", "within_each_ns", "thread"):
            getattr(self, name).extend(getattr(other, name))
