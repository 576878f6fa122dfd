"""A process forked in host-only mode has a mode of its own: it launches, leaves and enters alone."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
SCRIPT = """
import os, sys, torch
import launchkit
from launchkit import hostonly
from sample_kernels import copy

x, y = torch.zeros(64), torch.zeros(64)

def launch():
    launchkit.launch(copy, (1,), x, y, 64, 1, BLOCK=64)
    return hostonly.launches()[-1]

hostonly.activate()
first = launch()
child = os.fork()
if child == 0:
    assert launch() == first and len(hostonly.launches()) == 2
    hostonly.deactivate()
    with hostonly.activate(80):
        assert launch().params == first.params and len(hostonly.launches()) == 1
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert launch() == first and len(hostonly.launches()) == 2
"""


def test_a_forked_child_launches_leaves_and_enters_without_its_parent() -> None:
    paths = [str(SUPPORT), *sys.path]
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
