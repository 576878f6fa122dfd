"""The service's database: its schema and versions, and what happens when it fails."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from serving import serving
from sqlalchemy import event, text
from stored import RECORD, record_for

from launchkit.errors import StoreError, UsageError
from launchkit.service import db, migrating
from launchkit.service.options import ServiceSettings
from launchkit.service.tables import metadata
from launchkit.store import bundle


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    return request.getfixturevalue("postgres_url")


@contextlib.contextmanager
def connected(url):
    database = db.connect(ServiceSettings(url, threads=2, database_timeout_s=2.0))
    try:
        yield database
    finally:
        database.close()


def set_version(database, version):
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": version})


def test_migrations_make_the_tables_that_the_code_uses(url):
    with connected(url) as database:
        assert migrating.prepare(database, migrate=True) == migrating.newest_version()
        with database.reading() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []


def test_a_database_that_is_current_is_only_checked(url):
    with connected(url) as database:
        with pytest.raises(StoreError, match="launchkit serve migrate"):
            migrating.prepare(database, migrate=False)
        migrating.prepare(database, migrate=True)
        assert migrating.prepare(database, migrate=False) == migrating.newest_version()
        with database.reading() as connection:
            assert connection.execute(text("SELECT name FROM namespaces")).scalars().all() == [
                "default"
            ]


def test_replicas_that_start_at_once_make_one_schema(url):
    def prepare(_):
        with connected(url) as database:
            return migrating.prepare(database, migrate=True)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(prepare, range(4))) == [migrating.newest_version()] * 4
    with connected(url) as database, database.reading() as connection:
        assert connection.execute(text("SELECT name FROM namespaces")).scalars().all() == [
            "default"
        ]


def test_a_failed_migration_leaves_nothing_behind(url, monkeypatch):
    def fails(*given):
        raise RuntimeError("in the middle")

    with connected(url) as database:
        monkeypatch.setattr(migrating.spaces, "add", fails)
        with pytest.raises(RuntimeError, match="in the middle"):
            migrating.prepare(database, migrate=True)
        with database.reading() as connection:
            assert migrating.version(connection) is None
        monkeypatch.undo()
        assert migrating.prepare(database, migrate=True) == migrating.newest_version()


def test_a_database_of_a_newer_launchkit_is_refused(url):
    with connected(url) as database:
        migrating.prepare(database, migrate=True)
        set_version(database, "9999")
        with pytest.raises(StoreError, match="newer launchkit"):
            migrating.prepare(database, migrate=True)


def test_a_database_of_another_program_is_refused(url):
    with connected(url) as database:
        with database.writing() as connection:
            connection.execute(text("CREATE TABLE records (n integer)"))
        with pytest.raises(StoreError, match="another program"):
            migrating.prepare(database, migrate=True)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "mysql://host/x", "sqlite://", "sqlite:///:memory:"]
)
def test_a_url_that_cannot_be_served_is_refused(text):
    with pytest.raises(UsageError):
        db.connect(ServiceSettings(text))


def test_the_time_is_the_databases_own(url):
    with connected(url) as database, database.reading() as connection:
        first = database.now_ms(connection)
        assert 1.6e12 < first < 1e13
        assert database.now_ms(connection) >= first


def test_a_server_whose_database_was_migrated_by_a_newer_one_is_not_ready(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}") as served:
        assert served.http.get("/readyz").status_code == 200
        set_version(served.service.database, "9999")
        assert served.http.get("/readyz").json()["code"] == "unavailable"
        assert served.http.get("/healthz").status_code == 200


def test_a_full_disk_stores_nothing_and_loses_nothing(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}") as served:
        served.headers = served.token("write")
        assert served.put(RECORD).status_code == 201
        engine = served.service.database.engine

        @event.listens_for(engine, "connect")
        def limited(connection, record):
            connection.execute("PRAGMA max_page_count = 1").close()  # no more than there are

        engine.dispose()
        many = bundle.dump([record_for(n) for n in range(50)])
        full = served.send("POST", "/bundle", content=many)
        assert (full.status_code, full.json()["code"]) == (507, "storage-full")
        assert served.get(record_for(0)).status_code == 404
        assert served.get(RECORD).status_code == 200
        event.remove(engine, "connect", limited)
        engine.dispose()
        assert served.send("POST", "/bundle", content=many).json()["created"] == 50


def test_a_database_that_is_down_is_unavailable_and_then_back(postgres):
    with serving(postgres.create_database(), database_timeout_s=2.0) as served:
        served.headers = served.token("write")
        assert served.put(RECORD).status_code == 201
        postgres.stop("immediate")
        try:
            for answer in (
                served.get(RECORD),
                served.put(record_for(1)),
                served.http.get("/readyz"),
            ):
                assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
            assert served.http.get("/healthz").status_code == 200
        finally:
            postgres.start()
        assert served.get(RECORD).status_code == 200
        assert served.put(record_for(1)).status_code == 201


def test_a_database_that_is_locked_for_long_is_unavailable(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", database_timeout_s=0.2) as served:
        served.headers = served.token("write")
        assert served.get(RECORD).status_code == 404
        with served.service.database.writing():
            answer = served.put(RECORD)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert served.put(RECORD).status_code == 201


def test_connections_that_broke_while_they_were_idle_are_replaced(postgres, monkeypatch):
    monkeypatch.setattr(db, "_IDLE_NS", 0)
    with serving(postgres.create_database()) as served:
        served.headers = served.token("write")
        assert served.put(RECORD).status_code == 201
        postgres.stop("immediate")
        postgres.start()
        assert served.get(RECORD).status_code == 200


def test_connection_in_use_when_the_others_are_given_back_is_closed_after_it(url):
    with connected(url) as database:
        closed = []
        event.listen(database.engine, "close", lambda connection, record: closed.append(connection))
        with database.reading() as connection:
            with database.reading():
                pass
            used = connection.connection.dbapi_connection
            database.close()
            assert len(closed) == 1
            assert database.now_ms(connection) > 0
        assert closed[1:] == [used]
        with database.reading() as connection:
            assert database.now_ms(connection) > 0
        assert len(closed) == 2
