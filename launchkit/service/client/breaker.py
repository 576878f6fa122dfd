"""The circuit breaker: a service that does not answer is not asked for a while. Under link.py."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from launchkit import clock
from launchkit.service.client.bounded_calls import start_thread

FAILURES = 3
"""So many failures in a row open the circuit."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""How long it stays open at first, and at most: each time twice as long."""


class CircuitBreaker:
    """Closed while the service answers; open for a while after several failures in a row.

    An open circuit costs a caller nothing. When its time is up the next caller starts ``probe``
    in the background; if that returns True, one more failure opens the circuit again, and an
    answer makes all well.
    """

    def __init__(self, probe: Callable[[], bool]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._failures = 0
        self._wait_s = FIRST_WAIT_S
        self._open_until_ns: int | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether the service is not to be asked now. May start a probe."""
        with self._lock:
            if self._open_until_ns is None:
                return False
            due = clock.now_ns() >= self._open_until_ns and not self._probing
            self._probing = self._probing or due
        if due and not start_thread(self._try, "launchkit-probe"):
            with self._lock:
                self._probing = False
        return True

    def succeeded(self) -> None:
        """Hear of an answer."""
        with self._lock:
            self._failures, self._wait_s, self._open_until_ns = 0, FIRST_WAIT_S, None

    def failed(self, wait_s: float | None = None) -> bool:
        """Hear of a failure; ``wait_s``: the service said when to come back, which opens at once.

        True if this opened the circuit.
        """
        with self._lock:
            self._failures += 1
            if wait_s is None and self._failures < FAILURES:
                return False
            opened = self._open_until_ns is None
            self._open(wait_s)
            return opened

    def _open(self, wait_s: float | None = None) -> None:
        """Apart from each other, so that a fleet does not come back at one moment."""
        if wait_s is None:
            wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_WAIT_S)
        wait_s = min(max(wait_s, 0.0), LONGEST_WAIT_S) * random.uniform(1.0, 1.25)
        self._open_until_ns = clock.now_ns() + int(wait_s * 1e9)

    def _try(self) -> None:
        alive = False
        try:
            alive = self._probe()
        finally:
            with self._lock:
                self._probing = False
                if self._open_until_ns is not None and alive:
                    self._open_until_ns, self._failures = None, FAILURES - 1
                elif self._open_until_ns is not None:
                    self._open()
