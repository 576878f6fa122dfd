"""What the service does not have, remembered for a while. Under store.py; imports leaves only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from launchkit import clock

LIMIT = 4096
Value = TypeVar("Value")


class ShortMemory(Generic[Value]):
    """At most ``LIMIT`` values, each for ``ttl_s`` seconds; the oldest go first."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_ns = int(ttl_s * 1e9)
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, tuple[int, Value]] = OrderedDict()

    def get(self, key: Hashable) -> Value | None:
        """Return what is remembered, or None."""
        with self._lock:
            until_ns, value = self._values.get(key, (0, None))
            if value is not None and clock.now_ns() >= until_ns:
                del self._values[key]
                return None
            return value

    def remember(self, key: Hashable, value: Value) -> None:
        """Remember a value from now on."""
        with self._lock:
            self._values.pop(key, None)
            self._values[key] = (clock.now_ns() + self._ttl_ns, value)
            while len(self._values) > LIMIT:
                self._values.popitem(last=False)

    def forget(self, key: Hashable) -> None:
        """Forget a value, if it is there."""
        with self._lock:
            self._values.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)
