"""What the copy benchmark compares: kernels and the shapes in which they are launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from launchkit.benchmarks.copy_kernels import candidate_copy_kernel, simple_copy_kernel
from launchkit.benchmarks.copy_pool import BlockSet, Pool
from launchkit.benchmarks.shapes import CacheShape
from launchkit.kernels.state_copy.align import precopy_mamba_align_fused_kernel
from launchkit.kernels.state_copy.shapes import copy_options, copy_shape

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
    in_order: bool = False
    """Whether the blocks are neighbours in memory, not scattered as an engine leaves them."""

    def call(self, pool: Pool, blocks: BlockSet) -> Callable[[], object]:
        """Return what launches this variant once on a set of blocks, with all looked up before."""
        states, tables = pool.states, blocks.tables
        reqs = len(blocks.src_col)
        args: tuple[Any, ...] = (
            blocks.state_idx, blocks.src_col, blocks.token_bias, tables.pointers,
            tables.stride_req, states.base_addrs, states.block_strides, states.elem_sizes,
            states.inner_sizes, states.conv_widths, states.group_indices, states.dim_row_counts,
            states.dim_row_strides, blocks.idx_mapping, reqs,
        )  # fmt: skip
        grid: tuple[int, ...] = (reqs, len(states), self.tiles)
        kernel, options = self._kernel()
        if self.kernel == "launchkit":
            grid = (self.tiles * len(states), reqs)
        elif self.kernel == "candidate":
            total = reqs * len(states) * self.tiles
            args = (*args, len(states))
            grid = (min(options["PERSISTENT"] * _multiprocessors() or total, total),)
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
    "STATE_MAJOR": False, "AHEAD": False, "LOADS": "evict_first", "STORES": "evict_first",
    "PERSISTENT": 0, "WAIT_FIRST": False, "LATE": False, "NARROW": False, "launch_pdl": True,
}  # fmt: skip


def _multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


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
        *others,
    ]


def swept(model: CacheShape) -> list[CopyVariant]:
    """Return the variants of the sweep: the two to beat, then candidates for the default."""
    first = [variant for variant in compared(model) if variant.name in ("u64_tiled", "launchkit")]
    return first + list(_candidates())


_SHAPES = (
    (128, 1024, 4), (256, 1024, 4), (64, 2048, 8), (128, 2048, 8), (256, 2048, 8),
    (32, 4096, 16), (64, 4096, 16), (128, 4096, 16), (128, 2048, 16), (32, 8192, 32),
    (64, 8192, 32),
)  # fmt: skip
_PLAIN = {"LOADS": "", "STORES": ""}
_KNOBS: tuple[tuple[str, tuple[int, int, int], dict[str, Any]], ...] = (
    ("wait_first", (128, 2048, 8), {"WAIT_FIRST": True}),
    ("wait_first", (128, 4096, 16), {"WAIT_FIRST": True}),
    ("plain", (128, 2048, 8), _PLAIN),
    ("plain", (128, 4096, 16), _PLAIN),
    ("narrow", (128, 4096, 16), {"NARROW": True, "maxnreg": 40}),
    ("narrow_plain", (128, 2048, 8), {"NARROW": True, **_PLAIN}),
    ("ahead", (32, 4096, 16), {"AHEAD": True}),
    ("state_major", (128, 4096, 16), {"STATE_MAJOR": True}),
    ("late", (128, 4096, 16), {"LATE": True}),
    ("dense", (128, 2048, 8), {"maxnreg": 32}),
    ("dense", (128, 4096, 16), {"maxnreg": 32}),
    ("persistent2", (64, 4096, 16), {"PERSISTENT": 2}),
)


def _candidates() -> Iterator[CopyVariant]:
    def candidate(label: str, shape: tuple[int, int, int], options: dict[str, Any]) -> CopyVariant:
        name = f"{label}_{'x'.join(map(str, shape))}"
        return CopyVariant(name, "candidate", *shape, options)

    for shape in _SHAPES:
        yield candidate("all", shape, {})
    for label, shape, options in _KNOBS:
        yield candidate(label, shape, options)
    # How much of the distance to the ceiling is due to blocks that lie apart.
    yield replace(candidate("in_order", (128, 4096, 16), {"STATE_MAJOR": True}), in_order=True)
