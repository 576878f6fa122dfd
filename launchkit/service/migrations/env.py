"""What Alembic runs: migrations over the connection that the server gives it. Of the service."""

from __future__ import annotations

from alembic import context

from launchkit.service.tables import metadata


def run() -> None:
    """Run the wanted migrations in the transaction that the caller has begun."""
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=False)
    context.run_migrations()


run()
