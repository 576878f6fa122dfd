"""How a copy is cut into programs: one fixed choice per class of GPU, and how to pass another.

Never tuned where it is used: trial launches would copy live states again and again. A choice is
tried on disposable buffers (``launchkit bench copy --sweep``) and passed as a ``CopyShape``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from launchkit.kernels.placement import live_arch, may_start_early


@dataclass(frozen=True)
class CopyShape:
    """Programs and blocks of a copy; every choice copies the same bytes."""

    tiles: int
    """Programs that share one state (TEMPORAL_TILES); those that have nothing to copy end."""
    block_size: int
    """64-bit words that a program has in flight (COPY_BLOCK_SIZE), a power of two."""
    num_warps: int
    max_registers: int | None = None
    """Registers of a thread on NVIDIA GPUs (maxnreg). Paths that real states hardly take would
    get more, and fewer programs would fit on a multiprocessor."""


_INTERPRETED = CopyShape(tiles=1, block_size=1024, num_warps=4)
_SHAPES = {9: CopyShape(tiles=128, block_size=4096, num_warps=16, max_registers=40)}
_OTHERS = CopyShape(tiles=16, block_size=1024, num_warps=4)


def copy_shape(largest_bytes: int) -> CopyShape:
    """Return the choice for the GPU that is current, and copies of up to ``largest_bytes``.

    Larger ones are copied too. A tile that has less than a block to copy would cost more than
    it saves, so small states are given fewer; their number is a power of two, since each is a
    compiled variant.
    """
    arch = live_arch()
    return _limited(
        _INTERPRETED if arch is None else _SHAPES.get(arch // 10, _OTHERS), largest_bytes
    )


@functools.lru_cache(256)
def _limited(shape: CopyShape, largest_bytes: int) -> CopyShape:
    blocks = -(-largest_bytes // (8 * shape.block_size))
    return replace(shape, tiles=min(shape.tiles, 1 << max(0, blocks - 1).bit_length()))


def copy_options(shape: CopyShape) -> Mapping[str, Any]:
    """Return how the aligned step's kernels are launched in their fast form, on this GPU.

    Constexprs and launch options; the grid is (tiles * states, requests).
    """
    return _options(shape, live_arch() is not None, may_start_early())


def batch_options(shape: CopyShape) -> Mapping[str, Any]:
    """Return how ``batch_memcpy_kernel`` is launched; the grid is (tiles * copies,)."""
    return _batch_options(shape, live_arch() is not None, may_start_early())


@functools.lru_cache(64)
def _options(shape: CopyShape, nvidia: bool, early: bool) -> Mapping[str, Any]:
    options = {
        "COPY_BLOCK_SIZE": shape.block_size,
        "TEMPORAL_TILES": shape.tiles,
        "TILES_FIRST": True,
        "TILE_CONV": True,
        **_launched(shape, nvidia, early),
    }
    return MappingProxyType(options)


@functools.lru_cache(64)
def _batch_options(shape: CopyShape, nvidia: bool, early: bool) -> Mapping[str, Any]:
    options = {
        "BLOCK_SIZE": shape.block_size,
        "NUM_TILES": shape.tiles,
        "TILES_FIRST": True,
        "LOAD_POLICY": "evict_first",
        "STORE_POLICY": "evict_first",
        **_launched(shape, nvidia, early),
    }
    return MappingProxyType(options)


def _launched(shape: CopyShape, nvidia: bool, early: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"num_warps": shape.num_warps, "DEPENDENT": early}
    if early:
        options["launch_pdl"] = True
    if nvidia and shape.max_registers is not None:
        options["maxnreg"] = shape.max_registers
    return options
