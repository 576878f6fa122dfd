"""The database's versions, as Alembic runs them. Of the service."""
