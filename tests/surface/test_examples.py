"""Each example runs by its one command on a machine without a GPU, and prints what it promises."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
from pathlib import Path

import pytest
from example_runs import (
    EXAMPLES,
    LIBRARY_OPERATORS,
    hybrid_step_promises,
    library_promises,
    module,
    rows,
    run,
)

import launchkit

MEASURED = {
    "launches": {"add": 4, "scale": 4},
    "through_triton": 0,
    "times_floor": {"host-only": 3.0},
}
GATE = "ci_gate_on_launch_overhead/test_launch_overhead.py"
WINNER = "BLOCK=1024 num_ctas=1 num_stages=3 num_warps=8"
SHARED = [
    ["A", "up", "absent", "0", WINNER],
    ["B", "up", "config service", "0", WINNER],
    ["B, started anew", "killed", "config service", "0", WINNER],
]
PROGRAMS = sorted(path.relative_to(EXAMPLES).as_posix() for path in EXAMPLES.rglob("*.py"))
# Beside the names of launchkit itself: modules that a document names.
PUBLIC = (
    "launchkit.benchmarks.",
    "launchkit.hostonly",
    "launchkit.kernels.",
    "launchkit.store.foreign",
    "launchkit.store.Miss",
)


def test_step_of_a_hybrid_model_is_shown_as_ordinary_launches_and_as_op_plans():
    done = run("hybrid_model_step.py", "--layers", "2")
    assert done.returncode == 0, done.stderr
    assert "Nemotron-3-Nano, 2 layers, 5 requests, 503 tokens (host-only" in done.stdout
    hybrid_step_promises(done.stdout)


def test_second_host_has_the_first_ones_config_also_when_the_service_is_killed():
    pytest.importorskip("fastapi", reason="the extra [service] is not installed")
    done = run("two_hosts_one_service.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "host-only: nothing is measured" in done.stdout
    assert rows(done.stdout) == SHARED


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("third_party_library.py", "pip install liger-kernel"),
        ("two_hosts_one_service.py", "pip install 'launchkit-triton[service]'"),
    ],
)
def test_what_an_example_lacks_is_said_with_the_command_that_installs_it(
    name, needed, monkeypatch, capsys
):
    example = module(name)
    monkeypatch.setattr(example, "find_spec", lambda name: None)
    assert example.main() == 2
    assert needed in capsys.readouterr().err


@pytest.mark.parametrize("name", ["third_party_library.py", "two_hosts_one_service.py"])
def test_help_says_what_an_example_shows_and_runs_nothing(name):
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    first = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8")))
    assert first.splitlines()[0] in " ".join(done.stdout.split()).replace("- ", "-")
    assert not rows(done.stdout)


class Stopped:
    """A service that is being started when somebody stops the example."""

    killed = False

    def __init__(self, *args, **options):
        self.stdout = self

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        assert self.killed, "the service would be waited for, for ever"

    def readline(self):
        os.kill(os.getpid(), signal.SIGTERM)

    def kill(self):
        type(self).killed = True


def test_example_that_is_stopped_leaves_no_service_behind(monkeypatch):
    example = module("two_hosts_one_service.py")
    monkeypatch.setattr(example, "find_spec", lambda name: True)
    monkeypatch.setattr(example.subprocess, "Popen", Stopped)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match="stopped"):
            example.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert Stopped.killed


def test_gate_passes_the_step_and_refuses_the_careless_change():
    done = run(GATE, "--most", "1e6")
    assert done.returncode == 0, done.stdout + done.stderr
    baseline, step, careless = rows(done.stdout)
    assert baseline[1:3] == step[1:3] == ["add 4, scale 4", "0"]
    assert "(host-only)" in baseline[3], "else the committed baseline compares no times"
    assert step[4] == "passes"
    assert careless[4] == "5 launches of add, not 4"


@pytest.fixture(scope="module")
def gate():
    return module(GATE)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"launches": {"add": 4, "scale": 3}}, "4 launches of scale, not 3"),
        ({"launches": {"add": 4}}, "4 launches of scale, not 0"),
        ({"launches": {"add": 4, "scale": 5, "gone": 1}}, None),
        ({"times_floor": {"host-only": 1e-6}}, "floors, not at most 0.0"),
        ({"times_floor": {"host-only": 1e6}}, None),
        ({"times_floor": {"cuda": 1e-6}}, None),
        ({"through_triton": -1}, "0 launches through Triton"),
    ],
)
def test_gate_finds_what_is_worse_than_the_baseline_and_nothing_else(
    gate, change, finding, tmp_path, monkeypatch
):
    found = gate.findings({**MEASURED, **change}, MEASURED)
    assert len(found) == (finding is not None)
    assert finding is None or finding in found[0]
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(gate, "measure", lambda run: MEASURED)
    gate.BASELINE.write_text(json.dumps({**MEASURED, **change}))
    if finding is None:
        gate.test_a_step_costs_no_more_than_the_baseline()
    else:
        with pytest.raises(AssertionError, match=re.escape(finding)):
            gate.test_a_step_costs_no_more_than_the_baseline()


@pytest.mark.parametrize(
    ("text", "error"),
    [(None, "FileNotFoundError"), ("{", "JSONDecodeError"), ("[]", "TypeError"),
     ("{}", "KeyError"), ('{"launches": 3, "through_triton": 0, "times_floor": {}}', "Attribute"),
     ('{"launches": {}, "through_triton": "x", "times_floor": {}}', "TypeError"),
     (json.dumps({**MEASURED, "times_floor": {"host-only": "x"}}), "TypeError"),
     (json.dumps({**MEASURED, "launches": {"add": None}}), "TypeError")],
)  # fmt: skip
def test_gate_without_a_usable_baseline_says_what_to_do(gate, text, error, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(gate, "measure", lambda run: MEASURED)
    if text is not None:
        gate.BASELINE.write_text(text)
    with pytest.raises(SystemExit, match=rf"baseline\.json: {error}.*Take it from git"):
        gate.test_a_step_costs_no_more_than_the_baseline()


def test_gate_writes_a_first_baseline_and_says_where_it_cannot(gate, tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "baseline.json")
    monkeypatch.setattr(gate, "measure", lambda run: MEASURED)
    monkeypatch.setattr("sys.argv", ["gate", "--update"])
    assert gate.main() == 0
    assert json.loads(gate.BASELINE.read_text()) == MEASURED
    monkeypatch.setattr(gate, "BASELINE", tmp_path / "absent" / "baseline.json")
    with pytest.raises(SystemExit, match=r"not written: .*Make its folder writable"):
        gate.main()


def test_gate_takes_no_limit_that_is_no_number(gate):
    (found,) = gate.findings(MEASURED, MEASURED, float("nan"))
    assert "not at most nan" in found


def test_readme_shows_what_the_examples_print():
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    hybrid, libraries, shared, gated = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    hybrid_step_promises(hybrid)
    library_promises(libraries, LIBRARY_OPERATORS)
    assert rows(shared) == SHARED
    assert [row[0] for row in rows(gated)] == ["baseline", "the step", "careless change"]
    for target in re.findall(r"\]\(([^)#]+)", readme):
        assert (EXAMPLES / target).exists(), target


def imported(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", PROGRAMS)
def test_example_is_short_uses_public_names_and_stands_in_the_table(name):
    path = EXAMPLES / name
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 160
    used = [each for each in imported(path) if each.partition(".")[0] == "launchkit"]
    assert used
    names = {f"launchkit.{each}" for each in launchkit.__all__}
    for each in used:
        assert each in {"launchkit", *names} or each.startswith(PUBLIC), each
    assert f"`python examples/{name}`" in (EXAMPLES / "README.md").read_text(encoding="utf-8")


def test_sdist_has_the_examples_and_the_wheel_has_not():
    root = EXAMPLES.parent
    manifest = (root / "MANIFEST.in").read_text(encoding="utf-8")
    taken = re.search(r"^recursive-include examples (.+)$", manifest, re.MULTILINE)
    assert taken
    patterns = taken[1].split()
    files = [
        path
        for path in EXAMPLES.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and ".pytest_cache" not in path.parts
    ]
    assert len(files) > len(PROGRAMS)
    assert all(f"*{path.suffix}" in patterns for path in files)
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert "examples" not in packages[1]
