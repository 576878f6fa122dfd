"""The commands' help: what each does is said, examples parse, a stranger finds what to begin with."""

from __future__ import annotations

import shlex

import pytest
import typer.main
from typer.testing import CliRunner

from launchkit.tools import cli, commands
from launchkit.tools.command_examples import EXAMPLES


def walk(command, words=()):
    yield " ".join(words), command
    for name, each in getattr(command, "commands", {}).items():
        found = commands.imported(name) if not words else each
        yield from walk(found, (*words, name))


COMMANDS = dict(walk(typer.main.get_command(cli.app)))
PAIRS = [(words, line) for words, lines in EXAMPLES.items() for line in lines]


def test_every_command_has_an_example_and_no_other_has():
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize(("words", "line"), PAIRS, ids=[line for _, line in PAIRS])
def test_an_example_parses_and_is_of_its_command(words, line):
    program, *rest = shlex.split(line)
    assert program == "launchkit"
    if words != "profile capture":  # its name is left out in front of a program
        assert rest[: len(words.split())] == words.split()
    command, at = COMMANDS[""], ""
    context = command.make_context("launchkit", rest)
    while hasattr(command, "commands") and (rest := [*context._protected_args, *context.args]):
        name, command, rest = command.resolve_command(context, rest)
        at = f"{at} {name}".strip()
        command = COMMANDS[at]
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("words", COMMANDS)
def test_help_says_what_the_command_does_and_ends_with_its_examples(words):
    shown = CliRunner().invoke(cli.app, [*words.split(), "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    said = COMMANDS[words].help.split("\n")[0]
    assert said in shown.stdout
    assert said.endswith(".")
    lines = [line.strip() for line in shown.stdout.splitlines() if line.strip()]
    assert lines[-len(EXAMPLES[words]) :] == list(EXAMPLES[words])


def test_the_list_of_commands_begins_with_what_a_newcomer_wants():
    shown = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "100"}).stdout
    places = [shown.index(panel) for panel in (commands.FIRST, commands.CONFIGS, commands.TIME)]
    assert places == sorted(places)
    begin = shown[places[0] : places[1]]
    assert all(f" {name} " in begin for name in ("doctor", "bench", "run"))
