"""Who may do what: bearer tokens, their scopes and namespaces. Of the service's server.

A token is ``lk_<id>_<secret>``. The database has the sha256 of the secret alone: 256 random bits
need no slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, insert, select, update

from launchkit import clock
from launchkit.errors import UsageError
from launchkit.service import audit, protocol, spaces
from launchkit.service.db import DAY_MS, Database, NowMs
from launchkit.service.options import ServiceSettings
from launchkit.service.protocol import Scope
from launchkit.service.refused import Refused
from launchkit.service.tables import tokens

EVERYWHERE = "*"
REMEMBERED_S = 2.0
"""For so long a replica may take a token as it was: a revoked one works no longer than this."""
_REMEMBERED_LIMIT = 4096
_RANK: dict[str, int] = {"read": 0, "write": 1, "admin": 2}
_FORM = re.compile(r"lk_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_LONGEST_DAYS = 36_500.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and what it may do. ``scope`` None: nothing."""

    name: str
    """For the log and the audit: the token's name and id, never its secret."""
    scope: Scope | None
    namespaces: tuple[str, ...] = (EVERYWHERE,)

    def may(self, scope: Scope, namespace: str | None) -> bool:
        """Tell whether it may do this there; None: in the whole server."""
        if self.scope is None or _RANK[self.scope] < _RANK[scope]:
            return False
        return EVERYWHERE in self.namespaces or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """A token as it is listed, without its secret. Times: ms since 1970, None for never."""

    id: str
    name: str
    scope: Scope
    namespaces: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


def create_token(
    database: Database,
    name: str,
    scope: Scope,
    allowed: Sequence[str] = (EVERYWHERE,),
    expires_days: float | None = None,
    writer: str = "command line",
) -> str:
    """Make a token and return it: it cannot be shown again. Missing namespaces are made.

    Raises UsageError for a name, a namespace or a number of days that cannot be one.
    """
    _check(name, scope, allowed, expires_days)
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    lasts_ms = None if expires_days is None else int(expires_days * DAY_MS)
    with database.writing() as connection:
        for namespace in allowed:
            if namespace != EVERYWHERE:
                spaces.add(database, connection, namespace)
        connection.execute(
            insert(tokens).values(
                id=token_id, hash=_hash(secret), name=name, scope=scope,
                namespaces=",".join(allowed), created_ms=NowMs(),
                expires_ms=None if lasts_ms is None else NowMs() + lasts_ms,
            )
        )  # fmt: skip
        detail = f"{name} ({token_id}) may {scope} in {', '.join(allowed)}"
        audit.log(connection, "create-token", writer, detail=detail)
    return f"lk_{token_id}_{secret}"


def revoke_token(database: Database, token_id: str, writer: str = "command line") -> bool:
    """Revoke a token, given its id or all of it; False: there is none, or none in force."""
    found = _FORM.fullmatch(token_id)
    wanted_id = found[1] if found else token_id
    with database.writing() as connection:
        revoked = update(tokens).where(tokens.c.id == wanted_id, tokens.c.revoked_ms.is_(None))
        if not connection.execute(revoked.values(revoked_ms=NowMs())).rowcount:
            return False
        audit.log(connection, "revoke-token", writer, detail=wanted_id)
        return True


def list_tokens(database: Database) -> list[TokenEntry]:
    """Return every token, the oldest first."""
    with database.reading() as connection:
        rows = connection.execute(select(tokens).order_by(tokens.c.created_ms, tokens.c.id))
        return [_entry(row) for row in rows]


def has_tokens(database: Database) -> bool:
    """Tell whether any token is in force."""
    with database.reading() as connection:
        return connection.execute(_in_force().limit(1)).first() is not None


