"""What the service's page has to show in tests: two devices, hostile names, failures, old versions."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from launchkit.configs import TunedConfig, TunedRecord, choose, identify
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import bundle

if TYPE_CHECKING:
    from serving import Served

H200 = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 141)
A100 = DeviceId("cuda", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 166912, 80)
SCAN = KernelId("chunk_scan_kernel", "5e" * 32)
COPY = KernelId("state_copy_kernel", "c0" * 32)
HOSTILE = KernelId("<script>alert(1)</script>{{ 7 * 7 }} '\"&", "ee" * 32)
NEW, OLD = Toolchain("3.6.0"), Toolchain("3.4.0")
LEASE = "ab" * 16
METHOD = "do_bench, L2 flushed"


def config(block: int, warps: int) -> tuple:
    return identify({"BLOCK": block, "num_warps": warps, "num_stages": 3})


def tuned(block: int, warps: int, median_us: float, spread: float = 0.04) -> TunedConfig:
    times = (median_us, median_us * (1 - spread), median_us * (1 + spread))
    return TunedConfig.measured(config(block, warps), times, reps=100, method=METHOD)


def a_record(
    kernel: KernelId, device: DeviceId, n: int, fastest: int = 128, **changes
) -> TunedRecord:
    """A record of seven configs, of which two failed; ``fastest`` is the winner's BLOCK."""
    rng = random.Random(f"{kernel.name} {device.name} {n}")
    slow = 1.0 if device is H200 else 1.7
    timed = [
        tuned(block, warps, slow * (10.0 if block == fastest else rng.uniform(12, 40)) + warps / 10)
        for block in (32, 64, 128, 256)
        for warps in (4, 8)
        if (block, warps) != (256, 8)
    ]
    failed = [
        TunedConfig.failed(config(256, 8), "out of resource: shared memory", method=METHOD),
        TunedConfig.failed(config(512, 8), "<img src=x onerror=alert(2)>", method=METHOD),
    ]
    winner = choose(timed)
    assert winner is not None
    made = TunedRecord(
        kernel, device, NEW, LaunchKey((encode_value("n", n),), (("x_ptr", "torch.float16"),)),
        (*timed, *failed), winner.config, tuned_at="2026-01-31T23:59:59Z", seconds=75.0,
    )  # fmt: skip
    return replace(made, **changes)


def stored() -> list[TunedRecord]:
    """Everything that ``fill`` stores."""
    scans = [a_record(SCAN, H200, n) for n in range(1, 61)]
    slower = [a_record(SCAN, A100, n, fastest=64 if n % 2 else 128) for n in range(1, 9)]
    others = [a_record(SCAN, H200, 1, toolchain=OLD), a_record(COPY, H200, 7)]
    return [*scans, *slower, *others, a_record(HOSTILE, H200, 1)]


def fill(served: Served) -> None:
    """Store all of it as clients would, and miss, hit and hold a lease."""
    token = served.token("write", "default")
    sent = served.send("POST", "/bundle", content=bundle.dump(stored()), headers=token)
    assert sent.json()["created"] == len(stored()), sent.text
    for n, times in ((901, 5), (902, 2), (903, 1)):
        for _ in range(times):
            assert served.get(a_record(COPY, A100, n), **token).status_code == 404
    for _ in range(4):
        assert served.get(a_record(COPY, H200, 7, toolchain=OLD), **token).status_code == 404
    for _ in range(3):
        assert served.get(stored()[0], **token).status_code == 200
    asked = {"holder": "gpu-7 pid 4242", "ttl_s": 3600, "kernel": COPY.name, "key": "n=901"}
    answer = served.send("POST", f"/leases/{LEASE}", json=asked, headers=token)
    assert answer.status_code in (200, 201)
    served.service.metrics.flush()
