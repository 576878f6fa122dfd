"""The commands by name, each imported when it is used. Of the tools; imports none of them by itself."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand

from launchkit.tools.command_examples import epilog

FIRST, CONFIGS, TIME = "To begin with", "Tuned configs", "Where host time goes"


@dataclass(frozen=True)
class Command:
    """Where a command is, and what the list of commands says of it."""

    home: str
    """A module of the tools that has ``app``, a group of commands, or else ``command``."""
    summary: str
    """The first paragraph of the command's own help: listing the commands imports none of them."""
    panel: str
    """Beside which others it is listed."""
    context_settings: Mapping[str, Any] = field(default_factory=dict)


COMMANDS = {
    "doctor": Command(
        "doctor", "Say what keeps launches here from being fast, and what to do about it.", FIRST
    ),
    "bench": Command(
        "bench",
        "Measure host microseconds per launch and per Mamba2 layer, on a GPU or without one.",
        FIRST,
    ),
    "run": Command(
        "run",
        "Run a Python program, unedited, with every Triton kernel launched through launchkit.",
        FIRST,
        # The first word that is no option ends ours: what follows is the program's.
        {"allow_interspersed_args": False},
    ),
    "configs": Command("configs", "Look at stored tuned configs, share and pin them.", CONFIGS),
    "tune": Command(
        "tune",
        "Tune every launch of a manifest on this machine's GPUs, and store the configs.",
        CONFIGS,
    ),
    "warm": Command(
        "warm",
        "Compile every launch of a manifest into Triton's disk cache, with its stored config.",
        CONFIGS,
    ),
    "serve": Command(
        "serve_group", "Serve tuned configs to many machines: tune once, everywhere.", CONFIGS
    ),
    "profile": Command(
        "profile",
        "Capture a program: launchkit profile [--nsys|--torch|--py-spy] -- PROGRAM. Or make "
        "captures smaller and fit to be shared.",
        TIME,
    ),
    "report": Command(
        "report", "Read captures: say where the host's time goes, and why the GPU waits.", TIME
    ),
    "diff": Command("diff", "Compare two captures range by range and kernel by kernel.", TIME),
}


def add_to(app: typer.Typer) -> None:
    """Give ``app`` every command, in the order of ``COMMANDS``."""
    for name, command in COMMANDS.items():
        app.command(name, cls=_ImportedOnUse, help=command.summary, rich_help_panel=command.panel)(
            _no_parameters
        )


def _no_parameters() -> None:
    """Stand where a command's function will."""


def imported(name: str) -> Any:
    """Return a command as Typer makes it, a group of commands or a single one."""
    command = COMMANDS[name]
    module = importlib.import_module(f"launchkit.tools.{command.home}")
    app = getattr(module, "app", None)
    if app is None:
        app = typer.Typer(add_completion=False)
        app.command(name, context_settings=dict(command.context_settings))(module.command)
    _let_the_terminal_break_lines(app)
    made: Any = typer.main.get_group(app) if hasattr(module, "app") else typer.main.get_command(app)
    made.name = name
    _give_examples(made, name)
    return made


def _give_examples(command: Any, words: str) -> None:
    command.epilog = epilog(words)
    for name, each in getattr(command, "commands", {}).items():
        _give_examples(each, f"{words} {name}")


class _ImportedOnUse(TyperCommand):
    """What stands in the list of commands; the command itself parses and does what is asked."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of the command itself."""
        assert self.name is not None
        return imported(self.name).make_context(info_name, args, parent=parent, **extra)


def _let_the_terminal_break_lines(commands: typer.Typer) -> None:
    """Give every command its help with a line per paragraph: Typer would keep its breaks."""
    for each in commands.registered_commands:
        paragraphs = (each.help or inspect.getdoc(each.callback) or "").split("\n\n")
        each.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            _let_the_terminal_break_lines(group.typer_instance)
