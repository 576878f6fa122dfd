"""Whatever the config service does, a launch goes on in time, and launches no wrong config."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import fake_service
import pytest
from fake_service import Said, always, drips, error
from service_clients import AMPLE_S, SHORT_S, client, reason, settled
from stored import RECORD, get, record_for

from launchkit.errors import ServiceError
from launchkit.service import signing
from launchkit.service.client import breaker, write_behind
from launchkit.service.client import store as service_client
from launchkit.store import document

BODY = signing.body(RECORD)
OTHER = signing.body(record_for(1))
FOREVER_S = 30.0
"""What takes longer than this hangs: deadlines here are of some tenths of a second."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for module in (breaker, write_behind):
        monkeypatch.setattr(module, "FIRST_WAIT_S", 0.05)
        monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.2)
    monkeypatch.setattr(service_client, "_WRITE_S", SHORT_S)


def hasty(service, expected=("slow",)):
    """A client whose deadline is short where it is to pass."""
    return client(service, timeout_s=SHORT_S if "slow" in expected else AMPLE_S)


def in_time(work):
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work).result(timeout=FOREVER_S)
    finally:
        pool.shutdown(wait=False)


def until(condition):
    """Wait for what happens in the background."""
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def endless(asked, connection):
    """An answer that never ends, as fast as it is read."""
    connection.sendall(b"HTTP/1.1 200 -\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")


def cut_off(asked, connection):
    connection.sendall(Said(200, BODY).raw[:-20])


def slow_headers(asked, connection):
    connection.sendall(b"HTTP/1.1 200 -\r\n")
    while True:
        connection.sendall(b"X: y\r\n")
        threading.Event().wait(0.01)


