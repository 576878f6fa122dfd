"""The only source of time. A leaf; tests replace ``now_ns`` and ``utc_now`` here."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

now_ns = time.perf_counter_ns


def utc_now() -> datetime.datetime:
    """Return the current time in UTC, for file names and reports."""
    return datetime.datetime.now(datetime.timezone.utc)


def utc_ns() -> int:
    """Return the UTC time in ns since 1970."""
    return time.time_ns()


def utc_text() -> str:
    """Return the current time as records and documents hold it: ``2026-01-31T23:59:59Z``."""
    return f"{utc_now():%Y-%m-%dT%H:%M:%SZ}"


class TickRate:
    """How long a tick of a counter takes, measured against ``now_ns``.

    It is first measured over two milliseconds, twice, and with each later question over all the
    time since. ``is_even`` tells whether the first two agreed within one part in a thousand: a
    counter that does not run evenly (a virtual machine that was moved) is no clock.
    """

    FIRST_NS = 2_000_000
    AGREEMENT = 1e-3

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._start = self._pair()
        middle = self._wait(self._start)
        rates = [_rate(self._start, middle), _rate(middle, self._wait(middle))]
        self.is_even = min(rates) > 0 and max(rates) - min(rates) <= self.AGREEMENT * max(rates)

    def ns_per_tick(self) -> float:
        """Return the ns of one tick, as the mean since the first measurement."""
        return _rate(self._start, self._pair())

    def moment(self) -> tuple[int, int]:
        """Return the time in ns and the counter, of one moment."""
        return self._pair()

    def _wait(self, since: tuple[int, int]) -> tuple[int, int]:
        while now_ns() - since[0] < self.FIRST_NS:
            pass
        return self._pair()

    def _pair(self) -> tuple[int, int]:
        """Return the time and the counter of one moment: of several tries the tightest."""
        tries = []
        for _ in range(9):
            before_ns = now_ns()
            ticks = self._read()
            after_ns = now_ns()
            tries.append((after_ns - before_ns, (before_ns + after_ns) // 2, ticks))
        _, moment_ns, ticks = min(tries)
        return moment_ns, ticks


def _rate(earlier: tuple[int, int], later: tuple[int, int]) -> float:
    ticks = later[1] - earlier[1]
    return (later[0] - earlier[0]) / ticks if ticks > 0 else 0.0
