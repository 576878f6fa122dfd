"""What strangers, careless operators and failing databases do to the config service's server."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3

import pytest
from serving import serving
from sqlalchemy import exc
from stored import RECORD, record_for
from typer.testing import CliRunner

from launchkit.errors import UsageError
from launchkit.service import auth, context, protocol
from launchkit.service.answers import DATABASE_FAILURES, refused_by_database
from launchkit.tools import cli

OTHERS = "/v1/namespaces/default/bundle"


@pytest.fixture
def own(tmp_path):
    """A service over a file of this test."""
    with serving(f"sqlite:///{tmp_path / 'own.db'}", open_writes=True) as served:
        yield served


def heads(served, head):
    """What the service answers to the head of a request whose body does not come."""
    with socket.create_connection((served.http.base_url.host, served.http.base_url.port)) as made:
        made.sendall("\r\n".join([*head, "Host: x", "Connection: close", "", ""]).encode())
        made.settimeout(10)
        return b"".join(iter(lambda: made.recv(65536), b""))


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("path", [OTHERS, "/any/bundle", "/any/records/x"])
def test_no_large_body_is_read_but_of_an_upload(sqlite_service, method, path):
    if method == "PUT" and "/records/" in path:
        length = protocol.DOCUMENT_LIMIT_BYTES + 1
    else:
        length = protocol.REQUEST_LIMIT_BYTES + 1
    answer = heads(sqlite_service, [f"{method} {path} HTTP/1.1", f"Content-Length: {length}"])
    assert answer.startswith(b"HTTP/1.1 413")


def test_guesses_of_tokens_are_counted_before_uploads_too(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", guesses_per_s=3.0) as served:
        codes = {
            served.http.post(
                OTHERS, content=b"x", headers=protocol.bearer(f"lk_{n:012x}_{'a' * 43}")
            ).status_code
            for n in range(12)
        }
        assert codes == {401, 429}


def test_upload_while_the_database_is_down_is_told_to_come_back(own, monkeypatch):
    def down(token):
        raise exc.OperationalError("SELECT", {}, Exception("connection refused"))

    monkeypatch.setattr(own.service.auth, "caller", down)
    answer = own.http.post(OTHERS, content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"]


def failure(kind, text="cannot execute INSERT in a read-only transaction"):
    return kind("INSERT", {"document": "secret"}, Exception(text))


@pytest.mark.parametrize(
    "kind", [exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.DatabaseError]
)
def test_failure_of_the_database_is_no_failure_of_the_server(kind):
    assert refused_by_database(failure(kind), "7").answer.code == "unavailable"
    assert refused_by_database(failure(kind, "database or disk is full"), "7").status == 507


@pytest.mark.parametrize("kind", [exc.DataError, exc.IntegrityError, exc.ProgrammingError])
def test_wrong_statement_is_a_failure_of_the_server(kind):
    assert issubclass(kind, DATABASE_FAILURES)
    with pytest.raises(kind):
        refused_by_database(failure(kind), "7")


def test_database_that_has_other_tables_by_now_is_unavailable(postgres):
    with serving(postgres.create_database(), open_writes=True) as served:
        assert served.put(RECORD).status_code == 201
        with served.service.database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE records RENAME COLUMN document TO body")
        assert served.put(RECORD).status_code == 503
        assert served.get(RECORD).json()["code"] == "unavailable"
        with served.service.database.writing() as connection:
            connection.exec_driver_sql("DROP TABLE records, tokens")
        assert served.put(RECORD).status_code == 503
        shown = protocol.bearer(f"lk_{0:012x}_{'a' * 43}")
        assert served.http.post(OTHERS, content=b"x", headers=shown).status_code == 503


def test_database_that_only_reads_for_now_is_unavailable_for_writes(postgres):
    with serving(postgres.create_database(), open_writes=True) as served:
        assert served.put(RECORD).status_code == 201
        with served.service.database.writing() as connection:
            name = connection.engine.url.database
            connection.exec_driver_sql(
                f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
            )
        served.service.database.engine.dispose()
        assert served.get(RECORD).status_code == 200
        assert served.put(record_for(1)).json()["code"] == "unavailable"


def test_damaged_file_is_told_as_such_and_pages_say_so_too(own, tmp_path):
    assert own.put(RECORD).status_code == 201
    own.service.database.engine.dispose()
    with sqlite3.connect(tmp_path / "own.db") as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    data = bytearray((tmp_path / "own.db").read_bytes())
    data[100:] = b"U" * (len(data) - 100)
    (tmp_path / "own.db").write_bytes(data)
    for answer in (own.put(record_for(1)), own.get(RECORD), own.http.get("/readyz")):
        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert own.http.get("/web/default").status_code == 503


def test_nothing_is_acknowledged_that_goes_into_a_deleted_file(own, tmp_path):
    assert own.put(RECORD).status_code == 201
    for name in os.listdir(tmp_path):
        (tmp_path / name).unlink()
    for number in range(8):
        assert own.put(record_for(number)).status_code == 503
    assert own.http.get("/readyz").status_code == 503
    assert own.http.get("/healthz").status_code == 200


def test_file_that_was_restored_under_a_running_server_is_served(own, tmp_path):
    assert own.put(RECORD).status_code == 201
    with sqlite3.connect(tmp_path / "own.db") as source:
        copy = sqlite3.connect(tmp_path / "copy.db")
        source.backup(copy)
        copy.close()
    source.close()
    assert own.put(record_for(1)).status_code == 201
    own.service.database.engine.dispose()
    for name in ("own.db-wal", "own.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "copy.db").replace(tmp_path / "own.db")
    assert own.get(RECORD).status_code == 200
    assert own.get(record_for(1)).status_code == 404
    assert own.put(record_for(1)).status_code == 201


def test_errors_show_nothing_that_a_statement_was_given(sqlite_service):
    with (
        sqlite_service.service.database.writing() as connection,
        pytest.raises(exc.SQLAlchemyError) as shown,
    ):
        connection.exec_driver_sql("INSERT INTO tokens VALUES (?)", ("my-secret",))
    assert "my-secret" not in str(shown.value)


def test_token_in_a_path_is_not_logged(sqlite_service, caplog):
    caplog.set_level(logging.INFO, "launchkit.service.requests")
    token = auth.create_token(sqlite_service.service.database, "me", "write")
    sqlite_service.http.get(f"/{token}/x/{token}")
    sqlite_service.http.get(f"/v1/namespaces/default/records/{token}/a/b/c")
    sqlite_service.http.get("/healthz")
    logged = [each.getMessage() for each in caplog.records if " GET " in each.getMessage()]
    assert token.split("_", 2)[2] not in caplog.text
    assert f"/lk_{token.split('_')[1]}_.../x/" in logged[0]


def test_upkeep_goes_on_whatever_it_fails_of(caplog):
    def fails():
        raise OverflowError("Python int too large")

    context._quietly(fails)
    assert "tried again" in caplog.text


@pytest.mark.parametrize("days", [-1.0, float("nan"), float("inf"), 1e12])
def test_token_lasts_no_time_that_is_none(sqlite_service, days):
    with pytest.raises(UsageError, match="days"):
        auth.create_token(sqlite_service.service.database, "me", "read", expires_days=days)


@pytest.mark.parametrize(
    "words",
    [
        ("token", "create", "me", "--days", "1e12"),
        ("token", "create", "me", "--days", "inf"),
        ("prune", "--records-days", "99999999999999999999"),
        ("prune", "--snapshots-days", "999999999999999"),
        ("--audit-days", "99999999999999999"),
    ],
)
def test_more_days_than_a_database_can_count_are_bad_use(words):
    result = CliRunner().invoke(cli.app, ["serve", *words, "--database", "sqlite:///nowhere.db"])
    assert result.exit_code == 2
    assert not isinstance(result.exception, OverflowError)


def test_body_without_its_content_type_is_told_what_to_send(sqlite_service):
    answer = sqlite_service.http.post("/v1/namespaces/default/snapshots", content=b"{}")
    assert answer.status_code == 422
    assert "Content-Type: application/json" in answer.json()["message"]


def test_no_redirect_follows_from_the_host_that_a_request_names(sqlite_service):
    for path in (f"{OTHERS}/", "/healthz/", "/v1/namespaces/"):
        answer = sqlite_service.http.get(path, headers={"Host": "evil.example"})
        assert (answer.status_code, answer.headers.get("Location")) == (404, None)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/", "GET"),
        ("PUT", "/web/default/snapshots", "GET, POST"),
        ("PATCH", "/v1/namespaces", "GET, POST"),
        ("PUT", "/logout", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_methods_that_there_are_are_told_of_pages_too(sqlite_service, method, path, allowed):
    answer = sqlite_service.http.request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_load_balancers_may_ask_for_the_head_alone(sqlite_service, path):
    answer = sqlite_service.http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
