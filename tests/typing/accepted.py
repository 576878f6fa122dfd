"""A user's program, which ``mypy --strict`` accepts: each public name as its documents use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import launchkit
from launchkit import hostonly
from launchkit.kernels.mamba_layer import MambaLayer
from launchkit.kernels.ssd.metadata import ChunkMetadata, build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.profiling.timeline import Analysis, CachedLaunches, analyse, predict, read_timeline


@launchkit.autotuned(
    configs=[triton.Config({"BLOCK": 256}, num_warps=4)],
    key=["n"],
    name="add_one",
    shapes={"n": launchkit.buckets(1024, 65536)},
)
@triton.jit
def add_one(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Kernels have no types: Triton reads their source."""


def by_config(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def launches(x: torch.Tensor, y: torch.Tensor) -> None:
    add_one[by_config](x, y, x.numel())
    launchkit.launch_autotuned(add_one, by_config, x, y, n=x.numel())
    launchkit.launch(add_one.fn, (4,), x, y, x.numel(), BLOCK=256)
    blocks = launchkit.grid(launchkit.cdiv("n", "BLOCK"))
    step: launchkit.FrozenLaunch = launchkit.freeze(add_one, blocks, x, y, 4, varying=("x_ptr",))
    step(y)


@launchkit.planned
def add_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    add_one[by_config](x, y, x.numel())
    return y


@launchkit.annotate("mixer", layer=7)
def forward(x: torch.Tensor) -> torch.Tensor:
    with launchkit.annotate("norm"):
        return add_two(x, x)


def stores(path: Path) -> int:
    store: launchkit.ConfigStore = launchkit.open_store(path)
    with launchkit.use_store(store, device="compatible", toolchain="minor"):
        print(launchkit.explain(add_one, (1,), n=3).text)
    records = [tuned for record in store.records() for tuned in record.configs if tuned.ok]
    best: launchkit.TunedConfig = min(records, key=lambda tuned: tuned.median_us or 0.0)
    return best.reps or len(launchkit.DirectoryStore(path).paths())


def whole_programs(manifest: Path) -> bool:
    launchkit.install(include=["fla.*"], exclude="their_module.*")
    with launchkit.record_manifest(manifest), launchkit.watch_compiles(strict=True) as seen:
        launchkit.launch(add_one, (1,))
    with launchkit.agree_across_ranks() as agreement, launchkit.count_launches():
        print(agreement.ranks, seen.events)
    launchkit.uninstall()
    report: launchkit.WarmReport = launchkit.warm(manifest, workers=0)
    statistics: launchkit.LaunchStats = launchkit.stats(reset=True)
    return report.ready and "add_one" in statistics


def profiles(x: torch.Tensor, path: Path) -> float:
    with launchkit.profile_launches(sample_every=10) as profile:
        forward(x)
    profile.save(path)
    loaded: launchkit.LaunchProfile = launchkit.LaunchProfile.load(path, path)
    found: Analysis = analyse(read_timeline(path))
    return predict(found, CachedLaunches("mixer")).saved_ns + sum(r.total_us for r in loaded.rows)


def without_a_gpu() -> bytes:
    with hostonly.activate(arch=90):
        add_one[(1,)](torch.empty(4), torch.empty(4), 4)
        return hostonly.launches()[-1].params[0]


def scan(x: torch.Tensor, dt: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    batch: ChunkMetadata = build_chunk_metadata(lengths, chunk_size=128, device=x.device)
    for function in (mamba_chunk_scan_combined_varlen, MambaLayer(7).ssd_scan):
        function(
            x, dt, dt, x, x, batch.chunk_size, batch.cu_seqlens, batch.cu_chunk_seqlens,
            batch.last_chunk_indices, batch.seq_idx, x,
        )  # fmt: skip
    return x


def errors(x: torch.Tensor) -> dict[str, Any]:
    try:
        forward(x)
    except launchkit.errors.NotTunedError as error:
        return error.fields
    except launchkit.LaunchkitError as error:
        return {"error": str(error)}
    return {}
