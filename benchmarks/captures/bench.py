"""``launchkit bench import``: reading a large capture, its time and its memory.

The import runs in a process of its own, whose peak is what the operating system says of it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from launchkit import clock, jsonio
from launchkit.benchmarks.captures import export
from launchkit.errors import LaunchkitError, UsageError

_CHILD = """
import resource, sys
from launchkit import clock, jsonio
from launchkit.profiling.timeline import (
    analyse, api_summary, kernel_summary, range_kernel_summary, range_summary, read_timeline)

def peak_bytes():
    # Not ru_maxrss, which begins with what the parent had.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

before_s, start_ns = cpu_s(), clock.now_ns()
timeline = read_timeline(sys.argv[1])
read_ns, read_s, read_bytes = clock.now_ns(), cpu_s(), peak_bytes()
for summary in (range_summary, api_summary, kernel_summary, range_kernel_summary):
    summary(timeline)
done_ns, done_s, done_bytes = clock.now_ns(), cpu_s(), peak_bytes()
analyse(timeline)
analysed_ns = clock.now_ns()
rows = sum(counts.used for _, counts in timeline.counts)
print(jsonio.dumps_compact({
    "import_s": (read_ns - start_ns) / 1e9, "import_peak_bytes": read_bytes,
    "import_cpu_s": read_s - before_s, "summaries_cpu_s": done_s - read_s,
    "summaries_s": (done_ns - read_ns) / 1e9, "summaries_peak_bytes": done_bytes,
    "analysis_s": (analysed_ns - done_ns) / 1e9, "analysis_peak_bytes": peak_bytes(),
    "analysis_cpu_s": cpu_s() - done_s,
    "rows_used": rows}).decode())
"""


def measure(
    rows: int = 5_000_000,
    repeats: int = 3,
    advance: Callable[[int], None] = lambda rows: None,
) -> dict[str, Any]:
    """Write an export of ``rows`` rows, import it ``repeats`` times, and return what that took.

    ``advance`` is told of rows that were written or imported: in all ``rows`` * (1 + ``repeats``).
    Raises UsageError for a number below 1, LaunchkitError where an import fails.
    """
    if rows < 1 or repeats < 1:
        raise UsageError("rows and repeats must be at least 1. Give larger ones.")
    from launchkit.benchmarks import machine

    with tempfile.TemporaryDirectory(prefix="launchkit-import-") as folder:
        path = Path(folder, "export.sqlite")
        made = export.write(path, rows, advance)
        size = path.stat().st_size
        tries = []
        for _ in range(repeats):
            tries.append(_imported(path))
            advance(rows)
    return {
        "machine": {**machine.facts(), "gpu": None},
        "method": {"repeats": repeats, "process": "its own, without torch"},
        "rows": made,
        "file_bytes": size,
        **_figures(tries),
    }


def _imported(path: Path) -> dict[str, Any]:
    start_ns = clock.now_ns()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it was killed"]
        raise LaunchkitError(f"the import failed: {said[-1]}. Give fewer --rows.", path=str(path))
    found = jsonio.loads(done.stdout.encode(), source="the import", limit_bytes=2**16)
    assert isinstance(found, dict)
    return {**found, "process_s": (clock.now_ns() - start_ns) / 1e9}


def _figures(tries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of each time, and the largest of each peak."""
    times = {
        name: round(median(each[name] for each in tries), 2)
        for name in tries[0]
        if name.endswith("_s")
    }
    sizes = {
        name: max(each[name] for each in tries) for name in tries[0] if name.endswith("_bytes")
    }
    return {"rows_used": tries[0]["rows_used"], **times, **sizes}
