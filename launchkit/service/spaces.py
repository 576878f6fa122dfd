"""Namespaces: made, required and listed. Of the service's server."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from launchkit.errors import UsageError
from launchkit.service import audit, protocol
from launchkit.service.db import Database, NowMs
from launchkit.service.refused import Refused
from launchkit.service.tables import namespaces, records


def make(database: Database, name: str, writer: str) -> bool:
    """Make a namespace; False: there is one of this name. Raises UsageError for a bad name."""
    if not protocol.is_namespace(name):
        raise UsageError(
            f"{name!r} is no namespace. Use a-z, 0-9, dots, dashes and underscores, at most 63, "
            "beginning with a letter or digit."
        )
    with database.writing() as connection:
        new = add(database, connection, name)
        if new:
            audit.log(connection, "make-namespace", writer, name)
    return new


def add(database: Database, connection: Connection, name: str) -> bool:
    """Make a namespace in the caller's transaction; False: there is one of this name."""
    row = {"name": name, "created_ms": NowMs()}
    made = database.insert(namespaces).values(**row).on_conflict_do_nothing()
    return bool(connection.execute(made).rowcount)


def require(connection: Connection, name: str) -> None:
    """Raise Refused where there is no such namespace."""
    if not exists(connection, name):
        raise Refused(
            "no-namespace",
            f"there is no namespace {name}. Make it: launchkit serve namespace create.",
        )


def exists(connection: Connection, name: str) -> bool:
    """Tell whether there is a namespace of this name."""
    known = select(namespaces.c.name).where(namespaces.c.name == name)
    return connection.execute(known).first() is not None


def counted(database: Database) -> list[tuple[str, int]]:
    """Return every namespace and how many records it has, sorted by name."""
    stored = select(records.c.namespace, func.count().label("stored"))
    stored_by = stored.group_by(records.c.namespace).subquery()
    query = select(namespaces.c.name, func.coalesce(stored_by.c.stored, 0).label("stored"))
    joined = query.outerjoin(stored_by, stored_by.c.namespace == namespaces.c.name)
    with database.reading() as connection:
        rows = connection.execute(joined.order_by(namespaces.c.name))
        return [(row.name, row.stored) for row in rows]
