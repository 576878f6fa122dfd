"""Facts about the machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import torch
import triton

import launchkit
from launchkit import hostonly


def facts() -> dict[str, Any]:
    """Return CPU, GPU, driver and version facts, as JSON values."""
    found: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "launchkit": launchkit.__version__,
    }
    if hostonly.is_active() or not torch.cuda.is_available():
        return {**found, "gpu": None}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        **found,
        "gpu": properties.name,
        "gpu_memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "nvidia_driver": _driver_version(),
    }


def _cpu_model() -> str:
    return _found("/proc/cpuinfo", r"model name\s*:\s*(.+)") or platform.machine()


def _driver_version() -> str | None:
    return _found("/proc/driver/nvidia/version", r"Kernel Module.*?\s(\d+\.\d+[\d.]*)\s")


def _found(path: str, pattern: str) -> str | None:
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8"))
    except OSError:
        return None
    return match.group(1).strip() if match else None
