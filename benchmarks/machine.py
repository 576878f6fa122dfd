"""Facts about the machine that a figure was measured on."""

from __future__ import annotations

from typing import Any

import torch
import triton

from launchkit import hostonly
from launchkit.benchmarks import host


def measured_on(cuda: bool, **more: Any) -> dict[str, Any]:
    """Return ``mode`` and ``machine``, with which a result begins; ``more``: further facts."""
    return {"mode": "cuda" if cuda else hostonly.LABEL, "machine": {**facts(), **more}}


def facts() -> dict[str, Any]:
    """Return CPU, GPU, driver and version facts, as JSON values."""
    found: dict[str, Any] = {
        **host.identity(),
        "torch": torch.__version__,
        "triton": triton.__version__,
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


def _driver_version() -> str | None:
    return host.found("/proc/driver/nvidia/version", r"Kernel Module.*?\s(\d+\.\d+[\d.]*)\s")
