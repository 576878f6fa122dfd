"""``launchkit doctor``: what keeps launches here from being fast, and what to do. A command.

Exit codes: 0 nothing was found, 1 a finding, 2 bad use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launchkit import settings
from launchkit.printing import printable
from launchkit.tools import doctor_captures, doctor_checks, doctor_environment
from launchkit.tools.doctor_check import FINDING, Check
from launchkit.tools.output import AsJson, echo_json, numbered, print_text

_STYLES = {"ok": "green", "note": "yellow", FINDING: "red"}

NoTrial = Annotated[
    bool, typer.Option("--no-trial", help="Do not launch a kernel to see how launches go here.")
]


def command(as_json: AsJson = False, no_trial: NoTrial = False) -> None:
    """Say what keeps launches here from being fast, and what to do about it.

    Looks at versions, the C core, the config store and the environment, and launches a kernel that
    does nothing: on the GPU, or in host-only mode without one.
    """
    checks = [
        *doctor_environment.checks(),
        *doctor_checks.checks(trial=not no_trial),
        *doctor_captures.checks(),
    ]
    document = report(checks)
    if as_json:
        echo_json(document)
    else:
        show(checks, document)
    raise typer.Exit(1 if document["findings"] else 0)


def report(checks: Sequence[Check]) -> dict[str, Any]:
    """Return what was found as JSON values; docs/json.md has the fields."""
    return {
        "schema": 1,
        "versions": doctor_checks.versions(),
        "checks": [check.as_dict() for check in checks],
        "environment": [
            {"name": each.name, "text": each.text, "value": _plain(each.value)}
            for each in settings.variables()
        ],
        "findings": sum(check.state == FINDING for check in checks),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, settings.ProfileRequest):
        return value.text()
    return list(value) if isinstance(value, tuple) else value


def show(checks: Sequence[Check], document: dict[str, Any]) -> None:
    """Print what was found as tables: versions, checks, and the environment."""
    console = Console()
    versions = document["versions"]
    print_text(console, ", ".join(f"{name} {version or '-'}" for name, version in versions.items()))
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        words = Text(printable(check.says))
        if check.advice:
            words.append(f" {printable(check.advice)}", style="bold")
        table.add_row(Text(check.state, style=_STYLES[check.state]), Text(check.name), words)
    console.print(table)
    set_ones = [each for each in document["environment"] if each["text"] is not None]
    for each in set_ones:
        print_text(console, printable(f"{each['name']}={each['text']}"))
    found = document["findings"]
    console.print(numbered(found, "finding"), style="red" if found else "green")
