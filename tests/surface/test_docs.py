"""Documents name everything that exists, and nothing that does not."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import typer.main

from launchkit import settings
from launchkit.tools import cli

ROOT = Path(__file__).resolve().parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_variable_is_documented_and_every_documented_one_is_read():
    source = text("launchkit/settings.py")
    read = set(re.findall(r'"((?:LAUNCHKIT_)\w+)"', source)) | {"CC"}
    rows = set(re.findall(r"^\| `(\w+)` \|", text("docs/environment.md"), re.MULTILINE))
    assert rows == read
    assert len(read) == len(dataclasses.fields(settings.Settings))


def test_every_command_is_in_the_readme():
    root = typer.main.get_command(cli.app)
    for name, group in root.commands.items():
        for command in getattr(group, "commands", {}):
            documented = rf"launchkit {name} ([\w|]*\|)?{command}\b"
            assert re.search(documented, text("README.md") + text("CHANGELOG.md")), (name, command)


def test_readme_links_and_named_folders_exist():
    readme = text("README.md")
    for target in re.findall(r"\]\(([^)#]+)\)", readme):
        assert target.startswith("http") or (ROOT / target).exists(), target
    for folder in re.findall(r"`(\w+/)`", readme):
        assert (ROOT / folder).is_dir() or (ROOT / "launchkit" / folder).is_dir(), folder
