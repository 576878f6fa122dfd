"""Who may do what in the config service: every path, every scope, and what is kept of a token."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from serving import serving
from sqlalchemy import text, update
from stored import RECORD

from launchkit import clock
from launchkit.errors import UsageError
from launchkit.service import auth, protocol, signing
from launchkit.service.db import NowMs
from launchkit.service.tables import tokens

LEASE = f"/leases/{'0' * 32}"
RECORD_PATH = protocol.record_path("default", RECORD)[len("/v1/namespaces/default") :]
WRITES = {
    ("PUT", RECORD_PATH): {"content": signing.body(RECORD)},
    ("POST", "/bundle"): {"content": b"no bundle"},
    ("POST", "/snapshots"): {"json": {}},
    ("POST", LEASE): {"json": {"holder": "h", "ttl_s": 5}},
    ("PUT", LEASE): {"json": {"ttl_s": 5}, "headers": {protocol.HEADER_LEASE: "x" * 16}},
    ("DELETE", LEASE): {"headers": {protocol.HEADER_LEASE: "x" * 16}},
    ("POST", f"{LEASE}/complete"): {"headers": {protocol.HEADER_LEASE: "x" * 16}},
}
READS = {
    ("GET", RECORD_PATH): {},
    ("POST", "/lookup"): {"json": {"wanted": [
        protocol.wanted_record(RECORD.identity).model_dump()]}},
    ("GET", "/bundle"): {},
    ("GET", "/snapshots"): {},
    ("GET", f"/snapshots/{'0' * 64}"): {},
}  # fmt: skip


def codes(served, requests):
    """The error code of each request, None where it was let through."""
    found = set()
    for (method, rest), options in requests.items():
        answer = served.send(method, rest, **options)
        failed = answer.status_code >= 400
        code = answer.json()["code"] if failed else None
        found.add(code if code in ("unauthenticated", "forbidden", "too-many") else None)
    return found


def rows(served):
    with served.service.database.reading() as connection:
        return [
            connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one()
            for name in ("records", "leases", "snapshots", "namespaces")
        ]


def test_every_path_of_the_document_is_known_to_these_tests(sqlite_service):
    paths = sqlite_service.http.get("/openapi.json").json()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    below = "/v1/namespaces/{namespace}"
    templates = {
        RECORD_PATH: "/records/{kernel}/{digest}/{device}/{key_hash}",
        LEASE: "/leases/{identity}",
        f"{LEASE}/complete": "/leases/{identity}/complete",
        f"/snapshots/{'0' * 64}": "/snapshots/{digest}",
    }
    known = {(method, below + templates.get(rest, rest)) for method, rest in {**READS, **WRITES}}
    whole = {("GET", path) for path in ("/status", "/metrics", "/healthz", "/readyz")}
    spaces = {("GET", "/v1/namespaces"), ("POST", "/v1/namespaces")}
    assert {each for each in served if each[1].startswith(("/v1", "/status", "/metrics", "/healthz",
                                                           "/readyz"))} == known | whole | spaces  # fmt: skip


def test_without_a_token_nothing_is_read_or_written(sqlite_service):
    stranger = replace(sqlite_service, headers={})
    before = rows(sqlite_service)
    assert codes(stranger, {**READS, **WRITES}) == {"unauthenticated"}
    for path in ("/status", "/metrics", "/v1/namespaces"):
        answer = stranger.http.get(path)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert stranger.http.get("/healthz").status_code == 200
    assert stranger.http.get("/readyz").status_code == 200
    assert rows(sqlite_service) == before


def test_a_token_that_reads_cannot_write_in_any_way(sqlite_service):
    reader = replace(sqlite_service, headers=sqlite_service.token("read"))
    before = rows(sqlite_service)
    assert codes(reader, READS) == {None}
    assert codes(reader, WRITES) == {"forbidden"}
    made = reader.http.post("/v1/namespaces", json={"name": "mine"}, headers=reader.headers)
    assert (made.status_code, made.json()["code"]) == (403, "forbidden")
    assert rows(sqlite_service) == before


def test_a_token_is_good_in_its_namespaces_alone(sqlite_service):
    stranger = replace(sqlite_service, headers=sqlite_service.token("admin", "another", "third"))
    assert codes(stranger, {**READS, **WRITES}) == {"forbidden"}
    listed = stranger.http.get("/v1/namespaces", headers=stranger.headers).json()["namespaces"]
    assert [each["name"] for each in listed] == ["another", "third"]


def test_namespaces_are_made_by_admins_alone(sqlite_service):
    writer, admin = sqlite_service.token("write", "*"), sqlite_service.token("admin", "*")
    post = sqlite_service.http.post
    assert post("/v1/namespaces", json={"name": "made"}, headers=writer).status_code == 403
    assert post("/v1/namespaces", json={"name": "made"}, headers=admin).status_code == 201
    again = post("/v1/namespaces", json={"name": "made"}, headers=admin)
    assert (again.status_code, again.json()["code"]) == (409, "exists")
    for name in ("UPPER", "", "../x", "a" * 64, "a b", "-x"):
        assert post("/v1/namespaces", json={"name": name}, headers=admin).status_code == 422


FORGED = [
    "Bearer", "Bearer x", "Basic bGs6bGs=", "lk_000000000000_" + "A" * 43,
    "Bearer lk_000000000000_" + "A" * 43, "Bearer ' OR 1=1 --", "Bearer \xe9", "Bearer " + "A" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("header", FORGED)
def test_what_is_no_token_in_force_is_refused(sqlite_service, header):
    headers = {"Authorization": header.encode("latin-1")}
    answer = sqlite_service.http.get("/status", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


def test_the_secret_of_another_token_is_refused(sqlite_service):
    one, two = (sqlite_service.token("write")["Authorization"].split("_", 2) for _ in range(2))
    mixed = {"Authorization": "_".join((*one[:2], two[2]))}
    assert sqlite_service.http.get("/status", headers=mixed).status_code == 401


def test_a_revoked_token_is_refused_when_it_is_asked_for_again(sqlite_service, monkeypatch):
    served = replace(sqlite_service, headers=sqlite_service.token("read"))
    token = served.headers["Authorization"].removeprefix("Bearer ")
    assert codes(served, READS) == {None}
    assert auth.revoke_token(served.service.database, token)
    assert not auth.revoke_token(served.service.database, token)
    later_ns = clock.now_ns() + int(auth.REMEMBERED_S * 1e9) + 1
    monkeypatch.setattr(clock, "now_ns", lambda: later_ns)
    assert codes(served, READS) == {"unauthenticated"}


def test_an_expired_token_is_refused(sqlite_service):
    database = sqlite_service.service.database
    token = auth.create_token(database, "short", "read", expires_days=1)
    with database.writing() as connection:
        mine = tokens.c.id == token.split("_")[1]
        connection.execute(update(tokens).where(mine).values(expires_ms=NowMs() - 1))
    answer = sqlite_service.http.get("/status", headers=protocol.bearer(token))
    assert answer.status_code == 401


def test_of_a_token_the_database_has_a_hash_alone(sqlite_service):
    token = auth.create_token(sqlite_service.service.database, "secretive", "read")
    with sqlite_service.service.database.reading() as connection:
        everything = [connection.execute(text(f"SELECT * FROM {name}")).fetchall()
                      for name in ("tokens", "audit")]  # fmt: skip
    assert "secretive" in str(everything)
    assert token.split("_", 2)[2] not in str(everything)


def test_no_log_line_has_a_token(sqlite_service, caplog):
    token = auth.create_token(sqlite_service.service.database, "logged", "read")
    secret = token.split("_", 2)[2]
    with caplog.at_level(logging.DEBUG):
        for path in ("/status", "/nope", f"/v1/namespaces/default/bundle?token={token}"):
            sqlite_service.http.get(path, headers=protocol.bearer(token))
        sqlite_service.http.get("/status", headers=protocol.bearer(token[:-1] + "~"))
    lines = [record for record in caplog.records if record.name.startswith("launchkit")]
    assert any("logged" in record.getMessage() for record in lines)
    assert not any(secret[:-1] in record.getMessage() for record in lines)


def test_reads_and_writes_may_be_open(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", open_reads=True) as served:
        assert codes(served, READS) == {None}
        assert codes(served, WRITES) == {"unauthenticated"}
        assert served.http.get("/metrics").status_code == 200
        # A token for elsewhere forbids nothing that everybody may.
        assert codes(replace(served, headers=served.token("read", "another")), READS) == {None}
    with serving(f"sqlite:///{tmp_path / 'a.db'}", open_writes=True) as served:
        assert codes(served, {**READS, **WRITES}) == {None}
        made = served.http.post("/v1/namespaces", json={"name": "mine"})
        assert made.status_code == 401


def test_a_name_scope_or_namespace_that_is_none_is_refused(sqlite_service):
    database = sqlite_service.service.database
    for name, scope, allowed in (
        ("", "read", ["*"]),
        ("x\n", "read", ["*"]),
        ("x", "all", ["*"]),
        ("x", "read", ["../x"]),
        ("x", "read", ["a,b"]),
        ("x", "read", []),
    ):
        with pytest.raises(UsageError):
            auth.create_token(database, name, scope, allowed)
