"""when_imported(): a function after the import of a package, once, and nothing else changed."""

from __future__ import annotations

import importlib
import sys

import pytest

from launchkit.when_imported import when_imported


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that can be imported, and is forgotten afterwards."""
    (tmp_path / "waited_for").mkdir()
    (tmp_path / "waited_for" / "__init__.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = list(sys.meta_path)
    yield "waited_for"
    sys.meta_path[:] = before
    sys.modules.pop("waited_for", None)


def test_called_once_after_the_import(package):
    calls = []
    when_imported(package, lambda: calls.append(sys.modules[package].value))
    assert calls == []
    importlib.import_module(package)
    importlib.import_module(package)
    assert calls == [1]


def test_called_at_once_where_the_package_is_there(package):
    importlib.import_module(package)
    calls = []
    when_imported(package, lambda: calls.append(1))
    assert calls == [1]


def test_module_and_import_system_are_as_without_it(package):
    plain = importlib.import_module(package)
    expected = type(plain.__loader__), plain.__file__, plain.__spec__.origin
    del sys.modules[package]
    before = list(sys.meta_path)
    when_imported(package, lambda: None)
    module = importlib.import_module(package)
    assert (type(module.__loader__), module.__file__, module.__spec__.origin) == expected
    assert module.__spec__.loader is module.__loader__
    assert sys.meta_path == before


def test_missing_package_is_still_missing_and_waited_for(package, tmp_path):
    calls = []
    when_imported("waited_for_long", lambda: calls.append(1))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("waited_for_long")
    (tmp_path / "waited_for_long.py").write_text("")
    importlib.invalidate_caches()
    importlib.import_module("waited_for_long")
    sys.modules.pop("waited_for_long")
    assert calls == [1]


def test_failed_import_raises_what_it_raises_and_calls_nothing(package, tmp_path):
    (tmp_path / "waited_for" / "__init__.py").write_text("raise LookupError")
    calls = []
    when_imported(package, lambda: calls.append(1))
    with pytest.raises(LookupError):
        importlib.import_module(package)
    assert calls == []


def test_two_functions_wait_for_one_package(package):
    calls = []
    for name in "ab":
        when_imported(package, lambda name=name: calls.append(name))
    importlib.import_module(package)
    assert sorted(calls) == ["a", "b"]
