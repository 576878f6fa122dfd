"""Every visit of a range with its times and thread, for a sampled process. Above ranges.

Needs no dispatcher, so that a program without Triton can be sampled by range.
"""

from __future__ import annotations

import threading
from array import array
from typing import Any

from launchkit import clock
from launchkit.profiling.ranges import annotate

MOST_VISITS = 1 << 21


class RangeLog:
    """``enter`` and ``leave`` note visits of the calling thread; ``members`` returns them.

    At most ``most`` visits are kept; ``lost`` counts the others.
    """

    def __init__(self, most: int = MOST_VISITS) -> None:
        self.lost = 0
        self._most = most
        self._lock = threading.Lock()
        self._names: dict[tuple[str, int | None, str | None], int] = {}
        self._threads: list[_Thread] = []
        self._own = threading.local()

    def enter(self, entered: annotate) -> None:
        """Note that this thread entered a range."""
        thread = self._thread()
        key = (entered.name, entered.layer, entered.op)
        number = self._names.get(key)
        if number is None:
            with self._lock:
                number = self._names.setdefault(key, len(self._names))
        thread.open.append((number, clock.now_ns()))

    def leave(self, _: annotate) -> None:
        """Note that this thread left the innermost range; one entered before the log is ignored."""
        end_ns = clock.now_ns()
        thread = self._thread()
        if not thread.open:
            return
        number, start_ns = thread.open.pop()
        if len(thread.names) >= self._most:
            self.lost += 1
            return
        thread.names.append(number)
        thread.starts_ns.append(start_ns)
        thread.ends_ns.append(end_ns)

    def _thread(self) -> _Thread:
        found: _Thread | None = getattr(self._own, "thread", None)
        if found is None:
            found = self._own.thread = _Thread()
            with self._lock:
                self._threads.append(found)
        return found

    def members(self) -> dict[str, Any]:
        """Return the visits so far as JSON types; a range that is open ends now."""
        now_ns = clock.now_ns()
        threads = [thread.members(now_ns) for thread in list(self._threads)]
        listed = [{"name": name, "layer": layer, "op": op} for name, layer, op in self._names]
        return {"names": listed, "threads": threads, "lost": self.lost}


class _Thread:
    """The visits of one thread."""

    def __init__(self) -> None:
        current = threading.current_thread()
        self.ident, self.native_id = threading.get_ident(), threading.get_native_id()
        self.name, self.since_ns = current.name, clock.now_ns()
        self.open: list[tuple[int, int]] = []
        self.names, self.starts_ns, self.ends_ns = array("L"), array("q"), array("q")

    def members(self, now_ns: int) -> dict[str, Any]:
        still = list(self.open)
        return {
            "ident": self.ident,
            "native_id": self.native_id,
            "name": self.name,
            "since_ns": self.since_ns,
            "range": [*self.names, *(number for number, _ in still)],
            "start_ns": [*self.starts_ns, *(start_ns for _, start_ns in still)],
            "end_ns": [*self.ends_ns, *(now_ns for _ in still)],
        }
