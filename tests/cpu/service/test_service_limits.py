"""Sizes, times and rates that the config service holds every client to."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest
from serving import serving
from sqlalchemy.exc import OperationalError
from stored import RECORD, record_for

from launchkit import clock
from launchkit.configs import TunedConfig, identify
from launchkit.service import protocol, signing
from launchkit.service.answers import Refused
from launchkit.service.limits import RateLimit
from launchkit.store import bundle

SMALL = {"document_limit_bytes": 4000, "bundle_limit_bytes": 6000, "body_timeout_s": 0.3}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A service that takes little, and not for long."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('small') / 'a.db'}", **SMALL) as served:
        served.headers = served.token("write")
        yield served


def raw(served, head, *parts):
    """What the service answers to bytes that no client would send."""
    with socket.create_connection((served.http.base_url.host, served.http.base_url.port)) as made:
        made.sendall(head)
        for part in parts:
            made.sendall(part)
        made.settimeout(10)
        return b"".join(iter(lambda: made.recv(65536), b""))


def head(served, method, path, *lines):
    shown = f"Authorization: {served.headers['Authorization']}"
    return "\r\n".join(
        [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", shown, *lines, "", ""]
    ).encode()


def test_what_says_that_it_is_too_large_is_not_read(small):
    path = protocol.record_path("default", RECORD)
    for length in (4001, 10**12, 10**40):
        answer = raw(small, head(small, "PUT", path, f"Content-Length: {length}"))
        assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400")), answer
    assert b'"too-large"' in raw(small, head(small, "PUT", path, "Content-Length: 4001"))


def test_what_grows_beyond_a_limit_is_cut_off(small):
    path = protocol.record_path("default", RECORD)
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    answer = raw(small, head(small, "PUT", path, "Transfer-Encoding: chunked"), chunk)
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_arrive_is_not_waited_for(small):
    path = protocol.record_path("default", RECORD)
    answer = raw(small, head(small, "PUT", path, "Content-Length: 100"), b"{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"too-slow"' in answer


def test_a_bundle_is_not_read_from_who_may_not_write(small):
    for headers in ({}, small.token("read"), {"Authorization": "Bearer nonsense"}):
        line = [f"Authorization: {headers['Authorization']}"] if headers else []
        lines = ["POST /v1/namespaces/default/bundle HTTP/1.1", "Host: x", "Connection: close", *line,
                 "Content-Length: 5000", "", ""]  # fmt: skip
        answer = raw(small, "\r\n".join(lines).encode())
        assert answer.startswith((b"HTTP/1.1 401", b"HTTP/1.1 403"))


def test_a_packed_body_is_taken_of_bundles_alone(small):
    path = protocol.record_path("default", RECORD)
    headers = {**small.headers, "Content-Encoding": "gzip"}
    answer = small.http.put(path, content=b"\x1f\x8b", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "no-media")
    answer = small.send("POST", "/bundle", content=b"x", headers={"Content-Encoding": "br"})
    assert answer.status_code == 415


def test_bundles_and_snapshots_are_no_larger_than_the_limit(small):
    some, more = [[record_for(n) for n in range(start, start + 2)] for start in (0, 2)]
    for part in (some, more):
        assert small.send("POST", "/bundle", content=bundle.dump(part)).status_code == 200
    assert small.send("POST", "/bundle", content=b"x" * 6001).status_code == 413
    for n in range(10, 14):
        small.put(record_for(n))
    for answer in (small.send("GET", "/bundle"), small.send("POST", "/snapshots", json={})):
        assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_a_record_does_not_grow_beyond_the_limit_by_merging(small):
    def with_configs(start):
        tuned = tuple(
            TunedConfig.measured(identify({"BLOCK": n}), 5.0, reps=1, method="eager")
            for n in range(start, start + count)
        )
        key = record_for(77).key
        return replace(RECORD, key=key, configs=tuned, chosen=tuned[0].config, chosen_method=None)

    count = 1
    while len(signing.body(with_configs(0))) < 3500:
        count += 1
    assert small.put(with_configs(0)).status_code == 201
    grown = small.put(with_configs(500))
    assert (grown.status_code, grown.json()["code"]) == (413, "too-large")
    assert small.get(with_configs(0)).content == signing.body(with_configs(0))


def test_a_rate_lets_two_seconds_worth_through_and_then_its_own(monkeypatch):
    now_ns = [0]
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns[0])
    limit = RateLimit(10.0)

    def through(subject):
        count = 0
        while True:
            try:
                limit.spend(subject)
            except Refused as refused:
                told = (refused.answer.code, refused.retry_after_s)
                break
            count += 1
        assert told == ("too-many", 1.0)
        return count

    assert through("a") == 20
    assert through("a") == 0
    assert through("b") == 20
    now_ns[0] += 10**9
    assert through("a") == 10
    now_ns[0] += 10**12
    assert through("a") == 20


@pytest.mark.parametrize(("per_s", "retry_after_s"), [(0.2, 5.0), (1e-6, 86_400.0)])
def test_a_rate_of_less_than_one_request_in_two_seconds_lets_one_through(
    per_s, retry_after_s, monkeypatch
):
    now_ns = [0]
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns[0])
    limit = RateLimit(per_s)
    limit.spend("a")
    with pytest.raises(Refused) as refused:
        limit.spend("a")
    assert refused.value.retry_after_s == retry_after_s
    now_ns[0] += round(1.001e9 / per_s)
    limit.spend("a")


def test_who_asks_too_often_is_told_when_to_come_back(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", rate_per_s=0.5, open_reads=True) as served:
        assert served.get(RECORD).status_code == 404
        refused = served.get(RECORD)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many")
        assert int(refused.headers["retry-after"]) >= 1
        # Another caller is not held back by it.
        assert served.http.get("/status", headers=served.token("read")).status_code == 200


def test_writes_have_a_rate_of_their_own(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", writes_per_s=0.5) as served:
        served.headers = served.token("write")
        assert served.put(RECORD).status_code == 201
        assert served.put(RECORD).status_code == 429
        assert served.get(RECORD).status_code == 200


def test_guesses_of_tokens_are_slowed_down(tmp_path):
    with serving(f"sqlite:///{tmp_path / 'a.db'}", guesses_per_s=20.0) as served:
        known = served.token("read")
        forged = {"Authorization": "Bearer nonsense"}
        answers = [served.http.get("/status", headers=forged).status_code for _ in range(60)]
        assert answers[0] == 401
        assert answers[-1] == 429
        assert served.http.get("/status", headers=known).status_code == 200


def test_a_token_that_the_database_cannot_tell_of_is_no_guess(tmp_path, monkeypatch):
    def down(*_):
        raise OperationalError("SELECT", {}, ConnectionError("refused"))

    with serving(f"sqlite:///{tmp_path / 'a.db'}", guesses_per_s=1.0) as served:
        known = served.token("read")
        with monkeypatch.context() as patch:
            patch.setattr(served.service.auth, "caller", down)
            answers = [served.http.get("/status", headers=known).status_code for _ in range(10)]
        assert answers == [503] * 10
        assert served.http.get("/status", headers=known).status_code == 200
