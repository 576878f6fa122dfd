"""What launchkit promises is written down, so that a change of it is seen in review."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

import public_surface
import pytest

from launchkit import settings
from launchkit.tools import commands

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
QUOTED = " ".join(re.findall(r"`([^`]+)`", CHANGELOG))
SAID = {*re.findall(r"\w+", QUOTED), *re.findall(r"[\w.]+", QUOTED)}
UPDATE = "python tests/support/public_surface.py --update"


def test_public_names_signatures_and_options_are_those_that_are_written_down():
    # In a process of its own: recording puts other functions in the place of public ones.
    done = subprocess.run(
        [sys.executable, public_surface.__file__], capture_output=True, text=True, check=True
    )
    committed = public_surface.COMMITTED.read_text(encoding="utf-8")
    changes = difflib.unified_diff(
        committed.splitlines(), done.stdout.splitlines(), "written down", "now", n=0, lineterm=""
    )
    told = "\n".join(changes)
    assert done.stdout == committed, f"{told}\nIf that is meant: {UPDATE}, and say it in CHANGELOG."


@pytest.mark.parametrize("module", public_surface.names())
def test_changelog_has_every_public_name(module):
    names = [] if module == "launchkit.errors" else public_surface.names()[module]
    assert set(names) <= SAID


def test_changelog_has_every_command():
    for path in public_surface.programs():
        *above, last = path.split()
        alternatives = rf"{' '.join(above)} ([\w-]+\|)*{last}(\||\b)" if above else last
        assert re.search(alternatives, CHANGELOG), path


def test_changelog_has_every_environment_variable_and_entry_point_group():
    assert {variable.name for variable in settings.variables()} <= SAID
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert set(re.findall(r'^\[project\.entry-points\."(.+)"\]$', project, re.MULTILINE)) <= SAID
    assert "launchkit.config_directories" in SAID


def test_every_option_of_every_command_says_what_it_is_for():
    for name in commands.COMMANDS:
        for path, command in public_surface.walk(f"launchkit {name}", commands.imported(name)):
            assert command.help or command.callback.__doc__, path
            for parameter in command.params:
                assert parameter.help, f"{path} {parameter.opts}"


def test_every_command_is_in_a_document():
    documents = "".join(
        path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    )
    for path in public_surface.programs():
        *above, last = path.split()
        if above:
            assert re.search(rf"{' '.join(above)} ([\w-]+\|)*{last}(\||\b)", documents), path
