"""Leases: of all the fleet, one at a time tunes a key. Of the service's server.

One statement takes a free or expired lease, and the database decides by its own clock; so replicas
need not know of each other. A holder that was killed loses its lease when it expires. What a late
one publishes is merged all the same, and harms nobody.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, delete, or_, select, update
from sqlalchemy.engine import Connection

from launchkit.service import audit, spaces
from launchkit.service.db import Database, NowMs
from launchkit.service.protocol import LEASE_SECONDS, AcquireRequest, LeaseGranted, LeaseState
from launchkit.service.refused import Refused
from launchkit.service.tables import leases

_KEPT_MS = 3_600_000
"""For so long people see that a lease has expired."""
_ASK_AGAIN_S = (0.2, 2.0)
_LONGEST_MS = int(LEASE_SECONDS[1] * 1000)


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """Which lease: of a namespace, for the record of an identity."""

    namespace: str
    identity: str


def acquire(
    database: Database,
    connection: Connection,
    lease: LeaseKey,
    asked: AcquireRequest,
    writer: str,
    secret: str | None,
) -> LeaseGranted:
    """Give a free or expired lease to the asker, or its own again to who shows its ``secret``.

    So a holder whose answer was lost asks once more. Raises Refused (lease-held) with the state.
    """
    spaces.require(connection, lease.namespace)
    token = secret or secrets.token_urlsafe(24)
    row: dict[str, Any] = {
        "holder": asked.holder,
        "token_hash": _hash(token),
        "kernel": asked.kernel,
        "key_text": asked.key,
        "writer": audit.plain(writer, 120),
        "acquired_ms": NowMs(),
        "expires_ms": NowMs() + int(asked.ttl_s * 1000),
    }
    where = or_(
        leases.c.expires_ms <= NowMs(),
        # None is for so long: the database's clock was put back.
        leases.c.expires_ms > NowMs() + _LONGEST_MS,
        leases.c.token_hash == row["token_hash"],
    )
    taking = database.insert(leases).values(
        namespace=lease.namespace, identity=lease.identity, **row
    )
    taking = taking.on_conflict_do_update(
        index_elements=[leases.c.namespace, leases.c.identity], set_=row, where=where
    )
    if connection.execute(taking).rowcount:
        return LeaseGranted(token=token, expires_in_s=asked.ttl_s)
    raise _held(connection, lease)


def renew(connection: Connection, lease: LeaseKey, secret: str, ttl_s: float) -> LeaseGranted:
    """Keep a lease for so long from now; an expired one too, while nobody has taken it.

    Raises Refused (lease-lost).
    """
    renewed = update(leases).where(_own(lease, secret))
    if not connection.execute(renewed.values(expires_ms=NowMs() + int(ttl_s * 1000))).rowcount:
        raise _lost()
    return LeaseGranted(token=secret, expires_in_s=ttl_s)


def end(connection: Connection, lease: LeaseKey, secret: str) -> None:
    """Give a lease back. Raises Refused (lease-lost) where it is not the asker's any more."""
    if not connection.execute(delete(leases).where(_own(lease, secret))).rowcount:
        raise _lost()


def take_away(connection: Connection, lease: LeaseKey) -> bool:
    """End a lease whoever holds it; False: there is none."""
    of_anybody = and_(leases.c.namespace == lease.namespace, leases.c.identity == lease.identity)
    return bool(connection.execute(delete(leases).where(of_anybody)).rowcount)


def sweep(database: Database) -> int:
    """Delete leases that expired an hour ago or earlier; return how many."""
    with database.writing() as connection:
        expired = delete(leases).where(leases.c.expires_ms < NowMs() - _KEPT_MS)
        return connection.execute(expired).rowcount


def _held(connection: Connection, lease: LeaseKey) -> Refused:
    query = select(leases.c.holder, (leases.c.expires_ms - NowMs()).label("left_ms")).where(
        leases.c.namespace == lease.namespace, leases.c.identity == lease.identity
    )
    row = connection.execute(query).first()
    # It may be free by now: then it is worth asking at once.
    left_s = 0.0 if row is None else max(0.0, row.left_ms / 1000)
    again_s = min(max(_ASK_AGAIN_S[0], left_s / 20), _ASK_AGAIN_S[1])
    holder = "" if row is None else row.holder
    state = LeaseState(holder=holder, expires_in_s=left_s, retry_after_s=again_s)
    return Refused(
        "lease-held",
        f"{holder or 'another'} tunes this key. Look for its record, or ask again.",
        lease=state,
    )


def _own(lease: LeaseKey, secret: str) -> Any:
    return and_(
        leases.c.namespace == lease.namespace,
        leases.c.identity == lease.identity,
        leases.c.token_hash == _hash(secret),
    )


def _lost() -> Refused:
    return Refused(
        "lease-lost",
        "the lease is another's by now, or has ended. Publish the record all the same.",
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
