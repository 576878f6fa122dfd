"""Launches with a config service behind the local store: in time, and with the right config."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import fake_service
import pytest
from benching import Bench, kernel_with, launched_block
from fake_service import Said, always, drips, error
from service_clients import SECRET, SHORT_S, client, settled
from stored import record_for

import launchkit
from launchkit import settings
from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.dispatch.stores import use_store
from launchkit.errors import NotTunedError
from launchkit.service import signing
from launchkit.store import LayeredStore, MemoryStore

pytestmark = pytest.mark.usefixtures("measuring")

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}


class Host:
    """A machine that launches the kernel with a store of its own before the service's."""

    def __init__(self, service, times=TIMES, **changes):
        self.shared = client(service, **changes)
        self.bench = Bench(times)
        self._store = LayeredStore([MemoryStore(), self.shared])

    def launch(self):
        """The config that a launch took; each of these is a process that knows nothing yet."""
        with use_store(self._store):
            return launched_block(kernel_with(self.bench))


def test_second_host_takes_the_config_that_the_first_one_tuned(service):
    first, second = Host(service), Host(service, {16: 0.1, 32: 9.0, 64: 9.0})
    assert first.launch() == 32
    settled(first.shared)
    assert second.launch() == 32
    assert (first.bench.measured, second.bench.measured) == ([16, 32, 64], [])
    assert any("config service" in layer for layer in launchkit.stats().configs.hits)


def test_service_is_asked_once_for_a_key_however_often_it_is_launched(service):
    host = Host(service)
    host.launch()
    settled(host.shared)
    asked = len(service.asked)
    with use_store(host._store):
        kernel = kernel_with(host.bench)
        for _ in range(5):
            assert launched_block(kernel) == 32
    assert len(service.asked) == asked


FAULTS = {
    "never answers": fake_service.hangs,
    "a byte at a time": drips(Said(200, b"{}" * 500)),
    "500": always(Said(500)),
    "429": always(error(429, "too-many")),
    "403": always(error(403, "forbidden")),
    "413": always(error(413, "too-large")),
    "html": always(Said(200, b"<html>")),
    "closes": fake_service.disconnects,
}


@pytest.mark.parametrize("name", FAULTS)
def test_launch_tunes_by_itself_where_the_service_fails(service, name):
    service.misbehave["everything"] = FAULTS[name]
    host = Host(service, timeout_s=SHORT_S / 4)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(host.launch).result(timeout=60) == 32
    assert host.bench.measured == [16, 32, 64]


def lying(service, change):
    """Have the service hold, for the live key, what ``change`` makes of the right record."""
    honest = Host(service)
    honest.launch()
    settled(honest.shared)
    (place, (record, _)), *_ = service.records.items()
    service.records[place] = (change(record), None)
    return record


def only(record: TunedRecord, block: int) -> TunedRecord:
    """A record whose single result is a config that the kernel does not have."""
    config = identify({"BLOCK": block, "num_warps": 4, "num_ctas": 1, "num_stages": 3})
    result = TunedConfig.measured(config, 0.001, reps=1, method="eager")
    return TunedRecord(
        record.kernel, record.device, record.toolchain, record.key, (result,), config
    )


def test_config_that_is_not_in_the_live_list_is_never_launched(service):
    lying(service, lambda record: only(record, 4096))
    host = Host(service)
    assert host.launch() == 32
    assert host.bench.measured == [16, 32, 64]


def test_record_of_another_key_is_never_launched(service):
    record = lying(service, lambda record: record)
    wrong = signing.body(replace(only(record, 64), key=record_for(1).key))
    service.misbehave["GET record"] = always(Said(200, wrong))
    host = Host(service)
    assert host.launch() == 32
    assert host.bench.measured == [16, 32, 64]


def test_unsigned_record_is_never_launched_by_who_wants_signed_ones(service):
    first = Host(service, {16: 0.1, 32: 9.0, 64: 9.0})
    assert first.launch() == 16
    settled(first.shared)
    host = Host(service, secret=SECRET)
    assert host.launch() == 32
    assert host.bench.measured == [16, 32, 64]


def test_where_tuning_is_forbidden_a_dead_service_is_the_reason_that_is_told(service, monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_REQUIRE_TUNED", "1")
    settings.reload()
    service.close()
    with pytest.raises(NotTunedError) as caught:
        Host(service).launch()
    assert caught.value.fields["reason"] == "unreachable"


def test_misses_of_a_dead_service_are_counted_by_reason(service):
    service.close()
    before = launchkit.stats().configs.misses.get("unreachable", 0)
    Host(service).launch()
    assert launchkit.stats().configs.misses["unreachable"] == before + 1
