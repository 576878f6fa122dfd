"""docs/configs.md: its commands print what it shows."""

from __future__ import annotations

import shlex

from documented import console_steps, make_stores, unlike
from typer.testing import CliRunner

from launchkit.tools.cli import app


def test_commands_of_the_document_print_what_it_shows(tmp_path, monkeypatch) -> None:
    make_stores(tmp_path)
    monkeypatch.chdir(tmp_path)
    steps = console_steps("docs/configs.md", first="Compare and merge")
    runner = CliRunner(env={"COLUMNS": "100"})
    for command, shown in steps:
        program, *arguments = shlex.split(command)
        assert program == "launchkit"
        result = runner.invoke(app, arguments)
        assert result.exit_code in (0, 1), result.output
        assert unlike(result.stdout, shown) == ([], []), command
    assert len(steps) >= 8
