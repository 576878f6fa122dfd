"""The config service's page as HTTP: on both databases, who may see and send what, hostile input."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re

import httpx
import page_world
import pytest
from page_world import A100, COPY, H200, HOSTILE, SCAN, a_record
from serving import serving
from sqlalchemy import select

from launchkit.service import auth, protocol, signing, spaces
from launchkit.service.tables import audit, leases, namespaces, snapshots
from launchkit.service.web import session
from launchkit.store import bundle
from launchkit.store.pins import PinnedStore

VIEWS = (
    "", "/kernels", f"/kernel?name={SCAN.name}", "/devices", "/records", "/misses", "/leases",
    "/audit", "/snapshots", "/diff",
)  # fmt: skip
HOSTILE_WORDS = (
    "<script>alert(1)</script>", "{{ 7 * 7 }}", "{% raw %}", "' OR 1=1 --", '"><img src=x>', "%", "_",
    "\\", "%00", "../../etc/passwd", "é\N{SNOWMAN}\N{RIGHT-TO-LEFT OVERRIDE}", "a" * 200,
)  # fmt: skip


@pytest.fixture(scope="module")
def world(any_service):
    """The service, with something to show in its first namespace."""
    spaces.make(any_service.service.database, "other", "a test")
    page_world.fill(any_service)
    return any_service


@contextlib.contextmanager
def visitor(served, scope="read", *allowed):
    """A client that is logged in, and its token."""
    token = auth.create_token(served.service.database, "ada", scope, allowed or ("default",))
    with httpx.Client(base_url=served.http.base_url, timeout=30) as client:
        answer = client.post("/login", data={"token": token, "to": "/web/default"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/web/default")
        yield client, token


@pytest.fixture(scope="module")
def reader(world):
    with visitor(world) as (client, _):
        yield client


def record_page(record):
    return f"/web/default/records/{'/'.join(protocol.record_parts(record.kernel, record.device, record.key))}"


def guard(token):
    return {"guard": session.guard_of(token)}


def test_every_view_answers_with_headers_that_let_nothing_run(world, reader):
    for view in (*(f"/web/default{each}" for each in VIEWS), record_page(a_record(SCAN, H200, 1))):
        answer = reader.get(view)
        assert answer.status_code == 200, view
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"


def test_without_a_token_every_view_asks_for_one_and_comes_back(world):
    for view in VIEWS:
        answer = world.http.get(f"/web/default{view}")
        assert answer.status_code == 303
        login = httpx.URL(answer.headers["location"])
        assert (login.path, login.params["to"]) == ("/login", f"/web/default{view}")


def test_token_of_one_namespace_sees_no_other(world, reader):
    for view in VIEWS:
        answer = reader.get(f"/web/other{view}")
        assert answer.status_code == 403
        assert "does not allow read" in answer.text


def test_open_reads_show_every_view_but_no_form_that_writes(tmp_path):
    with serving(f"sqlite:///{tmp_path / 's.db'}", open_reads=True, open_writes=True) as served:
        page_world.fill(served)
        for view in VIEWS:
            answer = served.http.get(f"/web/default{view}")
            assert answer.status_code == 200
            assert 'method="post"' not in answer.text
        sent = served.http.post("/web/default/snapshots", data=guard(""))
        assert sent.headers["location"].startswith("/login")
        assert served.send("GET", "/snapshots").json() == {"snapshots": []}


def forms(namespace="default"):
    return (
        (f"/web/{namespace}/snapshots", {}),
        (f"/web/{namespace}/leases/{page_world.LEASE}/end", {}),
        ("/web", {"name": "made"}),
    )


def written(served):
    """How much forms could have changed."""
    with served.service.database.reading() as connection:
        tables = (audit, leases, namespaces, snapshots)
        return [len(connection.execute(select(table)).all()) for table in tables]


def test_forged_forms_write_nothing(world):
    with visitor(world, "admin", "*") as (client, token):
        before = written(world)
        for path, fields in forms():
            for guarded, headers in (
                ({}, {}), ({"guard": ""}, {}), ({"guard": "0" * 64}, {}), ({"guard": "é"}, {}),
                (guard(token), {"Sec-Fetch-Site": "cross-site"}),
                (guard(token), {"Sec-Fetch-Site": "same-site"}),
            ):  # fmt: skip
                answer = client.post(path, data={**fields, **guarded}, headers=headers)
                assert answer.status_code in (403, 422), (path, guarded, headers)
            answer = client.post(path, json={**fields, **guard(token)})
            assert answer.status_code == 422
        assert written(world) == before


def test_token_that_may_read_cannot_write_by_forms(world):
    with visitor(world, "read") as (client, token):
        before = written(world)
        for path, fields in forms():
            assert client.post(path, data={**fields, **guard(token)}).status_code == 403
        assert written(world) == before


def test_writer_takes_snapshots_only(world):
    with visitor(world, "write") as (client, token):
        (taking, *admins) = forms()
        for path, fields in admins:
            assert client.post(path, data={**fields, **guard(token)}).status_code == 403
        assert client.post(taking[0], data=guard(token)).status_code == 303
        (entry,) = world.send("GET", "/snapshots", headers=protocol.bearer(token)).json()[
            "snapshots"
        ]
        data = client.get(f"/web/default/snapshots/{entry['digest']}").content
        assert hashlib.sha256(data).hexdigest() == entry["digest"]


def test_forms_of_another_namespace_are_refused(world):
    with visitor(world, "admin", "other") as (client, token):
        before = written(world)
        for path, fields in forms()[:2]:
            assert client.post(path, data={**fields, **guard(token)}).status_code == 403
        assert written(world) == before


def test_api_takes_no_cookie(world):
    with visitor(world, "admin", "*") as (client, _):
        record = a_record(COPY, H200, 77)
        put = client.put(protocol.record_path("default", record), content=signing.body(record))
        assert put.status_code == 401
        assert client.get("/v1/namespaces/default/bundle").status_code == 401


def test_revoked_token_ends_the_visit(world, monkeypatch):
    monkeypatch.setattr(auth, "REMEMBERED_S", 0.0)
    with visitor(world) as (client, token):
        assert client.get("/web/default").status_code == 200
        auth.revoke_token(world.service.database, token)
        answer = client.get("/web/default")
        assert answer.headers["location"].startswith("/login")
        assert "Max-Age=0" in answer.headers["set-cookie"]


def test_wrong_tokens_are_refused_and_slowed_down(tmp_path):
    with serving(f"sqlite:///{tmp_path / 's.db'}", guesses_per_s=1.0) as served:
        for token in ("", "x", "lk_" + "0" * 12 + "_" + "A" * 43, "'; drop table tokens; --"):
            answer = served.http.post("/login", data={"token": token})
            assert answer.status_code in (401, 429)
            assert "set-cookie" not in answer.headers
        assert answer.status_code == 429


def test_cookie_over_https_is_for_this_host_alone(tmp_path):
    with serving(f"sqlite:///{tmp_path / 's.db'}", secure_cookies=True) as served:
        token = auth.create_token(served.service.database, "ada", "read")
        answer = served.http.post("/login", data={"token": token})
        cookie = answer.headers["set-cookie"]
    name, *attributes = cookie.lower().split("; ")
    assert name == f"__host-launchkit={token.lower()}"
    assert {"secure", "httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert not any(each.startswith("domain") for each in attributes)


@pytest.mark.parametrize("to", [
    "https://evil.example/", "//evil.example/", "/\\evil.example", "/web/../v1", "javascript:alert(1)",
    "/web//evil", "/web/\r\nSet-Cookie: a=b", "/webx", "", "/v1/namespaces", "/web/é",
])  # fmt: skip
def test_logging_in_leads_to_no_other_site(world, to):
    token = auth.create_token(world.service.database, "ada", "read", ("default",))
    answer = world.http.post("/login", data={"token": token, "to": to})
    world.http.cookies.clear()
    assert answer.headers["location"] == "/"
    shown = world.http.get("/login", params={"to": to}).text
    assert 'name="to" value="/"' in shown


def test_hostile_words_are_shown_as_they_are_and_find_only_what_has_them(world, reader):
    stored = page_world.stored()
    for words in HOSTILE_WORDS:
        answer = reader.get("/web/default/records", params={"q": words})
        assert answer.status_code == 200, words
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        found = len(re.findall("<tr>\n<td>", answer.text))
        fitting = [
            each
            for each in stored
            if all(
                any(
                    word.lower() in text.lower()
                    for text in (
                        each.kernel.name,
                        each.key.text,
                        each.device.name,
                        each.device.slug,
                    )
                )
                for word in words.split()
            )
        ]
        assert found == min(50, len(fitting)), words
    assert "{{ 7 * 7 }}" in reader.get("/web/default/kernels", params={"q": "{{"}).text


def test_hostile_paths_and_queries_are_refused_in_a_page(world, reader):
    for path, params in (
        ("/web/default/records", {"q": "a\x00b"}), ("/web/default/records", {"q": "a" * 201}),
        ("/web/default/records", {"p": "101"}), ("/web/default/records", {"p": "x"}),
        ("/web/default/records", {"order": "1; drop table records"}),
        ("/web/default/records", {"device": "a/b"}), ("/web/default/diff", {"old": "xyz"}),
        ("/web/default/audit", {"before": "-1"}), ("/web/default/audit", {"before": "9" * 30}),
        ("/web/..%2f..%2fetc", {}), ("/web/DEFAULT", {}),
    ):  # fmt: skip
        answer = reader.get(path, params=params)
        assert answer.status_code in (404, 422), (path, params)
        assert answer.headers["content-type"].startswith("text/html")
        assert "Traceback" not in answer.text


def test_unknown_things_are_not_found(world, reader):
    with visitor(world, "read", "*") as (client, _):
        for path in (
            "/web/never", "/web/never/records", "/web/never/pins", "/web/default/nothing/at/all",
            record_page(a_record(COPY, A100, 901)), f"{record_page(a_record(SCAN, H200, 1))}?toolchain=9",
            f"/web/default/snapshots/{'0' * 64}", f"/web/default/diff?old={'0' * 64}",
            "/web/default/pins?kernel=none", "/assets/x/..%2f..%2fviews.py", "/assets/x/secret",
        ):  # fmt: skip
            assert client.get(path).status_code == 404, path


def hold(served, *several):
    """Store records in the namespace of a test's own; return its path."""
    sent = served.send("POST", "/bundle", content=bundle.dump(several))
    assert sent.json()["created"] == len(several)
    return f"/web/{served.namespace}"


