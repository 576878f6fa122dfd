"""What a type checker says of programs that use launchkit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "typing"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What mypy says of both programs, in one run."""
    pytest.importorskip("mypy", reason="mypy is not installed; it comes with the extra test")
    command = [
        sys.executable, "-m", "mypy", "--config-file", PROGRAMS / "mypy.ini",
        "--cache-dir", ROOT / ".mypy_cache" / "users", "--no-error-summary",
        PROGRAMS / "accepted.py", PROGRAMS / "refused.py",
    ]  # fmt: skip
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr or done.stdout
    return done.stdout.splitlines()


def test_a_program_that_uses_the_public_names_as_documented_has_no_type_error(told):
    assert [line for line in told if "accepted.py" in line] == []


def test_wrong_uses_are_type_errors_of_the_expected_kinds(told):
    """Each wrong line ignores the code of its error; strict tells of what is not ignored or unused."""
    assert [line for line in told if "refused.py" in line] == []
    assert (PROGRAMS / "refused.py").read_text(encoding="utf-8").count("# type: ignore[") > 20


def test_what_a_user_is_told_of_is_the_users_own_code(told):
    assert [line for line in told if "accepted.py" not in line and "refused.py" not in line] == []
