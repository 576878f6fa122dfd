"""Facts about the host that a figure was measured on. No torch."""

from __future__ import annotations

import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

import launchkit

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def facts() -> dict[str, Any]:
    """Return CPU, memory, system, Python and launchkit, as JSON values."""
    memory_kib = found("/proc/meminfo", r"MemTotal:\s*(\d+) kB")
    return {**identity(), "memory_gib": round(int(memory_kib or 0) / 2**20, 1)}


def identity() -> dict[str, Any]:
    """Return the facts without memory, of which no launch depends."""
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "launchkit": launchkit.__version__,
    }


def cpu_model() -> str:
    """Return the processor's name."""
    return found("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine()


def resident_bytes(process: int | str = "self") -> int:
    """Return the resident memory of a process, given its number. OSError if there is none."""
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * PAGE_BYTES


def children(process: int) -> list[int]:
    """Return the numbers of all processes below a process; it is not one of them."""
    found_below: list[int] = []
    pending = [process]
    while pending:
        parent = pending.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                pending += map(int, task.read_text(encoding="ascii").split())
            except OSError:
                continue
        found_below.append(parent)
    return found_below[1:]


def found(path: str, pattern: str) -> str | None:
    """Return the first group of a pattern in a file of the system, if it is there."""
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8"))
    except OSError:
        return None
    return match.group(1).strip() if match else None


def free_port() -> int:
    """Return a port of the loopback that nobody has now."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port
