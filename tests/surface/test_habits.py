"""What ships and what guards a change: packages, data, headers, hooks and workflows are whole."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PLACES = {"launchkit": "launchkit", "kernels": "launchkit.kernels", "tools": "launchkit.tools",
          "benchmarks": "launchkit.benchmarks"}  # fmt: skip
# Compiled or read at build time, by lists of their own.
OF_THE_BUILD = {".c", ".h", ".so", ".pyc"}


def listed(key, table):
    """The strings of a list in a table of pyproject.toml."""
    part = PROJECT.split(f"\n[{table}]\n")[1].split("\n[")[0]
    return set(re.findall(r'"([^"]+)"', re.search(rf"^{key} = \[(.*?)\]", part, re.S | re.M)[1]))


def folders_with_modules():
    for root, package in PLACES.items():
        for path in sorted((ROOT / root).rglob("__init__.py")):
            yield ".".join([package, *path.parent.relative_to(ROOT / root).parts])


def test_every_package_is_installed():
    assert listed("packages", "tool.setuptools") == set(folders_with_modules())


def test_every_file_that_the_package_reads_is_installed():
    part = PROJECT.split("\n[tool.setuptools.package-data]\n")[1].split("\n[")[0]
    globs = {
        name.strip('"'): re.findall(r'"([^"]+)"', patterns)
        for name, patterns in re.findall(r'^("?[\w.]+"?) = \[(.*)\]$', part, re.M)
    }
    installed = {
        path
        for package, patterns in globs.items()
        for pattern in patterns
        for path in ROOT.joinpath(*package.split(".")).glob(pattern)
    }
    data = {
        path
        for path in (ROOT / "launchkit").rglob("*")
        if path.is_file()
        and path.suffix not in OF_THE_BUILD
        and not (path.suffix == ".py" and (path.parent / "__init__.py").exists())
    }
    assert data == {path for path in installed if path.suffix not in OF_THE_BUILD}
    assert len(data) > 15


def test_every_header_of_the_core_is_in_the_source_archive():
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    headers = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("launchkit/**/*.h")}
    assert set(re.findall(r"^include (\S+\.h)$", manifest, re.M)) == headers


def test_every_benchmark_stands_where_its_command_says():
    commands = {path.stem.removeprefix("bench_") for path in ROOT.glob("tools/bench_*.py")
                if "A command." in path.read_text(encoding="utf-8").partition("\n")[0]}  # fmt: skip
    assert len(commands) > 12
    folder = ROOT / "benchmarks"
    # `import` is a keyword.
    measured = {"captures" if name == "import" else name for name in commands} | {"launch"}
    for name in measured:
        assert (folder / name / "bench.py").is_file() or (folder / f"{name}.py").is_file(), name
    assert {path.parent.name for path in folder.glob("*/bench.py")} <= measured


def hooks():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    return [hook for repo in config["repos"] for hook in repo["hooks"]]


def test_hooks_call_files_that_exist_and_one_ruff():
    pinned = {each for hook in hooks() for each in hook.get("additional_dependencies", [])}
    assert len([each for each in pinned if each.startswith("ruff==")]) == 1
    scripts = [re.search(r"python (\S+)", hook["entry"]) for hook in hooks()]
    called = [found[1] for found in scripts if found]
    assert len(called) == 2
    assert all((ROOT / each).is_file() for each in called)


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=str)
def test_workflows_call_scripts_that_can_be_run(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    called = [
        step["run"].split()[0]
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    assert called
    for script in called:
        assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("name", ["bug", "slow_launch", "wrong_launch"])
def test_reports_of_faults_ask_for_what_doctor_says(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text(encoding="utf-8"))
    asked = {part.get("id"): part["attributes"] for part in form["body"]}
    assert "launchkit doctor --json" in asked["doctor"]["label"]
    assert len(asked) == len(form["body"])
