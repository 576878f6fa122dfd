"""Writes behind a launch's back: a bounded queue and the thread that empties it. Under store.py."""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Literal, TypeAlias

from launchkit import clock
from launchkit.configs import TunedRecord, merge_records
from launchkit.service.client.bounded_calls import start_thread
from launchkit.store.flights import Identity

_log = logging.getLogger("launchkit")
LIMIT = 1024
"""So many records wait at most; then the oldest is given up."""
IDLE_S = 30.0
"""The thread ends when it has had nothing to do for so long."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

Sent: TypeAlias = Literal["done", "later", "never", "stop"]
"""done: the service has it; later: try again; never: not this one; stop: it takes none of ours."""


class WriteBehind:
    """Records on their way to the service. ``send`` gives one to it; it may take its time.

    ``counters``: ``sent``, ``delayed`` attempts, ``refused`` records, and those ``given-up`` as the
    queue was full. Of one identity at most one record waits, merged of all that were put.
    """

    def __init__(self, send: Callable[[TunedRecord], Sent], limit: int = LIMIT) -> None:
        self.counters: Counter[str] = Counter()
        self._send = send
        self._limit = limit
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Identity, TunedRecord] = OrderedDict()
        self._then: dict[Hashable, Callable[[], None]] = {}
        self._busy = self._started = self._stopped = self._hurries = False
        self._wait_s = FIRST_WAIT_S
        self._not_before_ns = 0

    def put(self, record: TunedRecord) -> bool:
        """Take a record along; False if that gave up another one, or if none is taken any more."""
        with self._changed:
            if self._stopped:
                return False
            self._add(record)
            gave_up = len(self._waiting) > self._limit
            if gave_up:
                self._waiting.popitem(last=False)
                self.counters["given-up"] += 1
            self._wake()
        return not gave_up

    def then(self, what: Hashable, act: Callable[[], None]) -> None:
        """Do something in the background; if ``what`` is an identity, when no record of it waits."""
        with self._changed:
            self._then[what] = act
            self._wake()

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is sent, but only so long; return how much still waits."""
        deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
        with self._changed:
            self._hurries = True
            if self._waiting or self._then:
                self._wake()
            while self._waiting or self._then or self._busy:
                left_s = (deadline_ns - clock.now_ns()) / 1e9
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            self._hurries = False
            return len(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def close(self) -> None:
        """Take and send nothing any more."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._then.clear()
            self._changed.notify_all()

    def _add(self, record: TunedRecord) -> None:
        old = self._waiting.get(record.identity)
        self._waiting[record.identity] = record if old is None else merge_records(old, record)

    def _wake(self) -> None:
        if not self._started:
            self._started = start_thread(self._work, "launchkit-writes")
        self._changed.notify_all()

    def _work(self) -> None:
        while (job := self._wait()) is not None:
            try:
                job()
            except Exception as error:  # noqa: BLE001 - what fails here must not stop the rest
                _log.warning("what a config service was to be told is lost: %r.", error)

    def _wait(self) -> Callable[[], None] | None:
        """Return what to do next; None if there was nothing for long, and the thread is to end."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            while (job := self._next()) is None:
                if not self._changed.wait(self._idle_s()) and not self._waiting and not self._then:
                    self._started = False
                    return None
            self._busy = True
            return job

    def _idle_s(self) -> float:
        if not self._waiting:
            return 0.0 if self._stopped else IDLE_S
        return max(0.0, (self._not_before_ns - clock.now_ns()) / 1e9)

    def _next(self) -> Callable[[], None] | None:
        """Return what to do now, with the lock held."""
        for what in self._then:
            if what not in self._waiting:
                return self._then.pop(what)
        if not self._waiting or not (self._hurries or clock.now_ns() >= self._not_before_ns):
            return None
        _, record = self._waiting.popitem(last=False)
        return lambda: self._deliver(record)

    def _deliver(self, record: TunedRecord) -> None:
        try:
            sent = self._send(record)
        except Exception as error:  # noqa: BLE001 - nor is a record tried for ever that fails so
            name = record.kernel.name
            _log.warning("a record of %s cannot be sent to a config service: %r.", name, error)
            sent = "never"
        with self._changed:
            if sent == "later":
                self._put_back(record)
                return
            self.counters["sent" if sent == "done" else "refused"] += 1
            self._wait_s = FIRST_WAIT_S
            if sent == "stop":
                self.counters["refused"] += len(self._waiting)
                self._stopped = True
                self._waiting.clear()

    def _put_back(self, record: TunedRecord) -> None:
        self.counters["delayed"] += 1
        newer = self._waiting.pop(record.identity, None)
        self._waiting[record.identity] = record if newer is None else merge_records(record, newer)
        self._waiting.move_to_end(record.identity, last=False)
        self._not_before_ns = clock.now_ns() + int(self._wait_s * 1e9)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        if self._hurries:  # not as fast as it can
            self._changed.wait(0.1)
