"""What the copy benchmark compares: kernels and the shapes in which they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from launchkit.benchmarks.copy_kernels import candidate_copy_kernel, simple_copy_kernel
from launchkit.benchmarks.copy_pool import BlockSet, Pool
from launchkit.kernels.state_copy.align import precopy_mamba_align_fused_kernel
from launchkit.kernels.state_copy.shapes import copy_shape

TILES = (8, 16, 32, 64)
"""Tiles at which launchkit's kernel is measured beside its default."""


@dataclass(frozen=True, eq=False)
class CopyVariant:
    """One kernel in one shape."""

    name: str
    kernel: str
    """``byte``, ``u64``, ``launchkit`` or ``candidate``."""
    tiles: int
    block_size: int
    num_warps: int
    options: dict[str, Any] = field(default_factory=dict)

    def call(self, pool: Pool, blocks: BlockSet) -> Callable[[], object]:
        """Return what launches this variant once on a set of blocks, with all looked up before."""
        states, tables = pool.states, blocks.tables
        reqs = len(blocks.src_col)
        args = (
            blocks.state_idx, blocks.src_col, blocks.token_bias, tables.pointers,
            tables.stride_req, states.base_addrs, states.block_strides, states.elem_sizes,
            states.inner_sizes, states.conv_widths, states.group_indices, states.dim_row_counts,
            states.dim_row_strides, blocks.idx_mapping, reqs,
        )  # fmt: skip
        grid: tuple[int, ...] = (reqs, len(states), self.tiles)
        kernel, options = self._kernel(len(states))
        if options.get("PERSISTENT"):
            grid = (min(options["PERSISTENT"] * _multiprocessors(), grid[0] * grid[1] * grid[2]),)
        launcher = kernel[grid]
        return lambda: launcher(*args, num_warps=self.num_warps, **options)

    def _kernel(self, states: int) -> tuple[Any, dict[str, Any]]:
        shape = {"BLOCK": self.block_size, "TILES": self.tiles}
        if self.kernel in ("byte", "u64"):
            return simple_copy_kernel, {**shape, "WORDS": self.kernel == "u64"}
        if self.kernel == "candidate":
            return candidate_copy_kernel, {**shape, "STATES": states, **_CANDIDATE, **self.options}
        return precopy_mamba_align_fused_kernel, {
            "COPY_BLOCK_SIZE": self.block_size, "CONV_STATE_DIM_FIRST": False,
            "TEMPORAL_TILES": self.tiles, **self.options,
        }  # fmt: skip


_CANDIDATE: dict[str, Any] = {
    "TILE_FIRST": False, "TILE_CONV": False, "AHEAD": False, "LOADS": "evict_first",
    "STORES": "evict_first", "PERSISTENT": 0, "DEPENDENT": False,
}  # fmt: skip


def _multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def compared() -> list[CopyVariant]:
    """Return the variants of the table: the simple ones, launchkit's default, its other tiles."""
    shape = copy_shape()
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
        *others,
    ]


def swept() -> list[CopyVariant]:
    """Return the variants of the sweep: the two to beat, then candidates for the default."""
    first = [variant for variant in compared() if variant.name in ("u64_tiled", "launchkit")]
    return first + list(_candidates())


_SHAPES = (
    (16, 2048, 4), (16, 2048, 8), (32, 2048, 8), (64, 1024, 4), (64, 2048, 4), (64, 2048, 8),
    (64, 4096, 8), (32, 4096, 8), (32, 4096, 16), (32, 8192, 16), (128, 2048, 8), (128, 1024, 4),
    # One wave of programs for one request: 24 states on 132 multiprocessors, or 40.
    (11, 2048, 8), (22, 2048, 8), (22, 4096, 8), (44, 2048, 4), (13, 2048, 8), (26, 2048, 4),
    (26, 4096, 8),
)  # fmt: skip
_KNOBS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {"LOADS": "", "STORES": ""}),
    ("ef_load", {"STORES": ""}),
    ("ef_store", {"LOADS": ""}),
    ("cg_cs", {"LOADS": ".cg", "STORES": ".cs"}),
    ("ef_cs", {"STORES": ".cs"}),
    ("ef_wt", {"STORES": ".wt"}),
    ("el_store", {"STORES": "evict_last"}),
    ("tile_first", {"TILE_FIRST": True}),
    ("tile_conv", {"TILE_CONV": True}),
    ("tile_first_conv", {"TILE_FIRST": True, "TILE_CONV": True}),
    ("ahead", {"AHEAD": True}),
)
_DEPENDENT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dependent", {"DEPENDENT": True, "launch_pdl": True}),
    ("dependent_conv", {"TILE_CONV": True, "DEPENDENT": True, "launch_pdl": True}),
    ("all", {"TILE_FIRST": True, "TILE_CONV": True, "DEPENDENT": True, "launch_pdl": True}),
)
_PERSISTENT = ((4, 64, 2048, 8), (8, 64, 2048, 4), (4, 32, 4096, 8), (2, 32, 4096, 16))


def _candidates() -> Iterator[CopyVariant]:
    def candidate(
        label: str, tiles: int, block: int, warps: int, options: dict[str, Any]
    ) -> CopyVariant:
        name = f"{label}_{tiles}x{block}x{warps}"
        return CopyVariant(name, "candidate", tiles, block, warps, options)

    for tiles, block, warps in _SHAPES:
        yield candidate("ef", tiles, block, warps, {})
    for tiles, block, warps in ((64, 2048, 8), (32, 4096, 8)):
        for label, options in _KNOBS:
            yield candidate(label, tiles, block, warps, options)
    for programs, tiles, block, warps in _PERSISTENT:
        for ahead in (False, True):
            options = {"PERSISTENT": programs, "TILE_CONV": True, "TILE_FIRST": True}
            label = f"persistent{programs}{'_ahead' if ahead else ''}"
            yield candidate(label, tiles, block, warps, {**options, "AHEAD": ahead})
    for tiles, block, warps in ((64, 2048, 8), (32, 4096, 8), (22, 4096, 8)):
        for label, options in _DEPENDENT:
            yield candidate(label, tiles, block, warps, options)
