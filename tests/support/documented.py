"""The stores of the documents: two people's tunings of the guide's kernel, as files to import.

Times are made up. ``tests/data/mine.bundle`` and ``team.bundle`` are what this file makes; to make
them again: ``python tests/support/documented.py``.
"""

from __future__ import annotations

import pathlib

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import bundle

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
KERNEL = KernelId("add_one", "73cc85d8a987864b6efaf11e488539fb546ad6683b4035b9c78291dba1e58258")
DEVICE = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 140)
DTYPES = (("x_ptr", "torch.float32"), ("y_ptr", "torch.float32"), ("n", None), ("BLOCK", None))
CONFIGS = [(block, warps) for block in (256, 1024) for warps in (4, 8)]


def record(n: int, medians_us: list[float], day: int) -> TunedRecord:
    """A tuning of ``add_one`` for ``n``, with a time for each of its configs."""
    results = [
        TunedConfig.measured(
            identify({"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": 3}),
            (median_us, round(median_us * 0.99, 3), round(median_us * 1.02, 3)),
            reps=1200,
            method="eager",
        )
        for (block, warps), median_us in zip(CONFIGS, medians_us, strict=True)
    ]
    best = min(results, key=lambda result: result.median_us or 0.0)
    return TunedRecord(
        kernel=KERNEL,
        device=DEVICE,
        toolchain=Toolchain("3.6.0"),
        key=LaunchKey((encode_value("n", n),), DTYPES),
        configs=tuple(results),
        chosen=best.config,
        tuned_at=f"2026-03-{day:02d}T10:30:00Z",
        seconds=0.8,
    )


BUNDLES = {
    "mine.bundle": [
        record(4096, [2.6, 2.7, 2.4, 2.5], day=1),
        record(100_000, [3.9, 4.0, 3.6, 3.8], day=1),
    ],
    "team.bundle": [
        record(100_000, [3.4, 3.5, 3.6, 3.8], day=2),
        record(1_048_576, [7.1, 7.2, 6.4, 6.2], day=2),
    ],
}

if __name__ == "__main__":
    for name, records in BUNDLES.items():
        bundle.write(DATA / name, records)
