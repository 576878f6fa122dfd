"""Code run in a Python of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def in_python(code: str, **env: str) -> str:
    """Run ``code`` with ``env`` besides this process's; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
