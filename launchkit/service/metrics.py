"""What a server counts: for Prometheus in its process, for people in the database. Of the server.

Reads only count in memory; every few seconds the sums go to the database in one transaction. A
server that is killed loses the last seconds of counts, and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import prometheus_client as prometheus
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from sqlalchemy import delete, func, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from launchkit.service import records
from launchkit.service.db import Database, NowMs
from launchkit.service.protocol import MissedFor, WantedRecord
from launchkit.service.records import Stored
from launchkit.service.tables import counters, leases, misses, namespaces, snapshots
from launchkit.service.tables import records as records_table

CONTENT_TYPE = CONTENT_TYPE_LATEST
MISSES_KEPT = 10_000
"""Of so many keys at most a server remembers that they were missed; those long ago go first."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_log = logging.getLogger("launchkit")


@dataclass
class _Counted:
    """What was counted since the last flush."""

    sums: defaultdict[tuple[str, str, str], float] = field(
        default_factory=lambda: defaultdict(float)
    )
    missed: dict[tuple[str, WantedRecord], tuple[str, int]] = field(default_factory=dict)


class Metrics:
    """The counters of one process; every method may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._counted = _Counted()
        self.registry = prometheus.CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self._hits = prometheus.Counter(
            "launchkit_hits", "Records that were found.", ["namespace"], **made
        )
        self._misses = prometheus.Counter(
            "launchkit_misses", "Records that were not, by reason.", ["namespace", "reason"], **made
        )
        self._saved = prometheus.Counter(
            "launchkit_gpu_seconds_saved", "Tuning that hits have saved.", ["namespace"], **made
        )
        self._writes = prometheus.Counter(
            "launchkit_writes", "Records written, by outcome.", ["namespace", "outcome"], **made
        )
        self._leases = prometheus.Counter(
            "launchkit_lease_requests", "By outcome.", ["namespace", "outcome"], **made
        )
        self._latency = prometheus.Histogram(
            "launchkit_request_seconds", "Until the answer began.", ["method", "route", "status"],
            buckets=_SECONDS, **made
        )  # fmt: skip
        self._stored = prometheus.Gauge(
            "launchkit_stored", "What the database holds; the same on every replica.", ["what"],
            **made
        )  # fmt: skip

        self._size = prometheus.Gauge(
            "launchkit_database_bytes", "On disk; the same on every replica.", **made
        )

    def looked_up(
        self, namespace: str, wanted: Sequence[WantedRecord], found: Sequence[Stored | MissedFor]
    ) -> None:
        """Count hits, the tuning that they have saved, and misses by reason."""
        with self._lock:
            for each, answer in zip(wanted, found, strict=True):
                if isinstance(answer, Stored):
                    self._count_hit(namespace, answer)
                else:
                    self._count_miss(namespace, each, answer)

    def wrote(self, namespace: str, outcome: str, count: int = 1) -> None:
        """Count records that were written, by what became of them."""
        if count:
            self._writes.labels(namespace, outcome).inc(count)

    def leased(self, namespace: str, outcome: str) -> None:
        """Count a request for a lease, by what became of it."""
        self._leases.labels(namespace, outcome).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer and its time; ``route`` is a template, not a path."""
        self._latency.labels(method, route, str(status)).observe(seconds)

    def flush(self) -> None:
        """Add all that was counted to the database; sums that cannot be written are kept."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            counted, self._counted = self._counted, _Counted()
        if not counted.sums and not counted.missed:
            return
        try:
            self._write(counted)
        except SQLAlchemyError as error:
            _log.debug("counts were not written: %s", error)
            with self._lock:
                for key, value in counted.sums.items():
                    self._counted.sums[key] += value

    def exposition(self) -> bytes:
        """Return everything as Prometheus reads it; sizes are of this moment."""
        for what, count in sizes(self._database).items():
            self._stored.labels(what).set(count)
        with self._database.reading() as connection:
            self._size.set(self._database.size_bytes(connection))
        return generate_latest(self.registry)

    def _count_hit(self, namespace: str, answer: Stored) -> None:
        self._hits.labels(namespace).inc()
        self._counted.sums[namespace, "hits", ""] += 1
        if answer.tuning_s:
            self._saved.labels(namespace).inc(answer.tuning_s)
            self._counted.sums[namespace, "saved_s", ""] += answer.tuning_s

    def _count_miss(self, namespace: str, wanted: WantedRecord, reason: MissedFor) -> None:
        self._misses.labels(namespace, reason).inc()
        self._counted.sums[namespace, "misses", reason] += 1
        missed, key = self._counted.missed, (namespace, wanted)
        if key in missed or len(missed) < MISSES_KEPT:
            missed[key] = (reason, missed.get(key, ("", 0))[1] + 1)

    def _write(self, counted: _Counted) -> None:
        with self._database.writing() as connection:
            known = set(connection.execute(select(namespaces.c.name)).scalars())
            # In one order for all replicas, so that none waits for another that waits for it.
            for (namespace, name, label), value in sorted(counted.sums.items()):
                if namespace in known:
                    self._add(connection, counters, {"namespace": namespace, "name": name,
                              "label": label}, {"value": value})  # fmt: skip
            rows = [
                (records.place(namespace, w.kernel, w.digest, w.device, w.key_hash), namespace, w)
                for namespace, w in counted.missed
                if namespace in known
            ]
            tuned = _tuned_meanwhile(connection, [place for place, _, _ in rows])
            for place, namespace, w in sorted(rows, key=lambda row: (row[0], row[2].toolchain)):
                if (place, w.toolchain) in tuned:
                    continue
                reason, count = counted.missed[namespace, w]
                self._add(
                    connection, misses, {"place": place, "toolchain": w.toolchain},
                    {"count": count}, {"last_ms": NowMs(), "reason": reason},
                    {"namespace": namespace, "kernel": w.kernel, "digest": w.digest,
                     "device": w.device, "key_hash": w.key_hash},
                )  # fmt: skip

    def _add(
        self,
        connection: Connection,
        table: Any,
        key: dict[str, Any],
        sums: dict[str, float],
        replaced: dict[str, Any] | None = None,
        fixed: dict[str, Any] | None = None,
    ) -> None:
        replaced = replaced or {}
        insert = self._database.insert(table).values(**key, **sums, **replaced, **(fixed or {}))
        added = {name: table.c[name] + value for name, value in sums.items()}
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[table.c[name] for name in key], set_={**added, **replaced}
            )
        )


def _tuned_meanwhile(connection: Connection, places: Sequence[str]) -> set[tuple[str, str]]:
    """Return (place, toolchain) of what was missed and is stored by now."""
    found: set[tuple[str, str]] = set()
    columns = (records_table.c.place, records_table.c.toolchain)
    for start in range(0, len(places), 500):
        some = records_table.c.place.in_(places[start : start + 500])
        rows = connection.execute(select(*columns).where(some))
        found |= {(row.place, row.toolchain) for row in rows}
    return found


def sizes(database: Database) -> dict[str, int]:
    """Return how much the database holds: namespaces, records, leases in force, snapshots."""
    with database.reading() as connection:
        live = select(func.count()).select_from(leases).where(leases.c.expires_ms > NowMs())
        counted = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (namespaces, records_table, snapshots)
        }
        return {**counted, "leases": connection.execute(live).scalar_one()}


def forget_misses(database: Database, keep: int = MISSES_KEPT) -> int:
    """Delete what is known of keys missed longest ago, but for ``keep`` a namespace."""
    deleted = 0
    with database.writing() as connection:
        for namespace in connection.execute(select(namespaces.c.name)).scalars().all():
            newest = (
                select(misses.c.last_ms)
                .where(misses.c.namespace == namespace)
                .order_by(misses.c.last_ms.desc())
                .offset(keep)
                .limit(1)
            )
            oldest_ms = connection.execute(newest).scalar()
            if oldest_ms is not None:
                where = (misses.c.namespace == namespace, misses.c.last_ms <= oldest_ms)
                deleted += connection.execute(delete(misses).where(*where)).rowcount
    return deleted
