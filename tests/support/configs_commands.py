"""``launchkit configs`` as a user calls it, on a wide terminal."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from launchkit.tools.configs import app


def run(*arguments: object):
    """Run a command, which must end in order; return its result."""
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    return result


def run_json(*arguments: object, code: int = 0):
    """Return what a command prints with ``--json``."""
    result = run(*arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)
