#!/usr/bin/env python3
"""mypy --strict over this checkout as it stands, without installing it.

    .ci/check_types.py [OPTIONS FOR MYPY]

kernels/, tools/ and benchmarks/ are inside the package only where it is installed, so the package is
laid out in a temporary folder. Takes the packages of the Python that runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lay_out(folder: Path) -> None:
    """Link everything of the package to where an installation has it."""
    package = folder / "launchkit"
    package.mkdir()
    parts = [
        *(ROOT / "launchkit").iterdir(),
        *map(ROOT.joinpath, ("kernels", "tools", "benchmarks")),
    ]
    for part in parts:
        (package / part.name).symlink_to(part)


def main() -> int:
    """Run mypy, and return its exit code."""
    with tempfile.TemporaryDirectory() as name:
        lay_out(Path(name))
        command = [
            sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml",
            "--cache-dir", ROOT / ".mypy_cache" / "checkout", "-p", "launchkit", *sys.argv[1:],
        ]  # fmt: skip
        environment = {**os.environ, "MYPYPATH": name}
        return subprocess.run(command, cwd=name, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
