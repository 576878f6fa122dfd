"""What is deleted when it is old: only where somebody asks for it. Of the service's server."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Table, delete, func, select

from launchkit.service import audit
from launchkit.service.db import DAY_MS, Database, NowMs
from launchkit.service.tables import audit as audit_table
from launchkit.service.tables import records, snapshots


@dataclass(frozen=True, slots=True)
class Ages:
    """How many days what is kept; None: for ever."""

    records: int | None = None
    """Since somebody last added results to a record."""
    snapshots: int | None = None
    audit: int | None = None


def prune(database: Database, ages: Ages, *, dry_run: bool, writer: str) -> dict[str, int]:
    """Delete what is older, in one transaction; return how many of what were or would be."""
    wanted: list[tuple[str, Table, ColumnElement[int], int | None]] = [
        ("records", records, records.c.updated_ms, ages.records),
        ("snapshots", snapshots, snapshots.c.created_ms, ages.snapshots),
        ("audit", audit_table, audit_table.c.at_ms, ages.audit),
    ]
    counts = {}
    with database.writing() as connection:
        for name, table, time_ms, days in wanted:
            if days is None:
                continue
            old = time_ms < NowMs() - days * DAY_MS
            found = connection.execute(select(func.count()).select_from(table).where(old))
            counts[name] = found.scalar_one()
            if counts[name] and not dry_run:
                connection.execute(delete(table).where(old))
                audit.log(connection, "prune", writer, detail=f"{counts[name]} {name}")
    return counts
