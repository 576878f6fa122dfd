"""Which ranges each thread has open in a recording, and since when. Above the tally."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from launchkit import clock
from launchkit.profiling import ranges
from launchkit.profiling.recording.tally import RangeNode, Tally
from launchkit.profiling.recording.visits import Visit


class _Open:
    """An open range, what was spent in ranges inside it, and how many of them there were."""

    __slots__ = ("entered", "inside_ns", "nested", "node", "start_ns")

    def __init__(self, entered: ranges.annotate | None, node: RangeNode) -> None:
        self.entered = entered
        self.node = node
        self.start_ns = self.inside_ns = self.nested = 0


@dataclass
class RangeCosts:
    """What recording a range puts into its own time and into that of each range around it, in ns."""

    own_ns: int = 0
    nested_ns: int = 0


class _Stack(threading.local):
    """What a thread has open; looked up once for each end of a range, since that is not cheap."""

    def __init__(self, tally: Tally) -> None:
        self.opened: list[_Open] = [_Open(None, tally.root)]
        self.thread = tally.thread()
        self.kernels: list[str] = []


class OpenRanges:
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
        self._own = _Stack(tally)

    @property
    def thread(self) -> int:
        """The current thread's number."""
        return self._own.thread

    @property
    def kernels(self) -> list[str]:
        """Kernels whose launches are under way on this thread."""
        return self._own.kernels

    @property
    def innermost(self) -> RangeNode:
        """The range that a launch of this thread belongs to."""
        return self._own.opened[-1].node

    def enter(self, entered: ranges.annotate) -> None:
        """Open a range."""
        opened = self._own.opened
        node = self._tally.child(opened[-1].node, entered.name, entered.layer, entered.op)
        new = _Open(entered, node)
        opened.append(new)
        if self._changed is not None:
            self._changed(node.number)
        # Last, so that the range's time holds as little as can be of its recording.
        new.start_ns = self._now_ns()

    def leave(self, left: ranges.annotate) -> None:
        """Close a range, if it was opened since the recording began."""
        end_ns = self._now_ns()
        own = self._own
        opened = own.opened
        # Not always the last one: ranges held open over an await cross each other.
        for index in range(len(opened) - 1, 0, -1):
            if opened[index].entered is left:
                closed = opened.pop(index)
                if self._changed is not None:
                    self._changed(opened[-1].node.number)
                self._count(closed, opened[index - 1], own.thread, end_ns)
                return

    def _count(self, left: _Open, outer: _Open, thread: int, end_ns: int) -> None:
        costs = self._costs
        recorder_ns = costs.own_ns + left.nested * costs.nested_ns
        length_ns = end_ns - left.start_ns - recorder_ns
        outer.inside_ns += length_ns
        outer.nested += 1 + left.nested
        visit = Visit(thread, left.start_ns, length_ns, left.inside_ns, recorder_ns)
        self._tally.visit(left.node, visit)


class _Names(threading.local):
    """The ranges that a thread has open, and its number."""

    def __init__(self, tally: Tally) -> None:
        self.opened: list[ranges.annotate] = []
        self.thread = tally.thread()
        self.kernels: list[str] = []


class NamedRanges:
    """The ranges that the current thread has open, for a recording that samples launches.

    Entering one costs little: which node of the tally it is, is only asked for when a launch is
    recorded. Their times are not taken.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._own = _Names(tally)

    @property
    def thread(self) -> int:
        """The current thread's number."""
        return self._own.thread

    @property
    def kernels(self) -> list[str]:
        """Kernels whose launches are under way on this thread."""
        return self._own.kernels

    @property
    def innermost(self) -> RangeNode:
        """The range that a launch of this thread belongs to."""
        node = self._tally.root
        for each in self._own.opened:
            node = self._tally.child(node, each.name, each.layer, each.op)
        return node

    def locate(self) -> int:
        """Return the number of the innermost range."""
        return self.innermost.number

    def enter(self, entered: ranges.annotate) -> None:
        """Open a range."""
        self._own.opened.append(entered)

    def leave(self, left: ranges.annotate) -> None:
        """Close a range, if it was opened since the recording began."""
        opened = self._own.opened
        if opened and opened[-1] is left:
            opened.pop()
            return
        for index in range(len(opened) - 2, -1, -1):
            if opened[index] is left:
                del opened[index]
                return
