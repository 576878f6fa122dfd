"""From LAUNCHKIT_SERVICE and its relatives to a layer: what is shown to whom, and kept where."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import fake_service
import pytest
import typer
from fake_service import TOKEN
from service_clients import reason, settled
from stored import RECORD, get, record_for
from typer.testing import CliRunner

from launchkit import settings
from launchkit.dispatch import stores
from launchkit.errors import StoreError, UsageError
from launchkit.service.client.opening import open_service
from launchkit.service.client.store import ServiceStore
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, open_store, places
from launchkit.tools import doctor

POINTS = [
    EntryPoint(name, "launchkit.service.client.opening:open_service", places.ENTRY_POINT_GROUP)
    for name in ("http", "https")
]


@pytest.fixture
def say(monkeypatch, tmp_path):
    """Set LAUNCHKIT_SERVICE* and others; directories are of this test."""
    monkeypatch.setattr(places, "entry_points", lambda group: POINTS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def change(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"LAUNCHKIT_{name}", value)
        settings.reload()

    change()
    yield change
    monkeypatch.undo()
    settings.reload()


def test_service_stands_behind_the_places_that_there_are_without_it(say, service, tmp_path):
    say(SERVICE=service.url, SERVICE_TOKEN=TOKEN)
    own, *_, shared = open_store().layers
    assert own.describe() == f"directory {tmp_path}/cache/launchkit/configs"
    assert shared.describe() == f"config service {service.url}"
    say(STORE=f"{tmp_path}/mine,ro:{tmp_path}/team")
    mine, team, shared = open_store().layers
    assert (team.read_only, shared.is_remote) == (True, True)
    assert open_store().writable.describe() == mine.describe()


def test_service_can_be_a_place_among_others_and_read_only(say, service, tmp_path):
    say(SERVICE_TOKEN=TOKEN)
    store = open_store(f"{tmp_path},ro:{service.url}")
    assert isinstance(store, LayeredStore)
    store.put(RECORD)
    assert store.layers[1].read_only
    assert store.is_remote
    (alone,) = [open_store(service.url)]
    assert isinstance(alone, ServiceStore)


def test_what_is_tuned_reaches_the_service_of_the_environment(say, service, tmp_path):
    say(SERVICE=service.url, SERVICE_TOKEN=TOKEN, STORE=str(tmp_path / "mine"))
    store = open_store()
    store.put(RECORD)
    settled(store.layers[-1])
    assert service.stored() == [RECORD]
    assert DirectoryStore(tmp_path / "mine").holds(RECORD)


def test_token_is_shown_to_the_service_that_it_is_for_and_to_no_other(say, service):
    with fake_service.running() as other:
        say(SERVICE=service.url, SERVICE_TOKEN=TOKEN)
        for where in (service, other):
            assert reason(open_service(where.url)) == "absent"
        say(SERVICE=f"ro:{service.url}")
        reason(open_service(other.url))
        assert {each.headers.get("authorization") for each in other.asked} == {None}
        assert {each.headers.get("authorization") for each in service.asked} == {f"Bearer {TOKEN}"}


def test_what_the_service_gave_answers_at_the_next_start_though_it_is_down(say, service):
    say(SERVICE=service.url, SERVICE_TOKEN=TOKEN, SERVICE_TIMEOUT_MS="20000")
    service.hold(RECORD)
    store = open_service(service.url)
    assert get(store, RECORD) == RECORD
    settled(store)
    service.close()
    assert get(open_service(service.url), RECORD) == RECORD
    assert reason(open_service(service.url.replace("team", "others"))) == "unreachable"


def test_what_counted_without_a_signing_key_does_not_count_with_one(say, service):
    say(SERVICE=service.url, SERVICE_TIMEOUT_MS="20000")
    service.hold(RECORD)
    store = open_service(service.url)
    get(store, RECORD)
    settled(store)
    say(SERVICE_KEY="a key of sixteen".replace(" ", "-"))
    assert reason(open_service(service.url)) == "unsigned"
    service.close()
    assert reason(open_service(service.url)) == "unreachable"


def test_token_that_goes_over_a_network_unencrypted_is_a_warning_without_it(say, caplog):
    say(SERVICE="http://configs.example/team", SERVICE_TOKEN=TOKEN)
    open_service("http://configs.example/team")
    assert "unencrypted" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(("name", "value"), [
    ("SERVICE_TOKEN", "two words"), ("SERVICE_TOKEN", "tökén"), ("SERVICE_TOKEN", "a\nb"),
    ("SERVICE_KEY", "short-secret"), ("SERVICE_KEY", "a long secret but two words"),
])  # fmt: skip
def test_bad_secret_is_refused_without_being_told(say, name, value):
    with pytest.raises(UsageError) as caught:
        say(**{name: value})
    assert f"LAUNCHKIT_{name}" in str(caught.value)
    assert value not in str(caught.value)


@pytest.mark.parametrize("value", ["0", "-1", "0.5", "1e3", "a minute", "60001", "9" * 50, "٣"])
def test_bad_deadline_is_refused(say, value):
    with pytest.raises(UsageError, match="LAUNCHKIT_SERVICE_TIMEOUT_MS"):
        say(SERVICE_TIMEOUT_MS=value)


def test_deadline_and_lease_are_taken_from_the_environment(say, service):
    say(SERVICE_TIMEOUT_MS="250", SERVICE_LEASE_S="7")
    assert open_service(service.url)._given == (None, 0.25, 7.0)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_service_is_found_where_no_metadata_name_its_entry_point(say, monkeypatch, scheme):
    monkeypatch.setattr(places, "entry_points", lambda group: [])
    say(SERVICE=f"{scheme}://127.0.0.1:1/team")
    assert open_store().layers[-1].describe() == f"config service {scheme}://127.0.0.1:1/team"


def test_what_another_package_registers_for_a_scheme_goes_before(say, monkeypatch):
    other = EntryPoint("http", "launchkit.store:MemoryStore", places.ENTRY_POINT_GROUP)
    monkeypatch.setattr(other.__class__, "load", lambda self: lambda url: MemoryStore())
    monkeypatch.setattr(places, "entry_points", lambda group: [other])
    assert isinstance(open_store("http://anything/team"), MemoryStore)


def no_httpcore(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpcore", None)


def broken_client(monkeypatch):
    point = EntryPoint("https", "launchkit.no_such_module:open", places.ENTRY_POINT_GROUP)
    monkeypatch.setattr(places, "entry_points", lambda group: [point])


@pytest.mark.parametrize(("url", "fault"), [
    ("https://host/Not A Namespace", None), ("htps://host/team", None), ("host/team", None),
    ("https:/host/team", None),
    ("https://host/team", no_httpcore), ("https://host/team", broken_client),
])  # fmt: skip
@pytest.mark.parametrize("behind", [True, False])
def test_service_that_cannot_be_opened_fails_open_store_and_not_the_store_of_launches(
    say, monkeypatch, tmp_path, caplog, url, fault, behind
):
    if fault:
        fault(monkeypatch)
    mine = str(tmp_path / "mine")
    if behind or not url.startswith("https://"):
        say(SERVICE=url, STORE=mine)
    else:
        say(STORE=f"{mine},ro:{url}")
    with pytest.raises(StoreError):
        open_store()
    store = stores._open_default()
    assert store.describe() == f"directory {mine}"
    assert store.put(RECORD)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert "Launches go on without it" in caplog.text


def test_service_alone_that_cannot_be_opened_leaves_launches_a_store_in_memory(
    say, monkeypatch, caplog
):
    no_httpcore(monkeypatch)
    say(STORE="https://host/team")
    assert isinstance(stores._open_default(), MemoryStore)
    assert "httpcore" in caplog.text


def test_directory_behind_a_service_that_is_left_out_is_only_read_as_before(
    say, monkeypatch, tmp_path
):
    shared = tmp_path / "shared"
    assert DirectoryStore(shared).put(RECORD)
    before = {path: path.read_bytes() for path in shared.rglob("*.json")}
    no_httpcore(monkeypatch)
    say(STORE=f"https://host/team,{shared}")
    store = stores._open_default()
    assert store.get(*RECORD.identity) == RECORD
    other = record_for(2)
    assert store.put(other)
    assert store.get(*other.identity) == other
    assert {path: path.read_bytes() for path in shared.rglob("*.json")} == before


def test_cache_directory_that_is_none_leaves_the_service_behind_it(say, service, tmp_path, caplog):
    cache = tmp_path / "cache"
    (cache / "launchkit").mkdir(parents=True)
    (cache / "launchkit" / "configs").write_text("a file")
    say(SERVICE=service.url)
    service.hold(RECORD)
    assert stores._open_default().get(*RECORD.identity) == RECORD
    assert "kept for this process only" in caplog.text


def test_another_place_that_cannot_be_opened_is_still_an_error(say, tmp_path):
    say(STORE=f"{tmp_path},redis://host", SERVICE="https://host/team")
    with pytest.raises(StoreError, match="redis"):
        stores._open_default()


def test_user_without_a_home_has_the_service_alone(say, service, monkeypatch):
    say(SERVICE=service.url, SERVICE_TOKEN=TOKEN)

    def homeless() -> None:
        raise UsageError("this user has no home directory.")

    monkeypatch.setattr(settings, "cache_home", homeless)
    store = open_store()
    shared = store.layers[-1] if isinstance(store, LayeredStore) else store
    assert shared.copy is None
    assert store.put(RECORD) is False
    settled(shared)
    assert service.stored() == [RECORD]


def test_secrets_are_in_no_listing_of_the_environment(say, service):
    key = "a-signing-key-of-the-team"
    say(SERVICE=service.url, SERVICE_TOKEN=TOKEN, SERVICE_KEY=key,
        DATABASE="postgresql://me:my-password@host/db")  # fmt: skip
    listed = repr(settings.variables()) + repr(settings.current())
    app = typer.Typer()
    app.command()(doctor.command)
    told = CliRunner().invoke(app, ["--json", "--no-trial"]).output
    assert service.url in told
    for secret in (TOKEN, key, "my-password"):
        assert secret not in listed + told
