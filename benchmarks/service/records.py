"""Tuned records for the service's benchmarks: any number, each with a key of its own. No torch."""

from __future__ import annotations

from dataclasses import replace

from launchkit.benchmarks.store import records
from launchkit.configs import TunedRecord
from launchkit.keys import DeviceId, KernelId

KERNELS = 24
_DEVICES = (
    DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 140),
    DeviceId("cuda", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 166912, 79),
    DeviceId("cuda", "NVIDIA GeForce RTX 4090", "sm_89", 128, 101376, 24),
)


def record(n: int) -> TunedRecord:
    """Return the n-th record: one of ``KERNELS`` kernels on one of three devices."""
    number = n % KERNELS
    kernel = KernelId(f"bench_kernel_{number}", f"{number:02x}" * 32)
    device = _DEVICES[n // KERNELS % len(_DEVICES)]
    return replace(records.record(n), kernel=kernel, device=device)
