"""What attackers write into paths, headers, queries and records stays text."""

from __future__ import annotations

import ast
import contextlib
import html
import logging
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from sqlalchemy import func, select
from stored import RECORD, record_for

import launchkit.service
from launchkit.keys import KernelId
from launchkit.service import auth, protocol, tables

NAMESPACE = protocol.namespace_path(protocol.DEFAULT_NAMESPACE)
SQL = [
    "' OR '1'='1",
    "'; DROP TABLE records; --",
    '" OR 1=1 --',
    "%' UNION SELECT hash FROM tokens --",
]
MARKUP = [
    "<script>alert(1)</script>",
    "{{ 7*7 }}",
    "{% include '/etc/passwd' %}",
    '"><img src=x onerror=alert(1)>',
]


def raw(served, request: str) -> str:
    """Send bytes as they are, which no client library would; returns the answer's."""
    port = urlsplit(str(served.http.base_url)).port
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request.encode("latin-1"))
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode("latin-1")


def get(served, target: str, *headers: str) -> tuple[int, str]:
    """GET a target that is spelled as it is; returns status and all of the answer."""
    token = served.token("admin", "*")["Authorization"]
    lines = [f"GET {target} HTTP/1.1", "Host: x", "Connection: close", f"Authorization: {token}"]
    answer = raw(served, "\r\n".join([*lines, *headers, "", ""]))
    return int(answer.split(" ", 2)[1]), answer


def stored(served) -> int:
    with served.service.database.reading() as connection:
        return connection.execute(select(func.count()).select_from(tables.records)).scalar_one()


CLIMBS = ["/../../../../etc/passwd", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2f..%2fetc%2fpasswd",
          "/%252e%252e/%252e%252e/etc/passwd", "/..\\..\\etc\\passwd", "//etc/passwd", "/x%00.css"]  # fmt: skip


@pytest.mark.parametrize("climb", CLIMBS)
@pytest.mark.parametrize(
    "below",
    ["", NAMESPACE, f"{NAMESPACE}/records", f"{NAMESPACE}/snapshots", "/assets/1", "/web/default"],
)
def test_no_path_leads_to_a_file(sqlite_service, below, climb):
    status, answer = get(sqlite_service, below + climb)
    assert 300 <= status < 500
    assert "root:" not in answer


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_a_path_or_a_query_finds_nothing(sqlite_service, sql):
    text = quote(sql, safe="")
    assert sqlite_service.put(RECORD).status_code in (200, 201)
    before = stored(sqlite_service)
    record = protocol.record_path(protocol.DEFAULT_NAMESPACE, RECORD)
    kernel, digest, device, key_hash = record.rsplit("/", 4)[1:]
    for target in (
        f"/v1/namespaces/{text}/bundle",
        f"{NAMESPACE}/records/{text}/{digest}/{device}/{key_hash}?toolchain=3.9.0",
        f"{NAMESPACE}/records/{kernel}/{digest}/{text}/{key_hash}?toolchain=3.9.0",
        f"{record}?toolchain={text}",
        f"{NAMESPACE}/snapshots/{text}",
        f"{NAMESPACE}/bundle?kernel={text}",
        f"{NAMESPACE}/bundle?device={text}",
    ):
        status, answer = get(sqlite_service, target)
        assert status < 500, (target, answer)
        assert RECORD.kernel.name not in answer.partition("\r\n\r\n")[2], target
    assert stored(sqlite_service) == before


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_a_request_is_stored_or_refused_as_text(sqlite_service, sql):
    before, wanted = stored(sqlite_service), protocol.wanted_record(RECORD.identity).model_dump()
    looked = sqlite_service.send("POST", "/lookup", json={"wanted": [{**wanted, "toolchain": sql}]})
    assert looked.json()["answers"][0].get("document") is None
    leased = sqlite_service.send(
        "POST", f"/leases/{'5a' * 16}", json={"holder": sql, "ttl_s": 5, "kernel": sql, "key": sql}
    )
    assert leased.status_code in (201, 409)
    assert stored(sqlite_service) == before