class Auth:
    """Decides about requests. A replica asks the database once in ``REMEMBERED_S`` per token."""

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self._database = database
        self._settings = settings
        self._lock = threading.Lock()
        self._known: dict[str, tuple[int, Caller]] = {}
        anybody: Scope | None = "read" if settings.open_reads else None
        self._anybody = Caller("nobody", "write" if settings.open_writes else anybody)

    def caller(self, token: str | None) -> Caller:
        """Return who shows this token; without one, what everybody may.

        Raises Refused (unauthenticated) for a token that is not in force.
        """
        if token is None:
            return self._anybody
        found = _FORM.fullmatch(token)
        if found is None:
            raise _unknown()
        # By hash: what a process remembers holds no secret.
        key, now_ns = _hash(token), clock.now_ns()
        with self._lock:
            until_ns, caller = self._known.get(key, (0, self._anybody))
        if until_ns > now_ns:
            return caller
        caller = self._look_up(found[1], found[2])
        self._remember(key, now_ns + int(REMEMBERED_S * 1e9), caller)
        return caller

    def allow(self, caller: Caller, scope: Scope, namespace: str | None = None) -> Caller:
        """Return the caller if it may do this there. Raises Refused otherwise."""
        if caller.may(scope, namespace) or self._anybody.may(scope, namespace):
            return caller
        if caller is self._anybody:
            raise Refused(
                "unauthenticated", f"{scope} needs a token. Send it as Authorization: Bearer …."
            )
        raise Refused(
            "forbidden",
            f"this token does not allow {scope} there. Ask who runs the service for another one.",
        )

    def reads(self, caller: Caller, namespace: str) -> bool:
        """Tell whether the caller may read there."""
        return caller.may("read", namespace) or self._anybody.may("read", namespace)

    def _look_up(self, token_id: str, secret: str) -> Caller:
        with self._database.reading() as connection:
            row = connection.execute(_in_force().where(tokens.c.id == token_id)).first()
        # Compared in any case: an id that is none takes as long.
        stored = row.hash if row is not None else "0" * 64
        if not hmac.compare_digest(stored, _hash(secret)) or row is None:
            raise _unknown()
        entry = _entry(row)
        return Caller(f"{entry.name} ({entry.id})", entry.scope, entry.namespaces)

    def _remember(self, key: str, until_ns: int, caller: Caller) -> None:
        with self._lock:
            if len(self._known) >= _REMEMBERED_LIMIT:
                self._known.clear()
            self._known[key] = (until_ns, caller)


def token_in(authorization: str | None) -> str | None:
    """Return the token in an Authorization header; None where there is no header.

    Raises Refused for another kind of authorization.
    """
    if authorization is None:
        return None
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer":
        raise Refused("unauthenticated", "only Authorization: Bearer … is understood. Send that.")
    return token.strip()


def _in_force() -> Select[Any]:
    lasting = tokens.c.expires_ms.is_(None) | (tokens.c.expires_ms > NowMs())
    return select(tokens).where(tokens.c.revoked_ms.is_(None), lasting)


def _unknown() -> Refused:
    return Refused(
        "unauthenticated",
        "the token is not known here, has expired or was revoked. Ask for a new one.",
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _entry(row: Row[Any]) -> TokenEntry:
    return TokenEntry(
        row.id, row.name, row.scope, tuple(row.namespaces.split(",")),
        row.created_ms, row.expires_ms, row.revoked_ms,
    )  # fmt: skip


def without_secrets(text: str) -> str:
    """Return a text for logs, in which of a token its id alone is left."""
    return _FORM.sub(r"lk_\1_...", text)


def _check(name: str, scope: str, allowed: Iterable[str], days: float | None) -> None:
    if days is not None and not 0 <= days <= _LONGEST_DAYS:
        raise UsageError(f"no token lasts {days:g} days. Give 0 to {_LONGEST_DAYS:g}, or none.")
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise UsageError(f"{name!r} cannot name a token. Give 1 to 100 printable characters.")
    if scope not in _RANK:
        raise UsageError(f"{scope!r} is no scope. Give read, write or admin.")
    bad = [each for each in allowed if each != EVERYWHERE and not protocol.is_namespace(each)]
    if bad or not list(allowed):
        raise UsageError(
            f"{', '.join(bad) or 'nothing'} is no namespace. Use a-z, 0-9, dots, dashes and "
            "underscores, beginning with a letter or digit; or * for all."
        )
