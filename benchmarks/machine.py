"""Facts about the machine that a figure was measured on."""

from __future__ import annotations

import os
import platform
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
        "system": f"{platform.system()} {platform.release()}",
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
    }


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
