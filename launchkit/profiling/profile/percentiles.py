"""Percentiles of a sample. A leaf."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[int], fraction: float) -> float:
    """Return the ``fraction`` quantile (0 to 1) of values that are sorted and not empty.

    Linear between the two nearest order statistics: definition 7 of Hyndman and Fan,
    "Sample Quantiles in Statistical Packages" (1996), the default of numpy.percentile.
    """
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)
