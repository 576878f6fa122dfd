"""open_store: every place that can be a store, and a clear error for every other one."""

from __future__ import annotations

import pathlib
from dataclasses import replace
from typing import Any

import pytest

from launchkit import settings
from launchkit.configs import TunedConfig, identify
from launchkit.errors import StoreError
from launchkit.keys import Toolchain
from launchkit.store import (
    DirectoryStore,
    MemoryStore,
    Miss,
    default_place,
    document,
    open_store,
    places,
)

GOLDEN = (pathlib.Path(__file__).parents[2] / "data" / "config_document_v1.json").read_bytes()
RECORDS = document.parse(GOLDEN, source="golden").records


@pytest.fixture
def environment(monkeypatch):
    def change(**variables: str) -> None:
        monkeypatch.delenv("LAUNCHKIT_STORE", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings.reload()

    yield change
    monkeypatch.undo()
    settings.reload()


def test_left_out_it_is_the_users_cache(environment, tmp_path) -> None:
    environment(XDG_CACHE_HOME=str(tmp_path))
    store = open_store()
    assert isinstance(store, DirectoryStore)
    assert store.path == tmp_path / "launchkit" / "configs" == pathlib.Path(default_place())
    assert not store.path.exists()


def test_the_environment_names_the_place(environment, tmp_path) -> None:
    environment(LAUNCHKIT_STORE=str(tmp_path / "here"))
    assert open_store().path == tmp_path / "here"
    environment(LAUNCHKIT_STORE="memory:")
    assert isinstance(open_store(), MemoryStore)
    environment(LAUNCHKIT_STORE="")
    assert isinstance(open_store(), DirectoryStore)


def test_paths_and_file_urls_are_directories(tmp_path, monkeypatch) -> None:
    spaced = tmp_path / "with space"
    for place in (
        spaced,
        str(spaced),
        f"file:{spaced}",
        f"file://{tmp_path}/with%20space",
        f"FILE://localhost{spaced}",
    ):
        assert open_store(place).path == spaced
    monkeypatch.chdir(tmp_path)
    assert open_store("relative").path == tmp_path / "relative"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_store("~/configs").path == tmp_path / "configs"


def test_a_user_without_a_home_is_told_what_to_set(environment, monkeypatch) -> None:
    def unknown(name: str) -> pathlib.Path:
        raise RuntimeError("could not determine the home directory")

    environment()
    for found in (unknown, lambda name: pathlib.Path("~/.cache", name)):
        monkeypatch.setattr("platformdirs.user_cache_path", found)
        with pytest.raises(StoreError, match="Or set LAUNCHKIT_STORE"):
            open_store()


def test_a_relative_place_below_a_deleted_directory_is_a_store_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreError, match="Give the whole path"):
        open_store("relative")


def test_each_memory_store_is_its_own() -> None:
    one, other = open_store("memory:"), open_store("Memory:")
    one.put(RECORDS[0])
    assert list(one.records()) == [RECORDS[0]]
    assert list(other.records()) == []


@pytest.mark.parametrize(
    "place",
    [
        "redis://host:6379",
        "gopher://host/x",
        "",
        "file://host/x",
        "file://",
        "file:relative",
        "memory://",
        "~nobody-here/x",
        b"/bytes",
        42,
    ],
)
def test_a_place_that_is_no_store_says_what_to_give(place: Any) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(place)
    assert any(word in str(caught.value) for word in ("Install", "Give", "Write"))


def test_an_unknown_scheme_names_what_is_installed(monkeypatch) -> None:
    monkeypatch.setattr(places, "entry_points", lambda group: [Point(MemoryStore())])
    known = r"file://, memory:, demo://, http://, https://"
    with pytest.raises(StoreError, match=rf"for redis:// \(there are: {known}\)"):
        open_store("redis://host")


class Point:
    name, value = "Demo", "demo:make"

    def __init__(self, made: object) -> None:
        self.made = made

    def load(self):
        if isinstance(self.made, (ImportError, SystemExit)):
            raise self.made
        return self.make

    def make(self, url: str) -> object:
        if isinstance(self.made, KeyError):
            raise self.made
        return self.made


def test_an_installed_package_opens_its_scheme(monkeypatch) -> None:
    made = MemoryStore()
    monkeypatch.setattr(places, "entry_points", lambda group: [Point(made)])
    assert open_store("demo://anything") is made
    assert open_store("DEMO://anything") is made


@pytest.mark.parametrize("made", [ImportError("broken"), SystemExit(3), KeyError("port"), object()])
def test_a_broken_package_is_a_store_error(monkeypatch, made: object) -> None:
    monkeypatch.setattr(places, "entry_points", lambda group: [Point(made)])
    with pytest.raises(StoreError, match="demo:make"):
        open_store("demo://anything")


def test_memory_store_keeps_the_contract() -> None:
    store, record = MemoryStore(), RECORDS[0]
    assert store.get(*record.identity) == Miss("absent")
    assert store.put(record)
    assert store.put(record)
    assert store.get(*record.identity) == record
    other = replace(record, toolchain=Toolchain("0"))
    assert store.get(*other.identity) == Miss("toolchain")
    store.put(other)
    more = TunedConfig.failed(identify({"BLOCK": 1}), "no", method="events")
    store.discard(replace(record, configs=(*record.configs, more)))
    assert store.get(*record.identity) == record  # another one than was to go
    store.discard(record)
    assert store.get(*record.identity) == Miss("toolchain")
    assert list(store.records()) == [other]
    store.discard(other)
    store.discard(other)
    assert store.get(*other.identity) == Miss("absent")
