"""What a store tells of itself: what it counts, and each kind of trouble once. Under store.py."""

from __future__ import annotations

import logging
import threading
from collections import Counter

_log = logging.getLogger("launchkit")


class Telling:
    """``counters``, ``warnings`` among them; every method may be called from any thread."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    def count(self, what: str) -> None:
        """Count something."""
        with self._lock:
            self.counters[what] += 1

    def warn(self, cause: str, message: str) -> None:
        """Log a warning, the first of its cause."""
        with self._lock:
            first = cause not in self._warned
            self.counters["warnings"] += first
            self._warned.add(cause)
        if first:
            # It may quote what a service said: one line, without control characters.
            _log.warning("%s", "".join(c if c.isprintable() else "?" for c in message))
