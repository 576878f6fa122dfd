"""A fleet tunes a key once, by leases of the config service; whatever happens to them, it goes on."""

from __future__ import annotations

import datetime
import threading
from concurrent.futures import ThreadPoolExecutor

import fake_service
import pytest
from fake_service import error
from service_clients import client, reason, settled
from sharing import one
from stored import RECORD, get, record_for

from launchkit import clock
from launchkit.configs import merge_records
from launchkit.service.client import store as service_client
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, Miss, flights

PATIENT_S = 60.0


@pytest.fixture(autouse=True)
def new_process():
    flights._begin_again()


class Host:
    """One of a fleet: a store of its own before the service's."""

    def __init__(self, service, **changes):
        self.shared = client(service, **{"timeout_s": 5.0, **changes})
        self.store = LayeredStore([MemoryStore(), self.shared])
        self.tuned = 0

    def launch(self, record=RECORD, tune=lambda: None, timeout_s=PATIENT_S):
        """What a launch does whose config is not known; how its flight went."""
        if not isinstance(get(self.store, record), Miss):
            return "known"
        with flights.flight(self.store, record.identity, timeout_s) as outcome:
            if isinstance(get(self.store, record), Miss):
                tune()
                self.tuned += 1
                self.store.put(record)
        return outcome


def in_threads(*works):
    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result(timeout=PATIENT_S) for future in [pool.submit(w) for w in works]]


def test_hosts_that_miss_one_key_at_once_tune_it_once_and_all_get_it(service):
    hosts = [Host(service) for _ in range(12)]
    gate = threading.Barrier(len(hosts))

    def start(host):
        gate.wait()
        return host.launch(tune=lambda: threading.Event().wait(0.2))

    outcomes = in_threads(*[lambda host=host: start(host) for host in hosts])
    assert sum(host.tuned for host in hosts) == 1
    assert set(outcomes) <= {"alone", "waited", "known"}
    assert [get(host.store, RECORD) for host in hosts] == [RECORD] * len(hosts)
    for host in hosts:
        settled(host.shared)
    assert service.leases == {}


def test_keys_do_not_wait_for_each_other(service):
    hosts = [Host(service), Host(service)]
    gate = threading.Barrier(2)
    meets = [lambda n=n: hosts[n].launch(record_for(n), tune=gate.wait) for n in range(2)]
    assert in_threads(*meets) == ["alone", "alone"]


def test_lease_is_kept_while_its_holder_tunes_for_longer_than_it_lasts(service):
    slow, other = Host(service, lease_s=1.0), Host(service)
    held = threading.Event()

    def tune():
        held.set()
        threading.Event().wait(1.7)

    def wait():
        held.wait(PATIENT_S)
        return other.launch()

    in_threads(lambda: slow.launch(tune=tune), wait)
    assert (slow.tuned, other.tuned) == (1, 0)
    assert service.counts()["PUT leases"] >= 2


def test_when_the_holder_is_killed_another_takes_over_and_a_late_record_harms_nobody(service):
    killed, other = Host(service), Host(service)
    with flights.flight(killed.store, RECORD.identity) as outcome:
        assert outcome == "alone"
        killed.shared._flights._held[RECORD.identity].let_go()  # it renews no more
        assert in_threads(other.launch) == ["waited"]
        assert other.tuned == 1
        settled(other.shared)
        killed.store.put(RECORD)
    settled(killed.shared)
    assert service.stored() == [RECORD]


def test_record_that_came_between_a_look_and_a_free_lease_is_taken(service):
    host, asked = Host(service), []

    def lease(request, connection):
        asked.append(request)
        if len(asked) == 1:
            held = {"holder": "another", "expires_in_s": 0.0, "retry_after_s": 0.05}
            return error(409, "lease-held", lease=held)
        service.hold(RECORD)
        return service.behave(request)

    service.misbehave["POST leases"] = lease
    assert host.launch() == "waited"
    assert (host.tuned, len(asked)) == (0, 2)
    assert get(host.store, RECORD) == RECORD
    settled(host.shared)
    assert service.leases == {}


def test_after_a_tuning_that_failed_the_next_one_tunes(service):
    failing, other = Host(service), Host(service)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing.launch(tune=fail)
    settled(failing.shared)
    assert service.counts()["DELETE leases"] == 1
    assert other.launch() == "alone"


def test_holder_says_that_it_completed_only_once_the_record_is_there(service):
    host = Host(service)
    host.launch()
    settled(host.shared)
    kinds = [f"{each.method} {each.kind}" for each in service.asked]
    assert kinds.index("PUT record") < len(kinds) - 1
    assert service.asked[-1].path.endswith("/complete")


def test_record_that_came_between_the_miss_and_the_lease_is_taken(service):
    host = Host(service)
    assert reason(host.store) == "absent"
    service.hold(RECORD)
    assert host.launch() == "waited"
    assert host.tuned == 0


def test_flight_within_another_keys_flight_does_not_wait(service):
    host, other = Host(service), Host(service)
    held = flights.flight(other.store, RECORD.identity)
    around = flights.flight(host.store, record_for(1).identity)
    with held, around, flights.flight(host.store, RECORD.identity, PATIENT_S) as outcome:
        assert outcome == "nested"


