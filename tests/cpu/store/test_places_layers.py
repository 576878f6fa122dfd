"""open_store of several places: layers in order, one of them written, none of the others touched."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from stored import RECORD, get, record_for

from launchkit import settings
from launchkit.errors import StoreError
from launchkit.store import (
    DirectoryStore,
    LayeredStore,
    MemoryStore,
    Miss,
    open_store,
    pins,
    places,
    registered,
)


@pytest.fixture
def environment(monkeypatch):
    def change(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings.reload()

    yield change
    monkeypatch.undo()
    settings.reload()


@pytest.fixture
def register(monkeypatch, tmp_path):
    """Let installed packages register entry points: name -> value."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def add(**values: str) -> None:
        points = [EntryPoint(name, value, registered.GROUP) for name, value in values.items()]
        monkeypatch.setattr(registered, "entry_points", lambda group: points)

    add()
    return add


def package(root: Path, name: str, code: str) -> Path:
    """An importable package that holds RECORD in its directory."""
    place = root / "site" / name
    DirectoryStore(place).put(RECORD)
    (place / "__init__.py").write_text(code)
    return place


@pytest.mark.parametrize("form", ["text", "spaced text", "list", "paths"])
def test_several_places_are_layers_of_which_the_first_is_written(tmp_path, form) -> None:
    paths = [tmp_path / "mine", tmp_path / "team", tmp_path / "site"]
    DirectoryStore(paths[2]).put(RECORD)
    texts = [str(each) for each in paths]
    made = {"text": ",".join(texts), "spaced text": ", ".join(texts), "list": texts}
    store = open_store(made.get(form, tuple(paths)))
    assert isinstance(store, LayeredStore)
    assert [layer.path for layer in store.layers] == paths
    assert [layer.read_only for layer in store.layers] == [False, True, True]
    assert get(store, RECORD) == RECORD
    assert store.put(record_for(1))
    assert get(DirectoryStore(paths[0]), record_for(1)) == record_for(1)
    assert not paths[1].exists()


def test_a_sequence_holds_places_whole_and_a_path_may_have_commas(tmp_path) -> None:
    odd = tmp_path / "E=64,N=128"
    for place in ([str(odd)], odd, f"file://{tmp_path}/E=64%2CN=128"):
        assert open_store(place).path == odd


def test_a_read_only_place_is_named_as_such(tmp_path) -> None:
    DirectoryStore(tmp_path).put(RECORD)
    for place in (f"ro:{tmp_path}", f"RO:file://{tmp_path}", [f"ro:{tmp_path}"]):
        store = open_store(place)
        assert isinstance(store, DirectoryStore)
        assert store.read_only
        assert store.put(record_for(1)) is False
        assert get(DirectoryStore(tmp_path), record_for(1)) == Miss("absent")
    layered = open_store(f"ro:{tmp_path},{tmp_path / 'mine'}")
    assert layered.writable is layered.layers[1]


def test_a_read_only_store_of_another_kind_is_never_asked_to_keep_anything(monkeypatch) -> None:
    inner = MemoryStore()
    inner.put(RECORD)
    monkeypatch.setattr(places, "_open_url", lambda scheme, url: inner)
    store = open_store("ro:demo://anything")
    assert (store.read_only, store.put(record_for(1))) == (True, False)
    assert [get(store, each) for each in (RECORD, record_for(1))] == [RECORD, record_for(1)]
    assert list(inner.records()) == list(store.records()) == [RECORD]
    assert list(store.records_of(RECORD.kernel.name, RECORD.key)) == [RECORD]
    assert (store.holds(RECORD), store.holds(record_for(2))) == (True, False)
    assert store.examine().read_only
    assert "read-only" in store.describe()


def test_a_lock_file_may_stand_before_a_directory(tmp_path) -> None:
    lock = tmp_path / "launchkit.lock"
    lock.write_bytes(pins.dump(pins.select([RECORD])))
    store = open_store([lock, tmp_path / "mine"])
    assert get(store, RECORD).pinned
    assert store.put(record_for(1))
    assert get(DirectoryStore(tmp_path / "mine"), record_for(1)) == record_for(1)


@pytest.mark.parametrize("place", ["/a,", ",/a", "/a,,/b", "ro:", "/a,redis://host", [""], [], [7]])
def test_a_place_that_is_no_store_is_refused_among_others_too(place) -> None:
    with pytest.raises(StoreError):
        open_store(place)


def test_registered_directories_stand_behind_the_users_by_default(
    environment, register, tmp_path
) -> None:
    place = package(tmp_path, "lk_shipped", "raise ImportError('is not run')")
    environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert isinstance(open_store(), DirectoryStore)
    register(shipped="lk_shipped")
    store = open_store()
    assert [layer.path for layer in store.layers] == [tmp_path / "cache/launchkit/configs", place]
    assert get(store, RECORD) == RECORD
    assert "lk_shipped" in store.where(RECORD)
    assert "lk_shipped" not in sys.modules
    before = sorted(place.rglob("*"))
    assert store.put(replace(RECORD, device=replace(RECORD.device, name="other")))
    assert sorted(place.rglob("*")) == before


def test_a_place_of_ones_own_has_registered_ones_where_it_asks_for_them(
    environment, register, tmp_path
) -> None:
    place = package(tmp_path, "lk_asked", "")
    register(shipped="lk_asked")
    environment(LAUNCHKIT_STORE=str(tmp_path / "own"))
    assert open_store().path == tmp_path / "own"
    environment(LAUNCHKIT_STORE=f"{tmp_path / 'own'},registered:")
    assert [layer.path for layer in open_store().layers] == [tmp_path / "own", place]
    assert open_store("registered:").path == place
    register()
    assert open_store().path == tmp_path / "own"
    with pytest.raises(StoreError, match="Give a place"):
        open_store("registered:")


def test_an_entry_point_is_a_package_a_path_or_a_function(register, tmp_path) -> None:
    code = f"import sys, pathlib\nPATH = {str(tmp_path / 'site')!r}\nHERE = pathlib.Path(PATH)\n"
    place = package(tmp_path, "lk_forms", f"{code}ME = sys.modules[__name__]\n")
    (place / "code.py").write_text("def where():\n    return __file__.rpartition('/')[0]\n")
    register(
        a="lk_forms", b="lk_forms.code:where", c="lk_forms:PATH", d="lk_forms:HERE", e="lk_forms:ME"
    )
    assert registered.registered_places() == [("a", place), ("c", tmp_path / "site")]


@pytest.mark.parametrize(
    "value",
    [
        "lk_absent", "lk_absent:X", "lk_broken:PATH", "lk_broken:FAILS", "lk_broken:RELATIVE",
        "lk_broken:GONE", "lk_broken:NUMBER", "json.decoder", "lk_broken:FILE", "lk_broken:ENDS",
    ],
)  # fmt: skip
def test_a_broken_package_costs_a_warning_and_its_own_configs_only(
    environment, register, tmp_path, caplog, value
) -> None:
    lines = ["def FAILS(): raise KeyError('x')", "RELATIVE = 'here'", "GONE = '/not/there'"]
    lines += ["NUMBER = 3", "FILE = __file__", "def ENDS(): raise SystemExit(3)"]
    package(tmp_path, "lk_broken", "\n".join(lines))
    whole = package(tmp_path, "lk_whole", "")
    environment(XDG_CACHE_HOME=str(tmp_path / "cache"))
    register(broken=value, whole="lk_whole")
    store = open_store()
    assert [layer.path for layer in store.layers[1:]] == [whole]
    assert get(store, RECORD) == RECORD
    assert len(caplog.records) == 1
    assert "broken" in caplog.text
