"""Whether something grows over samples that are full of steps and noise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median


def slope(places: Sequence[float], values: Sequence[float]) -> float:
    """Return by how much ``values`` grow per unit of ``places``: Theil-Sen's line.

    The median of the slopes between all pairs. Where an allocator takes one large piece of
    memory, it stays as it is; a least-squares line would lean. Source: P. K. Sen, «Estimates of the
    regression coefficient based on Kendall's tau», 1968.
    """
    points = list(zip(places, values, strict=True))
    return median((y - v) / (x - u) for (u, v), (x, y) in combinations(points, 2))