NEWER = document.dump(document.parse(OTHER, source="a test")).replace(
    b'"schema": 1', b'"schema": 2'
)
BOMB = gzip.compress(b" " * 50_000_000 + BODY)
HTML = b"<!doctype html><title>Sign in</title>"
FAULTS = {
    "never answers": (fake_service.hangs, "slow"),
    "a byte at a time": (drips(Said(200, BODY)), "slow"),
    "endless headers": (slow_headers, "slow"),
    "closes": (fake_service.disconnects, "unreachable bad-answer"),
    "500": (always(Said(500, b"Internal Server Error")), "refused"),
    "503": (always(error(503, "unavailable")), "refused"),
    "429": (always(error(429, "too-many")), "refused"),
    "413": (always(error(413, "too-large")), "refused"),
    "403": (always(error(403, "forbidden")), "refused"),
    "401": (always(error(401, "unauthenticated")), "refused"),
    "no namespace": (always(error(404, "no-namespace")), "refused"),
    "html": (always(Said(200, HTML, {"Content-Type": "text/html"})), "bad-answer"),
    "html 404": (always(Said(404, HTML)), "bad-answer"),
    "no http": (always(b"220 smtp.example.org ESMTP\r\n"), "slow bad-answer"),
    "redirect": (always(Said(302, b"", {"Location": "http://127.0.0.1:9/"})), "bad-answer"),
    "gzip bomb": (always(Said(200, BOMB, {"Content-Encoding": "gzip"})), "bad-answer"),
    "says it is huge": (always(b"HTTP/1.1 200 -\r\nContent-Length: 99999999999\r\n\r\n"), "bad-answer"),
    "absurd length": (always(b"HTTP/1.1 200 -\r\nContent-Length: -1\r\n\r\n"), "bad-answer"),
    "endless": (endless, "bad-answer"),
    "cut off": (cut_off, "bad-answer"),
    "another key": (always(Said(200, OTHER)), "foreign"),
    "newer schema": (always(Said(200, NEWER)), "newer-schema"),
    "no document": (always(Said(200, b"[]")), "bad-answer"),
    "twice a key": (always(Said(200, BODY[:-1] + b',"schema":1}')), "bad-answer"),
    "not modified, unasked": (always(Said(304)), "bad-answer"),
    "no content": (always(Said(204)), "bad-answer"),
    "a lying length": (always(Said(200, BODY, {"Content-Length": "10"})), "bad-answer"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_lookup_is_a_miss_with_a_reason_in_time_and_the_next_one_is_well(service, name):
    service.hold(record_for(2))
    service.misbehave["GET record"], expected = FAULTS[name]
    store = hasty(service, expected.split())
    assert in_time(lambda: reason(store)) in expected.split()
    service.misbehave.clear()
    until(lambda: reason(store, record_for(2)) == "hit")


@pytest.mark.parametrize("name", ["never answers", "500", "html", "closes"])
def test_service_that_fails_all_the_time_is_left_alone_with_one_warning(service, name, caplog):
    service.misbehave["everything"], expected = FAULTS[name]
    store = hasty(service, expected.split())
    with caplog.at_level(logging.WARNING, "launchkit"):
        found = [in_time(lambda n=n: reason(store, record_for(n))) for n in range(20)]
    assert found[breaker.FAILURES :].count("unreachable") >= 10
    assert service.counts()["GET record"] < 10
    assert len([r for r in caplog.records if "Launches go on" in r.getMessage()]) <= 2
    assert store.counters["miss unreachable"] >= 10


def test_nothing_listens_there(caplog):
    store = client("http://127.0.0.1:9/team")
    assert [reason(store, record_for(n)) for n in range(5)] == ["unreachable"] * 5
    assert list(store.records_of(RECORD.kernel.name)) == []
    store.put(RECORD)
    until(lambda: store.counters["write unreachable"])
    assert len(caplog.records) == 1


def test_unknown_host_is_a_miss(monkeypatch):
    def never(*_, **__):
        threading.Event().wait(2.0)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    store = client("http://no-such-host.example/team", timeout_s=0.05)
    assert in_time(lambda: reason(store)) == "slow"


def test_service_that_comes_back_is_asked_again(service):
    service.hold(record_for(50))
    service.misbehave["everything"] = always(Said(500))
    store = client(service)
    for n in range(5):
        assert reason(store, record_for(n)) in ("refused", "unreachable")
    service.misbehave.clear()
    until(lambda: reason(store, record_for(50)) == "hit")


def test_service_is_left_alone_for_as_long_as_it_says(service):
    service.misbehave["GET record"] = always(error(429, "too-many", headers={"Retry-After": "60"}))
    store = client(service)
    assert [reason(store, record_for(n)) for n in range(4)] == ["refused"] + ["unreachable"] * 3
    assert service.counts()["GET record"] == 1


def test_date_in_retry_after_which_would_need_equal_clocks_is_not_taken(service):
    headers = {"Retry-After": "Fri, 31 Dec 2999 23:59:59 GMT"}
    service.misbehave["GET record"] = always(error(429, "too-many", headers=headers))
    store = client(service)
    assert [reason(store, record_for(n)) for n in range(2)] == ["refused"] * 2


def test_redirect_takes_the_token_nowhere(service):
    with fake_service.running() as elsewhere:
        elsewhere.hold(RECORD)
        for status in (301, 302, 303, 307, 308):
            target = {
                "Location": f"{elsewhere.url}{service.asked[-1].path if service.asked else ''}"
            }
            service.misbehave["everything"] = always(Said(status, b"", target))
            store = client(service)
            assert reason(store) == "bad-answer"
            store.put(record_for(1))
            store.flush(0.3)
        assert elsewhere.asked == []


def test_another_keys_body_is_never_taken_for_this_one_even_from_a_list(service):
    service.misbehave["GET record"] = always(Said(200, OTHER))
    store = client(service)
    assert reason(store) == "foreign"
    assert not store.holds(RECORD)
    assert not store.holds(record_for(1))


# -- writes


@pytest.mark.parametrize("name", ["500", "503", "429", "never answers", "closes", "html"])
def test_fault_of_writes_alone_delays_them_and_leaves_reads_alone(service, name):
    service.hold(record_for(1))
    service.misbehave["PUT record"], expected = FAULTS[name]
    store = hasty(service, expected.split())
    store.put(RECORD)
    until(lambda: store._queue.counters["delayed"] >= 2)
    assert service.counts()["PUT record"] >= 2
    until(lambda: reason(store, record_for(1)) == "hit")
    service.misbehave.clear()
    until(lambda: RECORD in service.stored())
    settled(store)


def test_html_is_no_acknowledgement(service):
    service.misbehave["PUT record"] = always(Said(200, HTML))
    store = client(service)
    store.put(RECORD)
    until(lambda: store._queue.counters["delayed"])
    assert store._queue.counters["sent"] == 0
    assert len(store._queue) + store._queue._busy >= 1


def test_write_whose_acknowledgement_was_lost_is_sent_again_and_stored_once(service):
    def dies(asked, connection):
        service.behave(asked)  # it has been committed
        del service.misbehave["PUT record"]

    service.misbehave["PUT record"] = dies
    store = client(service)
    store.put(RECORD)
    settled(store)
    assert service.stored() == [RECORD]


def test_record_that_is_too_large_is_given_up_and_the_next_one_is_sent(service, caplog):
    def picky(asked, connection):
        (record,) = document.parse(asked.body, source="a test").records
        return error(413, "too-large") if record == record_for(1) else service.behave(asked)

    service.misbehave["PUT record"] = picky
    store = client(service)
    for n in (1, 2):
        store.put(record_for(n))
    settled(store)
    assert service.stored() == [record_for(2)]
    assert "too-large" in caplog.text


@pytest.mark.parametrize("status", [401, 403])
def test_service_that_takes_nothing_of_ours_is_sent_no_more(service, status, caplog):
    service.misbehave["PUT record"] = always(error(status, "forbidden"))
    store = client(service)
    for n in range(3):
        store.put(record_for(n))
    settled(store)
    store.put(RECORD)
    settled(store)
    assert service.counts()["PUT record"] == 1
    assert get(store, RECORD) == RECORD
    assert fake_service.TOKEN not in caplog.text


def test_full_queue_gives_up_the_oldest_with_a_warning_that_says_what_to_do(service, caplog):
    service.misbehave["PUT record"] = always(Said(500))
    store = client(service)
    store._queue._limit = 3
    for n in range(8):
        store.put(record_for(n))
    assert len(store._queue) <= 3
    assert store._queue.counters["given-up"] >= 4
    assert "launchkit configs push" in caplog.text


def test_disk_that_is_full_refuses_and_the_record_is_sent_when_there_is_room(service):
    service.misbehave["PUT record"] = always(error(507, "storage-full"))
    store = client(service)
    store.put(RECORD)
    until(lambda: store._queue.counters["delayed"])
    service.misbehave.clear()
    until(lambda: service.stored() == [RECORD])


def test_listing_that_fails_is_empty_with_a_warning_and_does_not_raise(service, caplog):
    for fault in (always(Said(200, HTML)), always(Said(500)), fake_service.disconnects):
        service.misbehave["bundle"] = fault
        store = client(service)
        assert list(store.records_of(RECORD.kernel.name)) == []
    assert len(caplog.records) == 3


def test_token_that_a_service_sends_back_does_not_reach_the_log(service, caplog):
    echo = f"who is {fake_service.TOKEN}?\x1b[31m\n" + "x" * 10_000
    answer = fake_service.json_said(403, {"code": "forbidden", "message": echo})
    service.misbehave["everything"] = always(answer)
    store = client(service)
    reason(store)
    store.put(RECORD)
    settled(store)
    assert "who is" in caplog.text
    assert fake_service.TOKEN not in caplog.text
    assert all(len(r.getMessage()) < 1000 and r.getMessage().isprintable() for r in caplog.records)


def test_answer_of_the_service_is_quoted_without_the_token(service):
    service.misbehave["GET record"] = always(error(403, "forbidden"))
    store = client(service)
    reason(store)
    with pytest.raises(ServiceError, match="it is forbidden") as caught:
        store._link.ask("GET", "/v1/namespaces/team/records/x")
    assert fake_service.TOKEN not in str(caught.value)
