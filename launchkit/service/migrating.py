"""The database's schema: checked at the start, and brought up to date. Of the service."""

from __future__ import annotations

from importlib import resources

from alembic import command
from alembic.config import Config as AlembicSettings
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from launchkit.errors import StoreError
from launchkit.service import spaces
from launchkit.service.db import Database
from launchkit.service.protocol import DEFAULT_NAMESPACE

_LOCK = 7_240_591_183
"""Of PostgreSQL's advisory locks: replicas that start at once migrate one after another."""


def prepare(database: Database, *, migrate: bool) -> str:
    """Bring the schema up to this version, or only check it; return its version.

    An empty database gets a schema and the default namespace. Raises StoreError for one of a
    newer launchkit, one that is none of launchkit's, and, without ``migrate``, an older one.
    """
    with database.writing() as connection:
        if database.kind == "postgresql":
            # A migration of many records, here or in another replica, takes what it takes.
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
        found, wanted = version(connection), newest_version()
        _refuse_unknown(connection, found)
        if found != wanted:
            if not migrate:
                raise StoreError(
                    f"the database has schema {found or 'none'}, and this launchkit needs "
                    f"{wanted}. Run: launchkit serve migrate."
                )
            command.upgrade(_alembic(connection), "head")
        if not spaces.exists(connection, DEFAULT_NAMESPACE):
            spaces.add(database, connection, DEFAULT_NAMESPACE)
        return wanted


def version(connection: Connection) -> str | None:
    """Return the schema's version, None where there is none."""
    return MigrationContext.configure(connection).get_current_revision()


def newest_version() -> str:
    """Return the version that this launchkit works with."""
    return _scripts().get_current_head() or ""


def _refuse_unknown(connection: Connection, found: str | None) -> None:
    if found is None:
        if "records" in inspect(connection).get_table_names():
            raise StoreError(
                "the database has tables of another program. Give the service one of its own."
            )
    elif found not in {script.revision for script in _scripts().walk_revisions()}:
        raise StoreError(
            f"the database has schema {found}, of a newer launchkit than this one. Upgrade it."
        )


def _alembic(connection: Connection | None = None) -> AlembicSettings:
    found = AlembicSettings()
    folder = str(resources.files("launchkit.service") / "migrations")
    # Alembic reads options as ConfigParser does, where % begins a variable.
    found.set_main_option("script_location", folder.replace("%", "%%"))
    found.attributes["connection"] = connection
    return found


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_alembic())
