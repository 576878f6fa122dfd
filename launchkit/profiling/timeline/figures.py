"""Figures of times, under the names that every table gives them. A leaf."""

from __future__ import annotations

import polars as pl

DURATION_NS = pl.col("end_ns") - pl.col("start_ns")
"""How long a range, a call or a piece of GPU work lasted."""

QUANTILES = {"median_ns": 0.5, "p90_ns": 0.9, "p99_ns": 0.99}
"""Quantiles by name: linear between two values, as numpy's are."""


def figures(value: pl.Expr, prefix: str = "") -> list[pl.Expr]:
    """Return the sum, the mean, the quantiles and the extrema of times in ns; nulls count nowhere."""
    made = {
        "total_ns": value.sum(),
        "mean_ns": value.mean(),
        **{name: value.quantile(part, "linear") for name, part in QUANTILES.items()},
        "min_ns": value.min(),
        "max_ns": value.max(),
    }
    return [each.alias(f"{prefix}{name}") for name, each in made.items()]
