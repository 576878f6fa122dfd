"""Single flight across a fleet: a key's lease, and waiting for who has it. Under store.py.

The holder tunes; the others look for its record, and at times whether the lease has become free,
as that of a killed holder does when it expires. All times are durations: no clocks are compared.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
from collections.abc import Callable, Iterator

from launchkit import clock
from launchkit.errors import ServiceError
from launchkit.service import protocol
from launchkit.service.client.bounded_calls import start_thread
from launchkit.service.client.link import Link, read_message
from launchkit.service.client.transport import Answer
from launchkit.service.client.write_behind import WriteBehind
from launchkit.store.flights import Identity, Outcome, identity_digest

_POLLS_PER_ACQUIRE = 4
_END_S = 5.0
_LEAST_POLL_S, _LONGEST_POLL_S = 0.05, 5.0


class Lease:
    """A lease that is ours; a thread renews it until ``end`` or ``let_go``."""

    def __init__(self, link: Link, path: str, token: str, ttl_s: float) -> None:
        self.published = False
        """Whether the service has the record that was tuned under it."""
        self._link, self._path, self._ttl_s = link, path, ttl_s
        self._headers = {protocol.HEADER_LEASE: token}
        self._over = threading.Event()
        start_thread(self._renew, "launchkit-lease")

    def let_go(self) -> None:
        """Renew it no more."""
        self._over.set()

    def end(self) -> None:
        """Give it back: completed, or released for the next one. Should that fail, it expires."""
        self.let_go()
        method, path = ("POST", "/complete") if self.published else ("DELETE", "")
        with contextlib.suppress(ServiceError):
            self._link.ask(
                method,
                f"{self._path}{path}",
                headers=self._headers,
                timeout_s=min(self._ttl_s, _END_S),
            )

    def _renew(self) -> None:
        message = protocol.RenewRequest(ttl_s=self._ttl_s)
        while not self._over.wait(self._ttl_s / 4):
            with contextlib.suppress(ServiceError):
                answer = self._link.send_json(
                    "PUT", self._path, message, headers=self._headers, timeout_s=self._ttl_s / 4
                )
                if answer.status >= 400:  # somebody else has it by now; publishing is harmless
                    return


class FleetFlights:
    """The flights of one store over a service's leases.

    ``look`` asks the service for a record anew, and tells whether a new one has come.
    """

    def __init__(
        self, link: Link, queue: WriteBehind, look: Callable[[Identity], bool], ttl_s: float
    ) -> None:
        self._link, self._queue, self._look, self._ttl_s = link, queue, look, ttl_s
        self._held: dict[Identity, Lease] = {}

    @property
    def patience_s(self) -> float:
        """How long a service may be silent before a launch tunes without it."""
        return 10 * self._link.timeout_s

    @contextlib.contextmanager
    def enter(self, identity: Identity, timeout_s: float) -> Iterator[Outcome]:
        """Hold the lease for a key, or wait until the holder's record has come."""
        outcome, lease = self._enter(identity, timeout_s)
        if lease is not None:
            self._held[identity] = lease
        try:
            yield outcome
        finally:
            if lease is not None:
                lease.let_go()
                self._queue.then(identity, lambda: self._end(identity, lease))

    def published(self, identity: Identity) -> None:
        """Hear that the service has a record."""
        lease = self._held.get(identity)
        if lease is not None:
            lease.published = True

    def _end(self, identity: Identity, lease: Lease) -> None:
        lease.end()
        if self._held.get(identity) is lease:
            del self._held[identity]

    def _enter(self, identity: Identity, timeout_s: float) -> tuple[Outcome, Lease | None]:
        try:
            found = self._acquire(identity, patient=False)
        except ServiceError:
            return "unguarded", None
        if isinstance(found, Lease):
            return self._look_again(identity, found)
        if timeout_s <= 0:
            return "nested", None
        return self._wait(identity, timeout_s, found)

    def _look_again(self, identity: Identity, lease: Lease) -> tuple[Outcome, Lease | None]:
        """Another may have tuned it between our last look and our lease."""
        with contextlib.suppress(ServiceError):
            if self._look(identity):
                return "waited", lease
        return "alone", lease

    def _wait(
        self, identity: Identity, timeout_s: float, held: protocol.LeaseState
    ) -> tuple[Outcome, Lease | None]:
        deadline_ns = clock.now_ns() + int(timeout_s * 1e9)
        heard_ns, polls = clock.now_ns(), 0
        free_ns = _after_ns(held.expires_in_s)
        while (left_s := _left_s(deadline_ns)) > 0:
            _sleep(min(_poll_s(held), left_s))
            polls += 1
            try:
                if self._look(identity):
                    return "waited", None
                if polls % _POLLS_PER_ACQUIRE == 0 or clock.now_ns() >= free_ns:
                    found = self._acquire(identity, patient=True)
                    if isinstance(found, Lease):
                        return "waited", self._look_again(identity, found)[1]
                    held, free_ns = found, _after_ns(found.expires_in_s)
                heard_ns = clock.now_ns()
            except ServiceError:
                if clock.now_ns() - heard_ns > self.patience_s * 1e9:
                    return "unguarded", None
        return "late", None

    def _acquire(self, identity: Identity, *, patient: bool) -> Lease | protocol.LeaseState:
        kernel, _, _, key = identity
        message = protocol.AcquireRequest(
            holder=_plain(f"{socket.gethostname()}:{os.getpid()}", 200),
            ttl_s=self._ttl_s,
            kernel=_plain(kernel.name, 200),
            key=_plain(key.text, 1000),
        )
        path = protocol.lease_path(self._link.address.namespace, identity_digest(identity))
        # A secret of our own: asked again after a lost answer, the service knows us.
        secret = secrets.token_urlsafe(24)
        with self._link.guarded(self._link.leases, patient=patient):
            answer = self._link.send_json(
                "POST",
                path,
                message,
                headers={protocol.HEADER_LEASE: secret},
                timeout_s=self.patience_s,
            )
            return self._acquired(answer, path)

    def _acquired(self, answer: Answer, path: str) -> Lease | protocol.LeaseState:
        if answer.status < 400:
            granted = read_message(answer, protocol.LeaseGranted, self._link.address.text)
            return Lease(self._link, path, granted.token, self._ttl_s)
        told = self._link.told(answer)
        if told is None or told.lease is None:
            raise self._link.refusal(answer, "gives no leases")
        return told.lease


def _plain(text: str, limit: int) -> str:
    return "".join(each if each.isprintable() else " " for each in text)[:limit]


def _poll_s(held: protocol.LeaseState) -> float:
    """Apart from each other, so that a fleet does not ask at one moment."""
    asked_s = min(max(held.retry_after_s, _LEAST_POLL_S), _LONGEST_POLL_S)
    return asked_s * random.uniform(0.7, 1.3)


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)


def _after_ns(seconds: float) -> int:
    return clock.now_ns() + int(min(max(seconds, 0.0), protocol.LEASE_SECONDS[1]) * 1e9)


def _left_s(deadline_ns: int) -> float:
    return (deadline_ns - clock.now_ns()) / 1e9
