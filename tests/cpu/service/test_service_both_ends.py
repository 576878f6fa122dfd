"""The client and the real server of the config service, over HTTP."""

from __future__ import annotations

import itertools
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from service_clients import SECRET, client, reason, settled
from sharing import config, filled, one, timed, tuned, winners
from stored import RECORD, get, record_for
from typer.testing import CliRunner

from launchkit import settings
from launchkit.service import spaces
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, Miss, flights
from launchkit.tools.configs import app

_numbers = itertools.count()


class Team:
    """A namespace of its own on the running server, and clients of it."""

    def __init__(self, served):
        self.served, self.clients = served, []
        self.name = f"team-{next(_numbers)}"
        spaces.make(served.service.database, self.name, "a test")
        self.url = f"{str(served.http.base_url).rstrip('/')}/{self.name}"

    def token(self, scope="write"):
        return self.served.token(scope, self.name)["Authorization"].removeprefix("Bearer ")

    def client(self, **changes):
        made = client(self.url, **{"token": self.token(), **changes})
        self.clients.append(made)
        return made


@pytest.fixture
def team(sqlite_service):
    flights._begin_again()
    made = Team(sqlite_service)
    yield made
    for each in made.clients:
        each.close()


def test_what_one_client_puts_another_gets(team):
    store = team.client()
    assert reason(store) == "absent"
    store.put(RECORD)
    settled(store)
    assert get(team.client(token=team.token("read")), RECORD) == RECORD
    assert list(team.client().records()) == [RECORD]
    assert list(team.client().records_of(RECORD.kernel.name)) == [RECORD]


def test_results_of_two_clients_are_merged(team):
    for record in (one(1, 128, 5.0), one(1, 256, 4.0)):
        store = team.client()
        store.put(record)
        settled(store)
    merged = get(team.client(), one(1, 128, 5.0))
    assert {each.config for each in merged.configs} == {config(128), config(256)}


def test_signing_clients_trust_each_other_and_nobody_else(team):
    for record in (one(1, 128, 5.0), one(1, 256, 4.0), one(2, 128, 5.0)):
        store = team.client(secret=SECRET)
        store.put(record)
        settled(store)
    stranger = team.client()
    stranger.put(one(3, 128, 5.0))
    settled(stranger)
    mine = team.client(secret=SECRET)
    assert len(get(mine, one(1, 128, 5.0)).configs) == 2
    assert reason(mine, one(3, 128, 5.0)) == "unsigned"
    assert {record.key.text for record in mine.records()} == {
        one(n, 128, 5.0).key.text for n in (1, 2)
    }
    stranger.put(one(1, 512, 1.0))
    settled(stranger)
    assert len(get(team.client(secret=SECRET), one(1, 128, 5.0)).configs) == 2


def test_many_signed_records_are_put_at_once(team):
    store = team.client(secret=SECRET)
    several = [record_for(n) for n in range(5)]
    assert store.put_all(several) == []
    assert len(list(team.client(secret=SECRET).records())) == 5


def test_reading_token_reads_and_what_it_would_write_is_dropped(team):
    team.client().put_all([RECORD])
    store = team.client(token=team.token("read"))
    store.put(record_for(1))
    settled(store)
    assert reason(store) == "hit"
    assert reason(team.client(), record_for(1)) == "absent"
    with store.enter_flight(record_for(2).identity, 1.0) as outcome:
        assert outcome == "unguarded"


def test_namespace_that_is_not_there_is_a_miss_that_says_so(team, caplog):
    everywhere = team.served.token("read", "*")["Authorization"].removeprefix("Bearer ")
    store = client(team.url.replace(team.name, "nowhere"), token=everywhere)
    team.clients.append(store)
    assert reason(store) == "refused"
    assert "no namespace nowhere" in caplog.text


def test_fleet_tunes_a_key_once(team):
    hosts = [LayeredStore([MemoryStore(), team.client()]) for _ in range(10)]
    gate, tunings = threading.Barrier(len(hosts)), []

    def launch(store):
        gate.wait()
        if isinstance(get(store, RECORD), Miss):
            with flights.flight(store, RECORD.identity, 60.0):
                if isinstance(get(store, RECORD), Miss):
                    tunings.append(store)
                    threading.Event().wait(0.2)
                    store.put(RECORD)
        return get(store, RECORD)

    with ThreadPoolExecutor(len(hosts)) as pool:
        found = [future.result(60) for future in [pool.submit(launch, each) for each in hosts]]
    assert len(tunings) == 1
    assert found == [RECORD] * len(hosts)


def test_killed_holders_lease_goes_to_another(team):
    killed, other = team.client(lease_s=1.0), team.client()
    with killed.enter_flight(RECORD.identity, 1.0) as outcome:
        assert outcome == "alone"
        killed._flights._held[RECORD.identity].let_go()
        with other.enter_flight(RECORD.identity, 60.0) as outcome:
            assert outcome == "waited"
    settled(killed)
    settled(other)
    with team.client().enter_flight(RECORD.identity, 1.0) as outcome:
        assert outcome == "alone"


