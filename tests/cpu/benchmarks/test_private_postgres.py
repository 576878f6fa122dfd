"""The PostgreSQL that the service's tests and benchmarks start: its own, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import tempfile

import pytest
from postgres import without_postgres

from launchkit.benchmarks.service import postgres as service_postgres
from launchkit.errors import UsageError


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    """What a statement gives, by a connection of its own."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_what_was_committed_is_there_after_a_crash_and_a_start(postgres, postgres_url) -> None:
    rows(postgres_url, "CREATE TABLE kept (n integer)")
    rows(postgres_url, "INSERT INTO kept VALUES (7)")
    postgres.stop("immediate")
    postgres.start()
    assert rows(postgres_url, "SELECT n FROM kept") == [(7,)]


def test_databases_know_nothing_of_each_other(postgres, postgres_url) -> None:
    rows(postgres_url, "CREATE TABLE own (n integer)")
    other = postgres.create_database()
    assert rows(other, "SELECT count(*) FROM pg_tables WHERE tablename = 'own'") == [(0,)]


@without_postgres
def test_closed_server_leaves_neither_process_nor_file() -> None:
    with service_postgres.PrivatePostgres() as server:
        (number,) = rows(server.create_database(), "SELECT pg_backend_pid()")[0]
        folder = server.folder
        assert folder.exists()
    assert not folder.exists()
    assert not os.path.exists(f"/proc/{number}")


def test_without_the_programs_the_error_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(service_postgres, "programs", lambda: None)
    with pytest.raises(UsageError, match="apt-get install postgresql"):
        service_postgres.PrivatePostgres()


@without_postgres
def test_start_that_fails_says_why_and_leaves_nothing(monkeypatch) -> None:
    # Not in tmp_path, which no other account may enter.
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        monkeypatch.setattr(service_postgres.tempfile, "tempdir", place)
        with pytest.raises(UsageError, match="no_such_setting"):
            service_postgres.PrivatePostgres(no_such_setting="1")
        assert os.listdir(place) == []


@without_postgres
def test_version_is_that_of_the_programs(postgres) -> None:
    program = service_postgres.programs() / "postgres"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert postgres.version.removeprefix("PostgreSQL ") in said
