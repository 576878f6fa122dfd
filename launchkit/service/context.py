"""What every request of a server needs at hand. Of the service's server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from fastapi import Request

from launchkit import clock
from launchkit.service import audit, leases, metrics
from launchkit.service.auth import Auth, Caller, token_in
from launchkit.service.db import Database
from launchkit.service.limits import RateLimit
from launchkit.service.metrics import Metrics
from launchkit.service.options import ServiceSettings
from launchkit.service.protocol import Scope
from launchkit.service.refused import Refused

_log = logging.getLogger("launchkit")
_UPKEEP_EVERY_S = 600.0


class Service:
    """One server process: its database, its callers and its counters."""

    def __init__(self, settings: ServiceSettings, database: Database, schema: str) -> None:
        self.settings = settings
        self.database = database
        self.schema = schema
        self.auth = Auth(database, settings)
        self.metrics = Metrics(database)
        self.started_ns = clock.now_ns()
        self._requests = RateLimit(settings.rate_per_s)
        self._writes = RateLimit(settings.writes_per_s)
        self._guesses = RateLimit(settings.guesses_per_s)
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="launchkit-upkeep", daemon=True)

    def admit(self, request: Request, scope: Scope, namespace: str | None = None) -> Caller:
        """Return who makes the request, if it may and not too often. Raises Refused otherwise."""
        caller, subject = self._known(request, shown(request))
        return self._allow(caller, subject, scope, namespace)

    def admit_page(
        self, request: Request, token: str | None, scope: Scope, namespace: str | None
    ) -> Caller:
        """Do the same for a page, whose token is in a cookie."""
        caller, subject = self._known(request, token)
        return self._allow(caller, subject, scope, namespace)

    def visitor(self, request: Request, token: str | None) -> Caller:
        """Return who shows this token, if not too often; what it may do is not decided yet."""
        return self._known(request, token)[0]

    def admit_somewhere(self, request: Request) -> Caller:
        """Return who makes the request, if there is any namespace that it may read."""
        caller, _ = self._known(request, shown(request))
        return self.auth.allow(caller, "read", (*caller.namespaces, None)[0])

    def refuse_upload(self, address: str, authorization: str | None) -> None:
        """Raise Refused for who may write nowhere, before an upload of theirs is read."""
        caller = self._caller(token_in(authorization), address)
        self.auth.allow(caller, "write", caller.namespaces[0])

    def start(self) -> None:
        """Begin to write counts to the database, and to clean it up."""
        self._keeper.start()

    def close(self) -> None:
        """Write what was counted, and let go of the database."""
        self._stop.set()
        if self._keeper.is_alive():
            self._keeper.join(timeout=5.0)
        self.metrics.flush()
        self.database.close()

    def _allow(self, caller: Caller, subject: str, scope: Scope, namespace: str | None) -> Caller:
        if scope != "read":
            self._writes.spend(subject)
        return self.auth.allow(caller, scope, namespace)

    def _known(self, request: Request, token: str | None) -> tuple[Caller, str]:
        """Return the caller and in whose name its requests are counted."""
        address = request.client.host if request.client is not None else ""
        caller = self._caller(token, address)
        request.scope["launchkit_caller"] = caller.name
        subject = address if token is None else caller.name
        self._requests.spend(subject)
        return caller, subject

    def _caller(self, token: str | None, address: str) -> Caller:
        if token is None:
            return self.auth.caller(None)
        try:
            return self.auth.caller(token)
        except Refused:
            # Guessing is slowed down; who has a token never pays for it, nor for a database that
            # cannot tell.
            self._guesses.spend(address)
            raise

    def _keep(self) -> None:
        until_upkeep_s = 0.0
        while not self._stop.wait(self.settings.flush_s):
            _quietly(self.metrics.flush)
            until_upkeep_s -= self.settings.flush_s
            if until_upkeep_s <= 0:
                until_upkeep_s = _UPKEEP_EVERY_S
                _quietly(self._clean_up)

    def _clean_up(self) -> None:
        leases.sweep(self.database)
        metrics.forget_misses(self.database)
        if self.settings.audit_days > 0:
            audit.forget(self.database, self.settings.audit_days)


def shown(request: Request) -> str | None:
    """Return the token that a request shows in its header. Raises Refused for what is none."""
    return token_in(request.headers.get("authorization"))


def service(request: Request) -> Service:
    """Return the service that a request has come to."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


def _quietly(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - the thread goes on, whatever it was
        _log.warning("upkeep failed: %s. It is tried again.", getattr(error, "orig", error))