def snapshot(served, client, token):
    """Take a snapshot by the page; return its digest."""
    taken = client.post(f"/web/{served.namespace}/snapshots", data=guard(token))
    assert taken.status_code == 303
    return served.send("GET", "/snapshots").json()["snapshots"][0]["digest"]


def test_devices_and_snapshots_are_compared(served):
    there = [a_record(SCAN, A100, n, fastest=64 if n % 2 else 128) for n in range(1, 9)]
    here = [a_record(SCAN, H200, n) for n in range(1, 11)]
    page = hold(served, *there, *here, a_record(COPY, H200, 7))
    with visitor(served, "write", served.namespace) as (client, token):
        devices = {"a": A100.slug, "b": H200.slug}
        told = "4 keys have the same winner, 4 another one; 0 only the first device has, 3 only"
        assert told in client.get(f"{page}/diff", params=devices).text
        of_kernel = client.get(f"{page}/diff", params={**devices, "kernel": COPY.name}).text
        assert "0 another one; 0 only the first device has, 1 only" in of_kernel
        old = snapshot(served, client, token)
        assert served.put(a_record(SCAN, A100, 1, fastest=32)).status_code == 200
        assert served.put(a_record(SCAN, A100, 99)).status_code == 201
        told = "18 keys have the same winner, 1 another one; 0 only the first snapshot has, 1 only"
        assert told in client.get(f"{page}/diff", params={"old": old}).text
        snapshot(served, client, token)
        taken = {each["digest"] for each in served.send("GET", "/snapshots").json()["snapshots"]}
        (new,) = taken - {old}
        assert told in client.get(f"{page}/diff", params={"old": old, "new": new}).text


