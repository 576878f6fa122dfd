"""The interpreter tests need TRITON_INTERPRET=1 before triton is imported: a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def test_kernels_compute_right_values_on_tritons_interpreter():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(TESTS / "interpreter"),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    # Not from the checkout's root: launchkit must be the installed one there too.
    result = subprocess.run(
        command, cwd=TESTS, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
    assert " skipped" not in result.stdout, result.stdout