@pytest.mark.parametrize("sql", SQL)
def test_sql_in_a_token_is_no_token(sqlite_service, sql):
    for shown in (sql, f"lk_{sql}_{'a' * 43}", f"lk_{'0' * 12}_{sql}"):
        answer = raw(sqlite_service, f"GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                     f"Authorization: Bearer {shown}\r\n\r\n")  # fmt: skip
        assert answer.startswith("HTTP/1.1 401")


def test_a_line_end_in_a_request_makes_no_header_and_no_line_of_the_log(sqlite_service, caplog):
    with caplog.at_level(logging.INFO):
        for target in (
            "/status%0d%0aSet-Cookie:%20a=b",
            f"{NAMESPACE}/bundle?kernel=x%0d%0aSet-Cookie:%20a=b",
            "/%0aGET%20/forged%20200",
            "/web/default%0d%0aSet-Cookie:%20a=b",
            "/login?to=/%0d%0aSet-Cookie:%20a=b",
        ):
            status, answer = get(sqlite_service, target)
            assert status < 500
            assert "set-cookie: a" not in answer.partition("\r\n\r\n")[0].lower()
    lines = [
        record.getMessage() for record in caplog.records if record.name.startswith("launchkit")
    ]
    assert len(lines) >= 5
    assert not any("\n" in line or "\r" in line for line in lines)


@pytest.mark.parametrize("host", ["evil.example", "x\tevil"])
def test_no_answer_sends_anybody_to_the_host_of_a_header(sqlite_service, host):
    for target in ("/", "/web", "/login?to=//evil.example", "/status/"):
        _, answer = get(
            sqlite_service, target, f"X-Forwarded-Host: {host}", f"Origin: http://{host}"
        )
        head = answer.partition("\r\n\r\n")[0].lower()
        assert "location: http://evil" not in head
        assert "location: //evil" not in head
        assert "access-control-allow-origin" not in head


@pytest.mark.parametrize("markup", MARKUP)
def test_markup_in_a_record_stays_text(sqlite_service, markup):
    name = f"kernel {markup}"
    made = record_for(
        7, kernel=KernelId(name, "ab" * 32), device=replace(RECORD.device, name=f"GPU {markup}")
    )
    assert sqlite_service.put(made).status_code in (200, 201)
    again = sqlite_service.get(made)
    assert again.headers["content-type"] == protocol.MEDIA_DOCUMENT
    assert again.json()["kernel"]["name"] == name
    shown = 0
    with visiting(sqlite_service) as visitor:
        for page in ("/", *(f"/web/default{rest}" for rest in PAGES)):
            answer = visitor.get(page, params={"name": name} if page.endswith("/kernel") else {})
            assert (page, answer.status_code) == (page, 200)
            assert "default-src" in answer.headers["content-security-policy"]
            assert markup not in answer.text or html.escape(markup) == markup
            assert "kernel 49" not in answer.text
            assert "root:" not in answer.text
            shown += markup in html.unescape(answer.text)
    assert shown >= 3  # as text


PAGES = ["", "/kernels", "/kernel", "/devices", "/records", "/misses", "/leases", "/audit",
         "/snapshots", "/diff"]  # fmt: skip


@contextlib.contextmanager
def visiting(served):
    """A browser's visit, logged in."""
    token = served.headers["Authorization"].removeprefix("Bearer ")
    with httpx.Client(base_url=served.http.base_url, timeout=30, follow_redirects=True) as visitor:
        assert visitor.post("/login", data={"token": token}).status_code == 200
        yield visitor


def test_every_digest_of_a_secret_is_compared_in_constant_time():
    """An == stops at the first byte that differs, and so tells how many are right."""
    found = []
    for path in Path(launchkit.service.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                names = {ast.unparse(side).lower() for side in (node.left, *node.comparators)}
                secret = any(
                    word in name for name in names for word in ("_hash(", "secret", "guard_of")
                )
                if secret and not any(name == "none" or name.startswith("len(") for name in names):
                    found.append((path.name, ast.unparse(node)))
    # The database looks a lease's digest up by its index: what it tells is the digest's, of 144
    # random bits, and nobody can choose the bits of a digest.
    assert [each for each in found if each[0] != "leases.py"] == []


def test_a_token_is_compared_even_where_none_of_its_id_exists(sqlite_service, monkeypatch):
    compared = []
    monkeypatch.setattr(
        auth.hmac,
        "compare_digest",
        lambda a, b, real=auth.hmac.compare_digest: compared.append(1) or real(a, b),
    )
    answer = sqlite_service.http.get(
        "/status", headers=protocol.bearer(f"lk_{'0' * 12}_{'a' * 43}")
    )
    assert (answer.status_code, compared) == (401, [1])