def test_pin_file_holds_what_was_chosen(world, reader, tmp_path):
    for params, expected in (
        ({}, [each for each in page_world.stored() if each.toolchain == page_world.NEW]),
        ({"kernel": COPY.name}, [a_record(COPY, H200, 7)]),
        ({"device": A100.slug}, [each for each in page_world.stored() if each.device == A100]),
    ):
        answer = reader.get("/web/default/pins", params=params)
        assert answer.headers["content-disposition"] == 'attachment; filename="default.lock"'
        path = tmp_path / "launchkit.lock"
        path.write_bytes(answer.content)
        pinned = {each.identity: each.chosen for each in PinnedStore(path).records()}
        assert pinned == {each.identity: each.chosen for each in expected}


def test_pin_file_of_a_snapshot_is_of_that_moment(served, tmp_path):
    first, later = a_record(COPY, H200, 7), a_record(COPY, H200, 1234)
    page = hold(served, first)
    with visitor(served, "write", served.namespace) as (client, token):
        digest = snapshot(served, client, token)
        assert served.put(later).status_code == 201
        for query, expected in (({"snapshot": digest}, {first.key}), ({}, {first.key, later.key})):
            path = tmp_path / "launchkit.lock"
            path.write_bytes(client.get(f"{page}/pins", params=query).content)
            assert {each.key for each in PinnedStore(path).records()} == expected


