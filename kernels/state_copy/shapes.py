"""How a copy is cut into programs: one fixed choice per class of GPU, and how to pass another.

Never tuned where it is used: trial launches would copy live states again and again. A choice is
tried on disposable buffers (``launchkit bench copy --sweep``) and passed as a ``CopyShape``.
"""

from __future__ import annotations

from dataclasses import dataclass

from launchkit.kernels.placement import live_arch


@dataclass(frozen=True)
class CopyShape:
    """Programs and blocks of a copy; every choice copies the same bytes."""

    tiles: int
    """Programs that share one temporal state (TEMPORAL_TILES)."""
    block_size: int
    """64-bit words that a program has in flight (COPY_BLOCK_SIZE), a power of two."""
    num_warps: int


_INTERPRETED = CopyShape(tiles=1, block_size=1024, num_warps=4)
_SHAPES = {9: CopyShape(tiles=64, block_size=2048, num_warps=8)}
_OTHERS = CopyShape(tiles=16, block_size=1024, num_warps=4)


def copy_shape() -> CopyShape:
    """Return the choice for the GPU that is current."""
    arch = live_arch()
    return _INTERPRETED if arch is None else _SHAPES.get(arch // 10, _OTHERS)
