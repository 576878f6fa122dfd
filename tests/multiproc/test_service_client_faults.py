"""The client against real servers that are killed, lose their database, or have a full disk."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator

import pytest
from postgres import without_postgres
from service_clients import client, reason
from stored import RECORD, get, record_for

from launchkit.benchmarks import host
from launchkit.benchmarks.service.servers import Replica, Service
from launchkit.service.client import breaker, write_behind
from launchkit.service.client import store as service_client

pytest.importorskip("fastapi", reason="the extra [service] is not installed")

COUNT = 40
DEADLINE_S = 1.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for module in (breaker, write_behind):
        monkeypatch.setattr(module, "FIRST_WAIT_S", 0.05)
        monkeypatch.setattr(module, "LONGEST_WAIT_S", 0.2)


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    made = Service(f"sqlite:///{folder / 'service.db'}", folder, 1)
    yield made
    made.close()


@pytest.fixture
def opened():
    """Make clients, which are closed at the end."""
    made = []

    def make(service: Service, **changes) -> service_client.ServiceStore:
        made.append(client(service.urls[0], token=service.token("write"), **changes))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(condition) -> None:
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def stored(opened, service: Service, numbers: range) -> bool:
    """Whether a client that knows nothing yet gets each of these records."""
    fresh = opened(service)
    return all(get(fresh, record_for(n)) == record_for(n) for n in numbers)


def limit_file_sizes(replica: Replica, limit_bytes: int) -> None:
    """Let the server write no file beyond this size: to it, the disk is full."""
    for pid in (replica.pid, *host.children(replica.pid)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


def test_server_that_is_killed_while_records_come_has_all_of_them_in_the_end(opened, on_sqlite):
    (replica,) = on_sqlite.replicas
    store = opened(on_sqlite, timeout_s=DEADLINE_S)
    for n in range(COUNT):
        store.put(record_for(n))
    until(lambda: store._queue.counters["sent"] >= 3)
    replica.kill()
    acknowledged = store._queue.counters["sent"]
    assert reason(store, record_for(COUNT)) == "unreachable"
    replica.start()
    assert store.flush(60.0) == 0
    assert acknowledged < COUNT
    assert stored(opened, on_sqlite, range(COUNT))


def test_full_disk_of_the_server_delays_writes_and_no_lookup(opened, on_sqlite):
    (replica,) = on_sqlite.replicas
    store = opened(on_sqlite)
    store.put(RECORD)
    assert store.flush(60.0) == 0
    limit_file_sizes(replica, 4096)
    try:
        store.put(record_for(1000))
        until(lambda: store._queue.counters["delayed"] >= 2)
        assert get(opened(on_sqlite), RECORD) == RECORD
        assert reason(opened(on_sqlite), record_for(1000)) == "absent"
    finally:
        limit_file_sizes(replica, resource.RLIM_INFINITY)
    assert store.flush(60.0) == 0
    assert stored(opened, on_sqlite, range(1000, 1001))


@without_postgres
def test_database_that_is_down_for_a_while_loses_nothing_and_stops_no_launch(
    opened, postgres, tmp_path
):
    service = Service(postgres.create_database(), tmp_path, 1)
    try:
        store = opened(service, timeout_s=DEADLINE_S)
        store.put(record_for(0))
        assert store.flush(60.0) == 0
        postgres.stop("fast")
        try:
            for n in range(1, 5):
                store.put(record_for(n))
                assert reason(store, record_for(n)) == "hit"
            assert reason(store, record_for(9)) in ("refused", "slow", "unreachable")
            with store.enter_flight(record_for(9).identity, 60.0) as outcome:
                assert outcome == "unguarded"
        finally:
            postgres.start()
        assert store.flush(60.0) == 0
        assert stored(opened, service, range(5))
    finally:
        service.close()
