"""What an import of launchkit and the list of its commands bring in: no more than they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from launchkit.tools import commands

LOADED = """
import sys
before = set(sys.modules)
try:
    {}
except SystemExit:
    pass
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""
LISTED = """sys.argv = ["launchkit", {!r}]
    import launchkit.__main__
    launchkit.__main__.main()"""
LEAVES = {f"launchkit.{name}" for name in ("errors", "pickling", "printing", "settings")}


def loaded_by(statement):
    """The modules that a fresh process has after ``statement`` and had not before."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


def foreign(modules):
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"launchkit"}


def own(modules):
    return {name for name in modules if name.partition(".")[0] == "launchkit"}


def test_an_import_of_launchkit_brings_in_nothing_that_is_installed_and_four_leaves():
    modules = loaded_by("import launchkit")
    assert foreign(modules) == set()
    assert own(modules) == {"launchkit"} | LEAVES


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_the_list_of_commands_imports_the_command_line_and_no_command(option):
    modules = loaded_by(LISTED.format(option))
    tools = {
        f"launchkit.tools.{name}" for name in ("cli", "commands", "command_examples", "afterwards")
    }
    assert own(modules) == {"launchkit", "launchkit.__main__", "launchkit.tools"} | LEAVES | tools
    # What Typer and Rich bring along, in their older releases too; attr where it is.
    assert foreign(modules) <= {
        "typer", "click", "rich", "pygments", "markdown_it", "mdurl", "shellingham", "annotated_doc",
        "typing_extensions", "attr",
    }  # fmt: skip


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says_first(name):
    paragraph = commands.imported(name).help.split("\n\n")[0]
    assert " ".join(paragraph.split()) == commands.COMMANDS[name].summary


def test_what_changes_the_services_database_needs_no_web_framework():
    modules = loaded_by("from launchkit.service import auth, retention, snapshots, spaces")
    assert not foreign(modules) & {"fastapi", "starlette", "uvicorn", "jinja2"}
