"""What the copy benchmark compares: kernels and the shapes in which they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from launchkit.benchmarks.copy.kernels import candidate_copy_kernel, simple_copy_kernel
from launchkit.benchmarks.copy.pool import BlockSet, Pool
from launchkit.benchmarks.shapes import CacheShape
from launchkit.kernels.state_copy.align import precopy_mamba_align_fused_kernel
from launchkit.kernels.state_copy.memcpy import batch_memcpy
from launchkit.kernels.state_copy.shapes import copy_options, copy_shape

_BESIDE = ("u64_tiled", "launchkit", "launchkit_batch")
TILES = (8, 16, 32, 64)
"""Tiles at which launchkit's kernel is measured beside its default."""


@dataclass(frozen=True, eq=False)
class CopyVariant:
    """One kernel in one shape."""

    name: str
    kernel: str
    """``byte``, ``u64``, ``launchkit``, ``batch`` or ``candidate``."""
    tiles: int
    block_size: int
    num_warps: int
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, pool: Pool, blocks: BlockSet) -> Callable[[], object]:
        """Return what launches this variant once on a set of blocks, with all looked up before."""
        if self.kernel == "batch":
            return partial(batch_memcpy, *pool.copies(blocks), pool.states.largest_bytes)
        states, reqs = pool.states, len(blocks.src_col)
        args = (
            blocks.state_idx, blocks.src_col, blocks.token_bias,
            *states.with_tables(blocks.tables), blocks.idx_mapping, reqs,
        )  # fmt: skip
        grid: tuple[int, ...] = (reqs, len(states), self.tiles)
        if self.kernel in ("launchkit", "candidate"):
            grid = (self.tiles * len(states), reqs)
        kernel, options = self._kernel()
        launcher = kernel[grid]
        return lambda: launcher(*args, **options)

    def _kernel(self) -> tuple[Any, dict[str, Any]]:
        cut = {"BLOCK": self.block_size, "TILES": self.tiles, "num_warps": self.num_warps}
        if self.kernel in ("byte", "u64"):
            return simple_copy_kernel, {**cut, "WORDS": self.kernel == "u64"}
        if self.kernel == "candidate":
            return candidate_copy_kernel, {**cut, **_CANDIDATE, **self.options}
        shape = replace(
            copy_shape(1), tiles=self.tiles, block_size=self.block_size, num_warps=self.num_warps
        )
        return precopy_mamba_align_fused_kernel, {
            **copy_options(shape), "CONV_STATE_DIM_FIRST": False, **self.options,
        }  # fmt: skip


_CANDIDATE: dict[str, Any] = {
    "LOADS": "evict_first", "STORES": "evict_first", "LATE": False, "launch_pdl": True,
}  # fmt: skip


def compared(model: CacheShape) -> list[CopyVariant]:
    """Return the variants of the table: the simple ones, launchkit's default, its other tiles."""
    shape = copy_shape(max(model.conv_bytes, model.temporal_bytes))
    default = CopyVariant("launchkit", "launchkit", shape.tiles, shape.block_size, shape.num_warps)
    others = [
        replace(default, name=f"launchkit_{tiles}", tiles=tiles)
        for tiles in TILES
        if tiles != shape.tiles
    ]
    return [
        CopyVariant("byte_2d", "byte", 1, 1024, 4),
        CopyVariant("u64_2d", "u64", 1, 1024, 4),
        CopyVariant("u64_tiled", "u64", 16, 1024, 4),
        default,
        replace(default, name="launchkit_batch", kernel="batch"),
        *others,
    ]


def swept(model: CacheShape) -> list[CopyVariant]:
    """Return the variants of the sweep: those to beat, then candidates for the default."""
    first = [variant for variant in compared(model) if variant.name in _BESIDE]
    return first + list(_candidates())


_SHAPES = (
    (128, 4096, 16, 40), (128, 4096, 16, 64), (64, 4096, 16, 40), (64, 4096, 16, 64),
    (128, 2048, 16, 32), (128, 2048, 16, 40), (128, 2048, 16, 64), (256, 2048, 16, 40),
    (128, 2048, 8, 40), (128, 2048, 8, 80), (256, 2048, 8, 40), (256, 2048, 8, 80),
    (64, 8192, 16, 64), (64, 8192, 32, 32), (256, 1024, 8, 32), (256, 1024, 8, 56),
)  # fmt: skip
"""Tiles of a state, words of a block, warps and registers: the last decide how many programs fit on
a multiprocessor, and DRAM likes few that copy neighbouring bytes."""

_KNOBS: tuple[tuple[str, tuple[int, int, int], dict[str, Any]], ...] = (
    ("all", (64, 4096, 16), {}),
    ("all", (128, 4096, 16), {}),
    ("all", (128, 2048, 16), {}),
    ("all", (256, 2048, 8), {}),
    ("late", (128, 2048, 16), {"LATE": True}),
)


def _candidates() -> Iterator[CopyVariant]:
    for tiles, block_size, warps, registers in _SHAPES:
        name = f"launchkit_{tiles}x{block_size}x{warps}_{registers}"
        options = {"maxnreg": registers}
        yield CopyVariant(name, "launchkit", tiles, block_size, warps, options)
    for label, shape, options in _KNOBS:
        name = f"{label}_{'x'.join(map(str, shape))}"
        yield CopyVariant(name, "candidate", *shape, options)
