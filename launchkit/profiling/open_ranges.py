"""Which ranges each thread has open while launches are recorded, and since when. A leaf."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from launchkit import clock
from launchkit.profiling import ranges
from launchkit.profiling.tally import RangeNode, Tally


@dataclass
class _Open:
    """An open range, and what was spent in ranges inside it."""

    __slots__ = ("entered", "inside_ns", "nested", "node", "start_ns")

    entered: ranges.annotate | None
    node: RangeNode
    start_ns: int
    inside_ns: int
    nested: int


@dataclass
class RangeCosts:
    """What recording a range puts into its own time and into that of each range around it, in ns."""

    own_ns: int = 0
    nested_ns: int = 0


class OpenRanges(threading.local):
    """The ranges that the current thread has open, innermost last, each with its time.

    ``changed`` is called on a thread whose innermost range is another one now. ``costs``: what
    recording puts into the time of a range, and of one around it; both are taken off.
    """

    def __init__(
        self,
        tally: Tally,
        changed: Callable[[int], object] | None = None,
        costs: RangeCosts | None = None,
    ) -> None:
        self._tally = tally
        self._changed = changed
        self._now_ns = clock.now_ns
        self._costs = costs or RangeCosts()
        self.stack: list[_Open] = [_Open(None, tally.root, 0, 0, 0)]
        self.thread = tally.thread()
        self.kernels: list[str] = []
        """Kernels whose launches are under way on this thread."""

    @property
    def innermost(self) -> RangeNode:
        """The range that a launch of this thread belongs to."""
        return self.stack[-1].node

    def enter(self, entered: ranges.annotate) -> None:
        """Open a range."""
        node = self._tally.child(self.innermost, entered.name, entered.layer, entered.op)
        opened = _Open(entered, node, 0, 0, 0)
        self.stack.append(opened)
        if self._changed is not None:
            self._changed(node.number)
        # Last, so that the range's time holds as little as can be of its recording.
        opened.start_ns = self._now_ns()

    def leave(self, left: ranges.annotate) -> None:
        """Close a range, if it was opened since the recording began."""
        end_ns = self._now_ns()
        stack = self.stack
        # Not always the last one: ranges held open over an await cross each other.
        for index in range(len(stack) - 1, 0, -1):
            if stack[index].entered is left:
                self._close(stack.pop(index), stack[index - 1], end_ns)
                return

    def _close(self, left: _Open, outer: _Open, end_ns: int) -> None:
        if self._changed is not None:
            self._changed(self.innermost.number)
        length_ns = end_ns - left.start_ns - self._costs.own_ns
        length_ns -= left.nested * self._costs.nested_ns
        outer.inside_ns += length_ns
        outer.nested += 1 + left.nested
        self._tally.visit(left.node, self.thread, left.start_ns, length_ns, left.inside_ns)


class NamedRanges(threading.local):
    """The ranges that the current thread has open, for a recording that samples launches.

    Entering one costs little: which node of the tally it is, is only asked for when a launch is
    recorded. Their times are not taken.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.open: list[ranges.annotate] = []
        self.thread = tally.thread()
        self.kernels: list[str] = []
        """Kernels whose launches are under way on this thread."""

    @property
    def innermost(self) -> RangeNode:
        """The range that a launch of this thread belongs to."""
        node = self._tally.root
        for each in self.open:
            node = self._tally.child(node, each.name, each.layer, each.op)
        return node

    def locate(self) -> int:
        """Return the number of the innermost range."""
        return self.innermost.number

    def enter(self, entered: ranges.annotate) -> None:
        """Open a range."""
        self.open.append(entered)

    def leave(self, left: ranges.annotate) -> None:
        """Close a range, if it was opened since the recording began."""
        opened = self.open
        for index in range(len(opened) - 1, -1, -1):
            if opened[index] is left:
                del opened[index]
                return
