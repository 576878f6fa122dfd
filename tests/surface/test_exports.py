"""The public names: all importable, nothing else visible, one version everywhere."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import launchkit

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["launchkit", "launchkit.hostonly", "launchkit.store", "launchkit.profiling"]


@pytest.mark.parametrize("name", launchkit.__all__)
def test_public_name_is_importable(name):
    assert getattr(launchkit, name) is not None
    assert name in dir(launchkit)


def rank(name):
    """Constants, then classes, then the rest, as the linter sorts them."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_and_without_repetition(package):
    names = list(importlib.import_module(package).__all__)
    assert names in (sorted(names), sorted(names, key=rank))
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_all_exists(package):
    module = importlib.import_module(package)
    for name in module.__all__:
        assert hasattr(module, name), f"{package}.{name}"


def test_dir_shows_the_public_names_and_no_others():
    assert dir(launchkit) == sorted(launchkit.__all__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Config'"):
        launchkit.Config


def test_star_import_brings_exactly_the_public_names(tmp_path):
    code = "from launchkit import *; print(*sorted(n for n in dir() if not n.startswith('_')))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == sorted(launchkit.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "launchkit" / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in node.body
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    assert seen == set(launchkit.__all__)


@pytest.mark.parametrize("name", launchkit.__all__)
def test_public_name_is_documented(name):
    assert (getattr(launchkit, name).__doc__ or "").strip(), name


def test_no_public_name_takes_one_that_means_something_else_to_its_users():
    assert not {"Config", "Autotuner", "Profiler", "Cache"} & set(launchkit.__all__)


def test_version_is_the_projects_and_the_changelogs():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    declared = re.search(r'^version = "(.+)"$', project, re.MULTILINE).group(1)
    released = re.search(r"^## \[?v?(\d[\w.]*)", changelog, re.MULTILINE).group(1)
    assert launchkit.__version__ == declared == released
