"""What people ask about a namespace's life: counts, misses, leases, writers. Of the server.

Reads only; every list has an end. Times are ms since 1970 by the database's clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from launchkit.service.db import NowMs
from launchkit.service.tables import audit, counters, leases, misses, records, snapshots

LISTED = 200
"""No list has more rows."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a namespace holds, and what was asked of it since it was made."""

    records: int
    leases: int
    snapshots: int
    hits: float
    misses: dict[str, float]
    """By reason."""
    saved_s: float
    """Tuning that hits have saved."""

    @property
    def missed(self) -> float:
        """All misses."""
        return sum(self.misses.values())

    @property
    def hit_share(self) -> float | None:
        """Hits ÷ lookups; None before the first."""
        looked_up = self.hits + self.missed
        return self.hits / looked_up if looked_up else None


@dataclass(frozen=True, slots=True)
class MissRow:
    """A key that was asked for and not found."""

    kernel: str
    digest: str
    device: str
    key_hash: str
    toolchain: str
    reason: str
    count: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """A lease: who tunes which key, and for how long it is theirs."""

    identity: str
    holder: str
    kernel: str
    key_text: str
    writer: str
    acquired_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry of the audit log; the fields are the columns of the table."""

    id: int
    at_ms: int
    action: str
    writer: str
    kernel_name: str
    device: str
    key_hash: str
    key_text: str
    toolchain: str
    etag_before: str | None
    etag_after: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class SnapshotRow:
    """One snapshot; the fields are the columns of the table."""

    digest: str
    records: int
    size_bytes: int
    writer: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class Entries:
    """Which entries of the audit log: all that fit what is not empty; ``before``: older than."""

    writer: str = ""
    kernel: str = ""
    action: str = ""
    key_hash: str = ""
    before: int = 0


def counts(connection: Connection, namespace: str) -> Counts:
    """Return the sums of a namespace."""
    held = {
        table.name: connection.execute(
            select(func.count()).select_from(table).where(table.c.namespace == namespace)
        ).scalar_one()
        for table in (records, snapshots)
    }
    live = select(func.count()).select_from(leases).where(leases.c.namespace == namespace)
    in_force = connection.execute(live.where(leases.c.expires_ms > NowMs())).scalar_one()
    query = select(counters.c.name, counters.c.label, counters.c.value)
    rows = connection.execute(query.where(counters.c.namespace == namespace)).all()
    sums = {row.name: row.value for row in rows if row.name != "misses"}
    missed = {row.label: row.value for row in rows if row.name == "misses"}
    hits, saved_s = sums.get("hits", 0.0), sums.get("saved_s", 0.0)
    return Counts(held["records"], in_force, held["snapshots"], hits, missed, saved_s)


def missed_most(connection: Connection, namespace: str) -> list[MissRow]:
    """Return the keys that are missed most, ``LISTED`` at most."""
    columns = [misses.c[name] for name in MissRow.__dataclass_fields__]
    query = select(*columns).where(misses.c.namespace == namespace)
    ordered = query.order_by(misses.c.count.desc(), misses.c.last_ms.desc(), misses.c.place)
    return [MissRow(*row) for row in connection.execute(ordered.limit(LISTED))]


def held_leases(connection: Connection, namespace: str) -> list[LeaseRow]:
    """Return leases, those in force first and the newest of them first, ``LISTED`` at most."""
    columns = [leases.c[name] for name in LeaseRow.__dataclass_fields__]
    query = select(*columns).where(leases.c.namespace == namespace)
    ordered = query.order_by(leases.c.expires_ms.desc(), leases.c.identity)
    return [LeaseRow(*row) for row in connection.execute(ordered.limit(LISTED))]


def entries(
    connection: Connection, namespace: str, wanted: Entries, rows: int = 100
) -> tuple[list[AuditRow], bool]:
    """Return entries of the audit log, the newest first, and whether there are older ones."""
    exact = (
        (audit.c.writer, wanted.writer),
        (audit.c.kernel_name, wanted.kernel),
        (audit.c.action, wanted.action),
        (audit.c.key_hash, wanted.key_hash),
    )
    where = [column == text for column, text in exact if text]
    if wanted.before:
        where.append(audit.c.id < wanted.before)
    columns = [audit.c[name] for name in AuditRow.__dataclass_fields__]
    query = select(*columns).where(audit.c.namespace == namespace, *where)
    found = connection.execute(query.order_by(audit.c.id.desc()).limit(rows + 1)).all()
    return [AuditRow(*row) for row in found[:rows]], len(found) > rows


def taken(connection: Connection, namespace: str) -> list[SnapshotRow]:
    """Return the namespace's snapshots, the newest first, ``LISTED`` at most."""
    columns = [snapshots.c[name] for name in SnapshotRow.__dataclass_fields__]
    query = select(*columns).where(snapshots.c.namespace == namespace)
    ordered = query.order_by(snapshots.c.created_ms.desc(), snapshots.c.digest)
    return [SnapshotRow(*row) for row in connection.execute(ordered.limit(LISTED))]