def test_document_of_a_record_is_what_the_api_gives(world, reader):
    record = a_record(HOSTILE, H200, 1)
    given = reader.get(f"{record_page(record)}/document")
    assert given.content == signing.body(record)
    assert "sandbox" in given.headers["content-security-policy"]


def test_assets_last_as_long_as_their_address(world):
    page = world.http.get("/login").text
    for name in ("page.css", "page.js"):
        (path,) = re.findall(rf'"(/assets/\w+/{re.escape(name)})"', page)
        assert "immutable" in world.http.get(path).headers["cache-control"]
        assert world.http.get(f"/assets/0/{name}").headers["cache-control"] == "no-cache"


def test_tokens_and_words_are_in_no_log(world, caplog):
    caplog.set_level(logging.DEBUG)
    with visitor(world) as (client, token):
        client.get("/web/default/records", params={"q": "whatIsearch"})
        client.get("/web/default/records", params={"q": "a\x00whatIsearch"})
    ours = [record for record in caplog.records if record.name.startswith("launchkit")]
    assert ours
    for record in ours:
        assert token[16:] not in record.getMessage()
        assert "whatIsearch" not in record.getMessage()


def test_pages_stand_in_no_api_document(world):
    paths = world.http.get("/openapi.json").json()["paths"]
    assert not any(path.startswith(("/web", "/login", "/assets")) or path == "/" for path in paths)


def test_failure_of_the_database_is_a_page(world, reader, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def fail(*arguments):
        raise OperationalError("select", {}, Exception("no route to the database"))

    monkeypatch.setattr(world.service.database, "now_ms", fail)
    answer = reader.get("/web/default")
    assert answer.status_code == 503
    assert "does not answer" in answer.text
    assert "no route" not in answer.text
