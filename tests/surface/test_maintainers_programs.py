"""Programs for maintainers refuse what they cannot do at once, and say what to give instead."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import public_surface
import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / ".ci" / "release.py"


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", RELEASE)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("left", "taken"), [(None, True), ("notes.txt", True), ("a.tar.gz", False), ("a.whl", False)]
)
def test_release_is_built_only_where_no_other_one_is(release, tmp_path, left, taken):
    dist = tmp_path / "dist"
    assert release.takes_a_release(dist)
    dist.mkdir()
    if left:
        (dist / left).touch()
        assert not release.takes_a_release(dist / left)
    assert release.takes_a_release(dist) == taken


def test_interpreters_are_found_from_elsewhere_too_and_each_once(release, tmp_path, monkeypatch):
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    own = str(tmp_path / "python")
    assert release.interpreters(["./python", own]) == [own]
    assert release.interpreters(["./python", "./no-such-python"]) == []


def test_release_check_refuses_bad_use_before_it_builds(tmp_path):
    (tmp_path / "a.whl").touch()
    for options in (["--dist", str(tmp_path)], ["./no-such-python"]):
        done = subprocess.run(
            [sys.executable, RELEASE, *options], capture_output=True, text=True, cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "; give " in done.stderr


def test_public_surface_says_what_it_lacks(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(public_surface, "COMMITTED", tmp_path / "absent.txt")
    with pytest.raises(SystemExit, match=r"absent\.txt is missing.*--update"):
        public_surface.main(["--check"])
    with pytest.raises(SystemExit) as refused:
        public_surface.main(["--chekc"])
    assert refused.value.code == 2
    assert "unknown: --chekc. Give --check" in capsys.readouterr().err
