"""What the client of a config service is given and cannot use: told at once, and no launch fails."""

from __future__ import annotations

import gc
import gzip
import logging
import os
import threading
import warnings
import weakref

import httpcore
import pytest
from fake_service import TOKEN, Said, always, json_said
from service_clients import AMPLE_S, SECRET, client, reason, settled
from sharing import one
from stored import RECORD, record_for

from launchkit.errors import ServiceError, StoreError, UsageError
from launchkit.service.client import urls
from launchkit.service.client.bounded_calls import BoundedCalls, NoThreadError
from launchkit.service.client.store import ServiceStore
from launchkit.service.client.transport import Call, Transport, network
from launchkit.service.client.write_behind import WriteBehind


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/team",
        f"http://{'a' * 64}.example/team",
        f"http://{'a.' * 130}example/team",
        "http://./team",
        "http://ho st/team",
        "http://x\x00y/team",
        "http://*/team",
        "http://h\N{LATIN SMALL LETTER A WITH DIAERESIS}/team",
        "http://h/\N{LATIN SMALL LETTER A WITH DIAERESIS}/team",
        "http://h/a b/team",
        "http://h/a\r\nX: y/team",
        "http:///team",
    ],
)
def test_url_that_no_request_can_be_sent_to_is_refused_when_it_is_read(url):
    with pytest.raises(StoreError, match=r"Write https://host:port/namespace\.$"):
        ServiceStore(url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://127.0.0.1:1/team", "127.0.0.1"),
        ("https://[::1]/team", "::1"),
        ("https://Configs.Example.org./below/it/team", "configs.example.org."),
        ("https://my_host-1:8477", "my_host-1"),
        (f"http://{'a' * 63}/team", "a" * 63),
    ],
)
def test_hosts_that_can_be_looked_up_are_taken(url, host):
    assert urls.parse(url).host == host


@pytest.mark.parametrize("token", ["ä", "a\nb", "a\r\nX: y", " ", "", "\x00", "€", "\ud800"])
def test_token_that_no_header_can_hold_is_refused_without_showing_it(token):
    with pytest.raises(UsageError, match="plain ASCII") as refused:
        ServiceStore("http://127.0.0.1:1/team", token=token)
    assert not token.strip() or token not in str(refused.value)


NO_TIMES = [0.0, -1.0, float("nan"), float("inf"), 3601.0]


@pytest.mark.parametrize(
    ("what", "seconds"),
    [("lease_s", 0.5), *((what, each) for what in ("lease_s", "timeout_s") for each in NO_TIMES)],
)
def test_times_that_are_none_are_refused_before_a_launch_waits(what, seconds):
    with pytest.raises(UsageError, match="Give"):
        ServiceStore("http://127.0.0.1:1/team", token="t", **{what: seconds})


@pytest.mark.parametrize("header", ["secret\nX: y", "secret-é", "secret ", "\x00secret"])
def test_header_that_cannot_be_sent_is_an_error_that_does_not_quote_it(service, header):
    transport = Transport(urls.parse(service.url))
    call = Call("GET", "/readyz", AMPLE_S, 1000, {"Authorization": header})
    with pytest.raises(ServiceError) as refused:
        transport.send(call)
    assert "secret" not in str(refused.value)
    assert refused.value.reason == "unreachable"
    assert service.asked == []


@pytest.mark.parametrize(
    "token", ["", "short", "sixteen bytes…..", "x" * 200, "a" * 16 + "\r\nX: y"]
)
def test_lease_that_a_service_names_by_nonsense_is_none(service, token):
    service.misbehave["POST leases"] = always(json_said(201, {"token": token, "expires_in_s": 1}))
    store = client(service)
    with store.enter_flight(RECORD.identity, AMPLE_S) as outcome:
        assert outcome == "unguarded"
    store.put(RECORD)
    settled(store)
    assert service.stored() == [RECORD]


@pytest.mark.parametrize("etag", ["", "é", "*", 'W/"short"'])
def test_entity_tag_that_is_none_is_not_sent_back(service, etag):
    service.hold(one(1, 128, 5.0), SECRET)

    def tagged(asked, connection):
        said = service.behave(asked)
        return Said(said.status, said.body, {**said.headers, "ETag": etag}) if said.body else said

    service.misbehave["GET record"] = tagged
    store = client(service, secret=SECRET)
    store.put(one(1, 256, 4.0))
    assert store.flush(0.3) == 1
    assert service.counts()["PUT record"] == 0
    service.misbehave.clear()
    settled(store)
    (merged,) = service.stored()
    assert len(merged.configs) == 2


