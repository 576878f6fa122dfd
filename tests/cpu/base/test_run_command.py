"""launchkit run, LAUNCHKIT_INSTALL and the vLLM plugin, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import sys, torch, triton, triton.language as tl

    @triton.jit
    def kernel(x_ptr, n):
        tl.store(x_ptr, n)

    @triton.jit
    def other(x_ptr, n):
        tl.store(x_ptr, n)

    def main(*arguments):
        from launchkit import hostonly
        with hostonly.activate():
            for _ in range(3):
                kernel[(1,)](torch.empty(16), 2)
                other[(1,)](torch.empty(16), 2)
        print(__name__, sys.argv[1:], "__getitem__" in vars(triton.JITFunction))

    if __name__ == "__main__":
        main()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "some_program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


def python(*arguments, cwd=None, **variables):
    """Run Python with the packages of this process."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LAUNCHKIT_")}
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**kept, "PYTHONPATH": paths, "LAUNCHKIT_STORE": "memory:", **variables}
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, check=False
    )


def run(*arguments, **options):
    return python("-m", "launchkit", "run", *arguments, **options)


def test_script_runs_as_main_with_its_own_arguments_and_installed(program):
    done = run(program, "--stats", "-m", "x")
    assert done.stdout == "__main__ ['--stats', '-m', 'x'] True\n", done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_module_runs_as_main(program, tmp_path):
    done = run(
        "-m", "some_program", "--flag", PYTHONPATH=os.pathsep.join([*sys.path, str(tmp_path)])
    )
    assert done.stdout == "__main__ ['--flag'] True\n", done.stderr


def test_report_at_exit_counts_launches(program, tmp_path):
    output = tmp_path / "launches.json"
    done = run("--stats", "--json", output, "--exclude", "*.other", program)
    assert done.returncode == 0
    assert "__main__.kernel" in done.stderr
    kernels = {row["kernel"]: row for row in json.loads(output.read_bytes())["kernels"]}
    assert kernels["__main__.kernel"]["fast"] == 2
    assert sum(kernels["__main__.other"]["through_triton"].values()) == 3


def test_include_pattern_covers_what_it_names(program, tmp_path):
    output = tmp_path / "launches.json"
    run("--json", output, "--include", "*.kernel", program)
    kernels = {row["kernel"]: row for row in json.loads(output.read_bytes())["kernels"]}
    assert kernels["__main__.kernel"]["fast"] == 2
    assert kernels["__main__.other"]["fast"] == 0


ENDS = {
    "exit code": ("import sys; sys.exit(7)", 7, ""),
    "message": ("import sys; sys.exit('so not')", 1, "so not"),
    "exception": ("raise ValueError('so not')", 1, "ValueError: so not"),
    "launchkit's exception": (
        "import launchkit; launchkit.install(include=())", 1, "UsageError: include is empty",
    ),
    "missing import": ("import no_such_module", 1, "No module named 'no_such_module'"),
    "runpy of its own": ("import runpy; runpy.run_module('no_such_module')", 1, "ImportError: No"),
    "interrupt": ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_program_ends_as_under_python_itself(end, tmp_path):
    source, code, text = ENDS[end]
    path = tmp_path / "ends.py"
    path.write_text(source)
    done, plain = run(path), python(path)
    assert done.returncode == plain.returncode == code
    assert text in done.stderr
    assert text in plain.stderr


def test_logging_is_the_programs_own(tmp_path):
    path = tmp_path / "logs.py"
    path.write_text("import logging; print(logging.root.handlers)")
    assert run(path).stdout == "[]\n"


def test_script_finds_its_neighbours(program, tmp_path):
    path = tmp_path / "neighbour.py"
    path.write_text("import some_program; some_program.main()")
    done = run(path, cwd="/", PYTHONSAFEPATH="")
    assert done.stdout == "some_program [] True\n", done.stderr


BAD_USE = {
    "no program": [],
    "missing script": ["no_such_script.py"],
    "missing module": ["-m", "no_such_module"],
    "missing package of a module": ["-m", "no_such_package.module"],
    "package that is no program": ["-m", "email"],
    "folder that is no program": ["."],
    "report where a folder is": ["--json", ".", __file__],
    "unwritable report": ["--json", "/no/such/folder/x.json", __file__],
    "unknown option": ["--no-such-option", __file__],
}


@pytest.mark.parametrize("what", BAD_USE)
def test_bad_use_is_a_message_and_exit_code_2(what, tmp_path):
    done = run(*BAD_USE[what], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


CHECK = "print('__getitem__' in vars(triton.JITFunction))"


@pytest.mark.parametrize(
    ("order", "value", "installed"),
    [
        ("launchkit, triton", "1", True),
        ("triton, launchkit", "1", True),
        ("torch, launchkit, triton", "1", True),
        ("triton, launchkit", "0", False),
        ("launchkit, triton", "", False),
    ],
)
def test_variable_installs_on_import_of_both(order, value, installed):
    done = python("-c", f"import {order}; {CHECK}", LAUNCHKIT_INSTALL=value)
    assert done.stdout == f"{installed}\n", done.stderr


def test_import_of_launchkit_stays_cheap_with_the_variable():
    code = "import sys, launchkit; print({'torch', 'triton'} & set(sys.modules))"
    assert python("-c", code, LAUNCHKIT_INSTALL="1").stdout == "set()\n"


def test_variable_without_import_of_launchkit_does_nothing():
    done = python("-c", f"import triton; {CHECK}", LAUNCHKIT_INSTALL="1")
    assert done.stdout == "False\n"


def test_bad_value_of_the_variable_is_a_message_and_nothing_is_installed():
    done = python("-c", f"import launchkit, triton; {CHECK}", LAUNCHKIT_INSTALL="perhaps")
    assert done.stdout == "False\n"
    assert "LAUNCHKIT_INSTALL='perhaps'" in done.stderr
    assert "Traceback" not in done.stderr


def test_variables_give_the_patterns():
    code = (
        "import launchkit, triton; from launchkit.dispatch import install; "
        "print(install._current.include, install._current.exclude)"
    )
    done = python(
        "-c", code, LAUNCHKIT_INSTALL="1", LAUNCHKIT_INSTALL_INCLUDE="a.*, b.*",
        LAUNCHKIT_INSTALL_EXCLUDE="a.c",
    )  # fmt: skip
    assert done.stdout == "('a.*', 'b.*') ('a.c',)\n", done.stderr


def test_child_that_imports_launchkit_installs_with_the_same_patterns(tmp_path):
    code = (
        "import launchkit, triton; from launchkit.dispatch import install; "
        "print(install._current.include, install._current.exclude)"
    )
    path = tmp_path / "parent.py"
    path.write_text(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])")
    done = run("--include", "a.*", "--exclude", "a.b", "--exclude", "a.c", path)
    assert done.stdout == "('a.*',) ('a.b', 'a.c')\n", done.stderr


@pytest.mark.parametrize(
    ("variables", "installed"),
    [
        ({}, True),
        ({"LAUNCHKIT_INSTALL": "1"}, True),
        ({"LAUNCHKIT_INSTALL": "0"}, False),
        ({"LAUNCHKIT_DISABLE": "1"}, False),
    ],
)
def test_vllm_plugin_installs_unless_it_is_told_not_to(variables, installed):
    code = f"""
import triton
from launchkit.dispatch.install import install_in_vllm as plugin
plugin()
plugin()
{CHECK}
"""
    assert python("-c", code, **variables).stdout == f"{installed}\n"
