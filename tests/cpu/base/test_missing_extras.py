"""Without the extras every command still has its help, and what it lacks is said in one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# As where nothing of the extras is installed: nobody finds these packages.
ALONE = """
import contextlib, io, json, sys
EXTRAS = set(sys.argv[1].split(","))

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        found = name.partition(".")[0] not in EXTRAS
        return self.finder.find_spec(name, path, target) if found else None

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path if hasattr(finder, "find_spec")]
from launchkit.tools import cli, commands

def words_of(command, words):
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from words_of(each, [*words, name])

def told(line):
    sys.argv = ["launchkit", *line]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as done:
            code = done.code
        except BaseException as error:
            code = repr(error)
    return " ".join(line), code, out.getvalue(), err.getvalue()

lines = [[*w, "--help"] for name in commands.COMMANDS for w in words_of(commands.imported(name), [name])]
print(json.dumps([told(line) for line in [*lines, *json.loads(sys.argv[2])]]))
"""
EXTRAS = (
    "alembic", "einops", "fastapi", "httpx", "jinja2", "plotly", "polars", "prometheus_client",
    "psycopg", "py_spy", "sqlalchemy", "starlette", "torch", "triton", "uvicorn",
)  # fmt: skip
LACKING = {
    "bench launch": "torch",
    "bench costs": "torch",
    "bench fuzz --inputs 1": "torch",
    "bench import": "torch",
    "bench serve": "torch",
    "report a.sqlite": "profile",
    "diff a.sqlite b.sqlite": "profile",
    "serve --port 0": "service",
    "serve token list": "service",
}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    for name in ("a.sqlite", "b.sqlite"):
        (folder / name).write_bytes(b"SQLite format 3\0" + b"\0" * 84)
    asked = json.dumps([line.split() for line in LACKING])
    done = subprocess.run(
        [sys.executable, "-c", ALONE, ",".join(EXTRAS), asked],
        capture_output=True, text=True, cwd=folder, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {line: tuple(rest) for line, *rest in json.loads(done.stdout)}


def test_every_command_has_its_help(alone):
    helped = {line: told for line, told in alone.items() if line.endswith("--help")}
    assert {"bench serve --help", "serve token create --help", "report --help"} <= set(helped)
    assert not {line: told for line, told in helped.items() if told[0] or "Usage" not in told[1]}


@pytest.mark.parametrize("line", LACKING)
def test_a_command_says_which_extra_it_needs(alone, line):
    code, _, said = alone[line]
    assert code == 2, said
    assert "Traceback" not in said
    assert f"pip install 'launchkit-triton[{LACKING[line]}]'" in said
