"""What an installed launchkit looks like from outside."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import launchkit
from launchkit.dispatch.install import install_in_vllm

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("package", ["kernels", "tools", "benchmarks"])
def test_mapped_package_refuses_its_plain_name_and_says_the_right_one(package):
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {package}"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert f"import launchkit.{package}" in result.stderr


def test_types_the_stub_source_and_the_command_are_installed():
    home = Path(launchkit.__file__).parent
    assert (home / "py.typed").is_file()
    assert (home / "hostonly" / "stub_cuda.c").is_file()
    scripts = importlib.metadata.entry_points(group="console_scripts", name="launchkit")
    assert [script.value for script in scripts] == ["launchkit.__main__:main"]


def test_every_c_file_of_the_core_is_built_and_packed():
    native = ROOT / "launchkit" / "dispatch" / "native"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"launchkit/dispatch/native/(\w+\.[ch])"', project)
    assert sorted(listed) == sorted(path.name for path in native.glob("*.[ch]"))
    assert len(listed) > 3


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")
def test_c_core_is_built_where_there_is_a_compiler():
    importlib.import_module("launchkit.dispatch.native._core")


def test_vllm_finds_the_plugin_that_installs():
    (plugin,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="launchkit")
    assert plugin.load() is install_in_vllm


def test_command_reports_the_version_and_refuses_bad_use(tmp_path):
    def run(*options):
        command = [sys.executable, "-m", "launchkit", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run("--version").stdout.strip() == f"launchkit {launchkit.__version__}"
    assert run("no-such-command").returncode == 2
    refused = run("bench", "launch", "--case", "no_such_case")
    assert refused.returncode == 2
    assert "noop_46" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_checkout_that_is_not_installed_says_so():
    """Python started in the checkout finds launchkit/ there, without the packages mapped into it."""
    code = "import sys; sys.path.insert(0, ''); import launchkit; launchkit.kernels"
    for command in (["-c", code], ["-m", "launchkit"]):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
        result = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert result.returncode == 1
        assert "source checkout, not an installation" in result.stderr
