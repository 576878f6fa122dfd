"""Real servers over one real PostgreSQL: a fleet tunes once, and what was acknowledged stays."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from postgres import without_postgres

pytest.importorskip("fastapi", reason="the extra [service] is not installed")

from launchkit.benchmarks import host
from launchkit.benchmarks.service import faults, fleet, load, records, soak
from launchkit.benchmarks.service.bench import UNLIMITED
from launchkit.benchmarks.service.requests import Plan, drive
from launchkit.benchmarks.service.servers import Service
from launchkit.service.client.store import ServiceStore
from launchkit.store import Miss

pytestmark = without_postgres

HOSTS = 12


@pytest.fixture(scope="module")
def service(postgres, tmp_path_factory) -> Iterator[Service]:
    """Two replicas over one database."""
    folder: pathlib.Path = tmp_path_factory.mktemp("service")
    made = Service(postgres.create_database(), folder, 2, UNLIMITED)
    yield made
    made.close()


@pytest.fixture
def numbers() -> faults.Numbers:
    return faults.Numbers(random.SystemRandom().randrange(10**8, 10**9))


def test_hosts_on_two_replicas_that_miss_one_key_at_once_tune_it_once(service, numbers) -> None:
    row = fleet.together(service, HOSTS, 1, numbers.take(), tune_s=0.3)
    assert row["ok"], row
    assert (row["tuned"], row["got_the_result"], row["with_torch"]) == (1, HOSTS, False)


def test_each_of_several_keys_is_tuned_once(service, numbers) -> None:
    row = fleet.together(service, HOSTS, 3, numbers.take(), tune_s=0.3)
    assert row["ok"], row
    assert (row["tuned"], row["got_the_result"]) == (3, HOSTS)


def test_when_the_host_that_tunes_is_killed_one_of_the_others_tunes(service, numbers) -> None:
    row = fleet.holder_killed(service, 4, numbers.take(), tune_s=0.3, lease_s=2)
    assert row["ok"], row
    assert (row["tuned"], row["got_the_result"], row["ended_early"]) == (2, 4, 0)


@pytest.mark.parametrize("fault", ["server killed", "server stopped in order",
                                   "database down and back", "database crashed and back"])  # fmt: skip
def test_no_acknowledged_write_is_lost(service, postgres, numbers, fault) -> None:
    causes = faults.faults(service, postgres, random.Random(fault))
    row = faults.row(service, fault, causes[fault], 1, numbers)
    assert row["ok"], row
    assert row["acknowledged"] >= faults.WRITERS
    never_written = numbers.take()
    assert faults.missing(service, [never_written]) == [never_written]


@pytest.fixture(scope="module")
def filled(service) -> dict[str, Any]:
    """Two hundred records, half of them by bundles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "BY_BUNDLES", 100)
        return load.fill(service, 200)


def test_lookups_of_each_kind_are_answered_rightly_by_both_replicas(service, filled) -> None:
    assert filled["by_bundles"]["created"] == 100
    assert filled["past_the_api"]["records"] == 100
    pool = load.Pool(range(200), service.token("read"), seed=1)
    for asks in pool.kinds().values():
        seen = drive(service.ports, Plan(asks, clients=20, seconds=0.3))
        assert (seen.errors, seen.wrong) == (0, [])
        assert len(seen.times_us) >= 20


def test_what_is_tuned_while_the_server_is_killed_is_sent_when_it_is_back(service, numbers) -> None:
    record, (killed, other) = records.record(numbers.take()), service.replicas
    mine, theirs = (
        ServiceStore(each.url, token=service.token("write"), timeout_s=20.0)
        for each in (killed, other)
    )
    assert mine.get(*record.identity) == Miss("absent")
    killed.kill()
    assert not mine.put(record)  # it is kept and sent, but not there yet
    assert mine.get(*record.identity) == record
    killed.start()
    assert mine.flush(60.0) == 0
    assert theirs.get(*record.identity) == record


def test_every_kind_of_request_has_the_answer_that_it_deserves(service, filled) -> None:
    mix = soak.Mix(service, 200, seed=1)
    for name, (_, asks) in mix.kinds.items():
        seen = drive(service.ports, Plan(asks, clients=4, seconds=0.05))
        assert (seen.errors, seen.wrong) == (0, []), name


def test_no_secret_stands_in_a_log(service, postgres) -> None:
    log = service.log + postgres.log
    assert " PUT " in log
    # The part of a token behind its id, which may hold more of what stands between the parts.
    tokens = (service.token(scope).split("_", 2)[2] for scope in ("read", "write", "admin"))
    for secret in (postgres.secret, *tokens):
        assert len(secret) > 16
        assert secret not in log
    assert "Traceback" not in service.log


def test_a_benchmark_that_is_told_to_end_leaves_no_server_behind(tmp_path) -> None:
    command = [sys.executable, "-m", "launchkit", "bench", "service", "--soak", "--database", "sqlite",
               "--replicas", "1", "--records", "100", "--seconds", "600"]  # fmt: skip
    variables = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=variables, stderr=subprocess.DEVNULL) as bench:
        while not (servers := host.children(bench.pid)) or "serves" not in _logs(tmp_path):
            assert bench.poll() is None
            time.sleep(0.05)
        bench.terminate()
        assert bench.wait(60) == 128 + signal.SIGTERM
    assert not [server for server in servers if pathlib.Path(f"/proc/{server}").exists()]
    assert list(tmp_path.iterdir()) == []


def _logs(folder: pathlib.Path) -> str:
    return "".join(each.read_text() for each in folder.rglob("replica-*.log"))
