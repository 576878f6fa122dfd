"""Fixtures: a private PostgreSQL for the whole run of the tests, and a new database in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from launchkit.benchmarks.service import postgres as service_postgres

without_postgres = pytest.mark.skipif(
    service_postgres.programs() is None, reason="PostgreSQL is not installed"
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[service_postgres.PrivatePostgres]:
    """A running server. Whoever stops it starts it again, before its test ends."""
    if service_postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with service_postgres.PrivatePostgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: service_postgres.PrivatePostgres) -> Iterator[str]:
    """SQLAlchemy's URL of a new, empty database."""
    with contextlib.ExitStack() as stack:
        stack.callback(postgres.start)
        yield postgres.create_database()
