"""What an installation has beside the package: its commands, and its entry points."""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path

from document_starter import Starter

import launchkit

PORT = ":8477"
"""The port that ``launchkit serve`` takes by itself; documents that are run get a free one."""
_COMMAND = """#!{python}
import sys
from launchkit.__main__ import main
if sys.argv[1:2] == ["serve"] and all(word.startswith("-") for word in sys.argv[2:3]):
    sys.argv[2:2] = ["--port", "{port}"]
sys.exit(main())
"""
_CURL = """#!{python}
import getopt, sys, urllib.error, urllib.request
options, (url,) = getopt.gnu_getopt(sys.argv[1:], "sH:d:")
headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
data = dict(options).get("-d")
asked = urllib.request.Request(url, data and data.encode(), headers)
try:
    answer = urllib.request.urlopen(asked)
except urllib.error.HTTPError as error:
    answer = error
sys.stdout.write(answer.read().decode())
"""
_PYTHON = '#!/bin/sh\nexec "{python}" "$@"\n'


def write_commands(folder: Path, port: int, starter: Starter | None) -> None:
    """Write ``launchkit``, whose server listens on ``port``, this Python, and a small ``curl``
    where the machine has none. With a starter the first two are its clients.
    """
    plain = folder.with_name("plain")
    plain.mkdir()
    for name, text in (("launchkit", _COMMAND), ("python", _PYTHON)):
        _write(plain / name, text.format(python=sys.executable, port=port))
        if starter is None:
            (folder / name).symlink_to(plain / name)
    if starter is not None:
        _write(folder / "python", starter.client([]))
        _write(folder / "launchkit", starter.client([str(plain / "launchkit")]))
    (folder / "python3").symlink_to(folder / "python")
    if shutil.which("curl") is None:
        _write(folder / "curl", _CURL.format(python=sys.executable))


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def write_entry_points(folder: Path) -> None:
    """Write those of pyproject.toml, where launchkit is on the path and not installed."""
    if metadata.entry_points(group="launchkit.stores"):
        return
    import tomllib  # Python 3.10 has none

    root = Path(__file__).resolve().parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    about = folder / f"{project['name'].replace('-', '_')}-{launchkit.__version__}.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {launchkit.__version__}\n"
    )
