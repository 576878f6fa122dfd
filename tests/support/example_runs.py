"""Examples run as somebody runs them who has just installed the package, and what they print."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

LIBRARY_OPERATORS = ("rms_norm", "swiglu", "gated_delta_rule", "l2norm")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name, *options, before=""):
    """Run an example in a process of its own; ``before`` is Python that is executed first."""
    path = str(EXAMPLES / name)
    command = [sys.executable, path, *options]
    if before:
        code = f"import runpy, sys\n{before}\nsys.argv[:] = sys.argv[1:]\n"
        code += f"runpy.run_path({path!r}, run_name='__main__')"
        command = [sys.executable, "-c", code, path, *options]
    theirs = {key: value for key, value in os.environ.items() if not key.startswith("LAUNCHKIT_")}
    return subprocess.run(command, env=theirs, capture_output=True, text=True, timeout=600)


def rows(printed):
    """Return the rows of a printed table as lists of cells; wrapped lines of a cell are joined."""
    found = []
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if cells and cells[0]:
            found.append(cells)
        elif cells:
            found[-1] = [f"{old} {new}".strip() for old, new in zip(found[-1], cells, strict=True)]
    return found


def module(name):
    """Return an example as a module that was imported and not run."""
    spec = importlib.util.spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / name)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def hybrid_step_promises(printed):
    """Rows are the four ways; ratios are those of the times beside them."""
    table = rows(printed)
    ways = [(how, writer) for how in ("ordinary", "op plan") for writer in ("write-back", "scan")]
    assert [tuple(row[:2]) for row in table] == ways
    # Initial states are gathered in one launch, the scan makes five, and a write-back is one more.
    assert [row[2] for row in table] == ["7", "6", "7", "6"]
    times_us = [float(row[3]) for row in table]
    for row, us in zip(table, times_us, strict=True):
        # Both are rounded: to a hundredth, and to a tenth of a microsecond.
        ratio = us / times_us[0]
        assert abs(float(row[4]) - ratio) < 0.006 + 0.06 * (1 + ratio) / times_us[0]
        assert float(row[5]) > us


def library_promises(printed, operators=LIBRARY_OPERATORS):
    """Every operator has its row of times, and went through Triton only to become known."""
    table = rows(printed)
    assert sorted(row[0].split(": ")[1] for row in table) == sorted(operators)
    assert all(float(cell) > 0 for row in table for cell in row[1:4])
    reasons = re.findall(r"^ {22} +\d+ {4}(.+)$", printed, re.MULTILINE)
    assert set(reasons) == {"first launch of its kind"}
    fast = re.findall(r"^ *(\d+) +\d+  \w+\.", printed, re.MULTILINE)
    assert len(fast) == len(operators)
    assert all(int(count) >= 300 for count in fast)
