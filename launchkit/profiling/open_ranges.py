"""Which ranges each thread has open while launches are recorded. A leaf."""

from __future__ import annotations

import threading
from collections.abc import Callable

from launchkit.profiling import ranges
from launchkit.profiling.tally import RangeNode, Tally


class OpenRanges(threading.local):
    """The ranges that the current thread has open, innermost last.

    ``changed`` is called on a thread whose innermost range is another one now.
    """

    def __init__(self, tally: Tally, changed: Callable[[int], object] | None = None) -> None:
        self._tally = tally
        self._changed = changed
        self.stack: list[tuple[ranges.annotate | None, RangeNode]] = [(None, tally.root)]
        self.thread = tally.thread()
        self.kernels: list[str] = []
        """Kernels whose launches are under way on this thread."""

    @property
    def innermost(self) -> RangeNode:
        """The range that a launch of this thread belongs to."""
        return self.stack[-1][1]

    def enter(self, entered: ranges.annotate) -> None:
        """Open a range."""
        node = self._tally.child(self.innermost, entered.name, entered.layer)
        self.stack.append((entered, node))
        if self._changed is not None:
            self._changed(node.number)

    def leave(self, left: ranges.annotate) -> None:
        """Close a range, if it was opened since the recording began."""
        stack = self.stack
        # Not always the last one: ranges held open over an await cross each other.
        for index in range(len(stack) - 1, 0, -1):
            if stack[index][0] is left:
                del stack[index]
                if self._changed is not None:
                    self._changed(self.innermost.number)
                return