def test_where_time_is_up_the_launch_tunes_by_itself(service):
    host, other = Host(service), Host(service)
    with flights.flight(other.store, RECORD.identity):
        assert in_threads(lambda: host.launch(timeout_s=0.2)) == ["late"]
    assert host.tuned == 1


@pytest.mark.parametrize("fault", [
    fake_service.hangs,
    fake_service.disconnects,
    fake_service.always(error(500, "internal")),
    fake_service.always(error(429, "too-many", headers={"Retry-After": "1"})),
    fake_service.always(error(403, "forbidden")),
    fake_service.always(fake_service.Said(200, b"<html>welcome</html>")),
    fake_service.always(fake_service.json_said(201, {"token": 7})),
    fake_service.always(fake_service.json_said(409, {"code": "lease-held", "message": "no state"})),
], ids=["hangs", "closes", "500", "429", "403", "html", "lies", "no state"])  # fmt: skip
def test_service_that_gives_no_lease_keeps_no_launch_from_tuning(service, fault):
    service.misbehave["leases"] = fault
    host = Host(service, timeout_s=0.02)
    assert in_threads(host.launch) == ["unguarded"]
    assert host.tuned == 1


def test_service_that_never_answers_is_soon_not_asked_for_leases_any_more(service):
    service.misbehave["leases"] = fake_service.hangs
    host = Host(service, timeout_s=0.02)
    for n in range(6):
        host.launch(record_for(n))
    assert service.counts()["POST leases"] == 3


def test_service_that_dies_while_others_wait_lets_them_tune(service):
    holder, waiting = Host(service), Host(service, timeout_s=0.05)
    with flights.flight(holder.store, RECORD.identity):
        polled = threading.Event()

        def watch(asked, connection):
            polled.set()
            return service.behave(asked)

        def die():
            polled.wait(PATIENT_S)
            service.close()

        service.misbehave["GET record"] = watch
        outcome, _ = in_threads(waiting.launch, die)
    assert outcome == "unguarded"
    assert waiting.tuned == 1


def test_short_outage_while_others_wait_makes_nobody_tune_twice(service):
    holder, waiting = Host(service), Host(service)
    failures = []

    def flaky(asked, connection):
        failures.append(asked)
        return service.behave(asked) if len(failures) > 5 else error(503, "unavailable")

    with flights.flight(holder.store, RECORD.identity):
        service.misbehave["GET record"] = flaky

        def finish():
            while len(failures) < 5:
                threading.Event().wait(0.01)
            service.hold(RECORD)

        outcome, _ = in_threads(waiting.launch, finish)
    assert (outcome, waiting.tuned) == ("waited", 0)


def test_clocks_of_hosts_and_service_may_differ_by_years(service, monkeypatch):
    years = iter(range(1990, 2090))

    def skewed():
        return datetime.datetime(next(years), 1, 1, tzinfo=datetime.timezone.utc)

    def dated(asked, connection):
        said = service.behave(asked)
        said.headers["Date"] = "Thu, 01 Jan 1970 00:00:00 GMT"
        return said

    monkeypatch.setattr(clock, "utc_now", skewed)
    service.misbehave["everything"] = dated
    hosts = [Host(service) for _ in range(4)]
    in_threads(*[host.launch for host in hosts])
    assert sum(host.tuned for host in hosts) == 1
    assert [get(host.store, RECORD) for host in hosts] == [RECORD] * 4


def test_processes_of_one_machine_ask_for_one_lease(service, tmp_path):
    layers = [LayeredStore([DirectoryStore(tmp_path), client(service)]) for _ in range(6)]
    gate = threading.Barrier(len(layers))

    def launch(store):
        gate.wait()
        with flights.flight(store, RECORD.identity, PATIENT_S):
            if isinstance(get(store, RECORD), Miss):
                threading.Event().wait(0.3)
                store.put(RECORD)

    in_threads(*[lambda store=store: launch(store) for store in layers])
    assert service.granted.total() == 1


def test_agreed_ranks_enter_the_fleets_flight_too(service):
    from launchkit.dispatch.ranks.store import RankStore

    host, other = Host(service), Host(service)
    ranks = RankStore(host.store, lambda kernel: True)
    with flights.flight(ranks, RECORD.identity) as outcome:
        assert outcome == "alone"
        assert in_threads(lambda: other.launch(timeout_s=0.2)) == ["late"]


def test_hosts_whose_own_records_lack_a_new_config_measure_it_once(service):
    old, new = one(1, 128, 5.0), one(1, 256, 4.0)
    service.hold(old)
    hosts = [Host(service) for _ in range(6)]
    for host in hosts:
        host.store.layers[0].put(old)
    gate, measured = threading.Barrier(len(hosts)), []

    def has_all(host):
        return len(get(host.store, old).configs) == 2

    def launch(host):
        gate.wait()
        with flights.flight(host.store, old.identity, PATIENT_S):
            if not has_all(host):
                measured.append(host)
                threading.Event().wait(0.2)
                host.store.put(merge_records(old, new))
        return has_all(host)

    assert in_threads(*[lambda host=host: launch(host) for host in hosts]) == [True] * len(hosts)
    assert len(measured) == 1


def test_read_only_layer_takes_no_lease(service):
    host = Host(service, token=None)
    assert host.launch() == "alone"
    assert service.counts()["POST leases"] == 0
    assert service_client.ServiceStore.read_only.fget(host.shared)