# -- the commands


@pytest.fixture
def run(team, monkeypatch, tmp_path):
    """Run ``launchkit configs`` with the team's service."""
    monkeypatch.setenv("LAUNCHKIT_SERVICE", team.url)
    monkeypatch.setenv("LAUNCHKIT_SERVICE_TOKEN", team.token())
    monkeypatch.setenv("LAUNCHKIT_STORE", str(tmp_path / "mine"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings.reload()

    def invoke(*arguments: object, code: int = 0, as_json: bool = True):
        words = [*map(str, arguments), *(["--json"] if as_json else [])]
        result = CliRunner(env={"COLUMNS": "300"}).invoke(app, words)
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if as_json and code != 2 else result.output

    yield invoke
    monkeypatch.undo()
    settings.reload()


def test_push_sends_what_is_local_by_a_policy_and_says_what_it_did(run, team, tmp_path):
    filled(tmp_path / "mine", one(1, 128, 5.0), one(2, 128, 5.0))
    team.client().put_all([tuned(1, timed(256, 9.0), chosen=256)])
    assert run("push", "--dry-run")["added"] == 1
    assert len(list(team.client().records())) == 1
    said = run("push")
    assert (said["added"], said["replaced"], len(said["conflicts"])) == (1, 1, 1)
    assert set(winners(team.client()).values()) == {one(1, 128, 5.0).winner.text}
    again = run("push")
    assert (again["added"], again["replaced"]) == (0, 0)


def test_pull_takes_what_the_service_has_into_the_local_store(run, team, tmp_path):
    team.client().put_all([record_for(n) for n in range(3)])
    assert run("pull")["added"] == 3
    assert len(list(DirectoryStore(tmp_path / "mine").records())) == 3
    assert run("pull")["same"] == 3
    assert "3 the same" in run("pull", as_json=False)


def test_pull_leaves_out_and_tells_what_this_team_did_not_sign(run, team, monkeypatch):
    team.client().put_all([record_for(1), record_for(2)])
    monkeypatch.setenv("LAUNCHKIT_SERVICE_KEY", "a-secret-that-is-long-enough")
    settings.reload()
    said = run("pull", code=1)
    assert said["added"] == 0
    assert said["unreadable"][0]["problem"].startswith("2 records, not signed")
    assert "left out: http" in run("pull", code=1, as_json=False)


def test_pull_of_a_snapshot_takes_what_it_held(run, team, tmp_path):
    team.client().put_all([record_for(1)])
    headers = team.served.token("write", team.name)
    made = team.served.http.post(
        f"/v1/namespaces/{team.name}/snapshots", json={}, headers=headers
    ).json()
    team.client().put_all([record_for(2)])
    assert run("pull", "--snapshot", made["digest"])["added"] == 1
    assert list(DirectoryStore(tmp_path / "mine").records()) == [record_for(1)]
    run("pull", "--snapshot", "0" * 64, code=2)


def test_status_says_how_the_service_is_and_how_it_is_used(run, team):
    team.client().put_all([RECORD])
    said = run("status")
    assert said["service"]["namespace_records"] == 1
    assert (said["client"]["url"], said["client"]["writes"], said["problem"]) == (
        team.url, True, None,
    )  # fmt: skip
    assert said["answer_ms"] > 0
    shown = run("status", as_json=False)
    assert "answers in" in shown
    assert re.search(r"writes +yes *\n", shown)
    assert re.search(r"uptime s +\d+ *\n", shown)
    other = run("status", "--service", team.url + "-other", code=1, as_json=False)
    assert re.search(r"namespace records +not to be seen", other)


def test_status_of_a_service_that_is_down_is_a_finding_and_pushing_there_is_bad_use(run):
    dead = "http://127.0.0.1:9/team"
    said = run("status", "--service", dead, code=1)
    assert "cannot be asked" in said["problem"]
    assert said["answer_ms"] is None
    for command in ("push", "pull"):
        assert "cannot be asked" in run(command, "--service", dead, code=2)


def test_commands_without_a_service_say_what_to_give(run, monkeypatch):
    monkeypatch.delenv("LAUNCHKIT_SERVICE")
    settings.reload()
    for command in ("push", "pull", "status"):
        assert "LAUNCHKIT_SERVICE" in run(command, code=2)


def test_push_without_a_token_says_what_to_set(run, monkeypatch, team):
    monkeypatch.setenv("LAUNCHKIT_SERVICE_TOKEN", "")
    settings.reload()
    assert "LAUNCHKIT_SERVICE_TOKEN" in run("push", code=2)


def test_no_command_prints_the_token(run, team, tmp_path):
    token = settings.current().service_token
    filled(tmp_path / "mine", RECORD)
    for command in ("push", "pull", "status", "list"):
        assert token not in run(command, as_json=False)
        assert token not in str(run(command))