def test_team_that_begins_to_sign_shares_keys_that_were_stored_before(service):
    service.hold(one(1, 128, 5.0))
    mine = one(1, 256, 4.0)
    store = client(service, secret=SECRET)
    assert reason(store, mine) == "unsigned"
    store.put(mine)
    settled(store)
    assert service.stored() == [mine]
    assert reason(client(service, secret=SECRET), mine) == "hit"


def test_record_that_others_signed_is_not_replaced(service):
    theirs = one(1, 128, 5.0)
    service.hold(theirs, b"another secret of theirs")
    store = client(service, secret=SECRET)
    store.put(one(1, 256, 4.0))
    settled(store)
    assert service.stored() == [theirs]


def test_whatever_sending_one_record_raises_the_next_one_is_sent(caplog):
    sent = []

    def send(record):
        if record == RECORD:
            raise RuntimeError("a fault of ours")
        sent.append(record)
        return "done"

    queue = WriteBehind(send)
    queue.put(RECORD)
    queue.put(record_for(1))
    queue.then("what", lambda: sent[5])
    queue.put(record_for(2))
    assert queue.flush(60.0) == 0
    assert sent == [record_for(1), record_for(2)]
    assert queue.counters == {"sent": 2, "refused": 1}
    assert "a fault of ours" in caplog.text
    assert all(each.exc_info is None for each in caplog.records)


def until(condition):
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it does not come")


@pytest.fixture
def no_threads(monkeypatch):
    """A process that ends, or has too many threads: none is started any more."""

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    yield
    monkeypatch.undo()


def test_launch_goes_on_where_no_thread_can_be_started(service, no_threads):
    store = client(service)
    assert reason(store) == "unreachable"
    with store.enter_flight(RECORD.identity, 1.0) as outcome:
        assert outcome == "unguarded"
    assert store.put(RECORD) is False
    assert store.flush(0.0) == 1


def test_what_waited_for_a_thread_is_sent_once_there_is_one(service, monkeypatch):
    store = client(service)
    with monkeypatch.context() as patch:
        patch.setattr(
            "launchkit.service.client.write_behind.start_thread", lambda work, name: False
        )
        store.put(RECORD)
        assert store.flush(0.0) == 1
    settled(store)
    assert service.stored() == [RECORD]


def test_call_waits_for_a_thread_that_there_is_already(no_threads, monkeypatch):
    calls = BoundedCalls("test")
    with pytest.raises(NoThreadError):
        calls.run(lambda: 1, 60.0)
    monkeypatch.undo()
    assert calls.run(lambda: 2, 60.0) == 2


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"a snapshot", mtime=0)[:-3],
        gzip.compress(b"a snapshot", mtime=0)[:10] + b"\xff" * 40,
        b"\x1f\x8b",
        gzip.compress(b"", mtime=0)[:-8] + b"12345678",
    ],
)
def test_snapshot_in_broken_gzip_is_a_bad_answer(service, body):
    service.snapshots["0" * 64] = body
    with pytest.raises(ServiceError, match="gzip") as refused:
        client(service).snapshot("0" * 64)
    assert refused.value.reason == "bad-answer"


def test_store_that_is_dropped_closes_its_connections(service):
    store = client(service)
    assert reason(store) == "absent"
    assert len(service._open) == 1
    transport = weakref.ref(store._link._transport)
    del store
    gc.collect()
    assert transport() is None
    until(lambda: not service._open)


def test_child_forked_while_a_thread_has_the_connections_locked_ends(service):
    store = client(service)
    assert reason(store) == "absent"
    pool = store._link._transport._pool
    held, over = threading.Event(), threading.Event()

    def hold():
        with pool._optional_thread_lock:
            held.set()
            over.wait(60.0)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60.0)
    child = os.fork()
    if child == 0:
        del pool, store
        gc.collect()  # of the parent's connections
        os._exit(0)
    over.set()
    holder.join()
    for _ in range(3000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        threading.Event().wait(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child waits for a lock that no thread of it will give back")


def test_no_warning_shows_a_token(service, caplog):
    caplog.set_level(logging.DEBUG, "launchkit")
    service.misbehave["everything"] = lambda asked, connection: json_said(
        500, {"code": "internal", "message": f"you sent {asked.headers.get('authorization')}"}
    )
    store = client(service)
    reason(store)
    store.put(RECORD)
    store.flush(0.5)
    assert caplog.records
    assert TOKEN not in caplog.text


def test_connection_that_nobody_has_any_more_is_closed(service):
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        stream = network(httpcore, lambda: AMPLE_S).connect_tcp("127.0.0.1", service.port)
        until(lambda: service.connections() == 1)
        around = [stream]
        around.append(around)  # only the collector finds it
        del stream, around
        gc.collect()
        until(lambda: service.connections() == 0)
    assert warned == []
