"""Intervals for the ratio of two medians, by resampling. A leaf.

The percentile bootstrap of Efron, "Bootstrap Methods: Another Look at the Jackknife" (1979), for
many pairs of samples at once. Draws are hashes of their number, so that a result repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

_MOST_VALUES = 300
"""Larger samples are drawn this many values a time: their intervals are wider than need be."""
_ROWS_AT_ONCE = 4_000_000


def median_ratios(
    before: pl.DataFrame, after: pl.DataFrame, key: str, metrics: Sequence[str], *,
    resamples: int, confidence: float, seed: int,
) -> pl.DataFrame:  # fmt: skip
    """Return by ``key`` and ``metric`` the interval of median(after) / median(before).

    ``before`` and ``after`` have rows of values, ``metrics`` columns of them; keys that one lacks
    are left out. Columns: ``key``, ``metric``, ``low``, ``high``: the quantiles that leave out half
    of 1 - ``confidence`` at each end; null where a median is 0.
    """
    shared = before.select(key).unique().join(after.select(key).unique(), on=key)
    one, other = (
        _resampled(frame.join(shared, on=key), key, metrics, resamples, seed + side)
        for side, frame in enumerate((before, after))
    )
    both = one.join(other, on=[key, "metric", "resample"], suffix="_after")
    ratio = pl.when(pl.col("median") > 0).then(pl.col("median_after") / pl.col("median"))
    tail = (1 - confidence) / 2
    return both.group_by(key, "metric").agg(
        low=ratio.quantile(tail, "linear"), high=ratio.quantile(1 - tail, "linear")
    )


def _resampled(
    values: pl.DataFrame, key: str, metrics: Sequence[str], resamples: int, seed: int
) -> pl.DataFrame:
    """Return the medians of ``resamples`` draws: ``key``, ``metric``, ``resample``, ``median``."""
    ordered = values.sort(key)
    size = pl.col("size")
    groups = ordered.group_by(key, maintain_order=True).agg(size=pl.len().cast(pl.Int64))
    groups = groups.with_columns(
        offset=size.cum_sum() - size,
        draws=pl.min_horizontal(size, pl.lit(_MOST_VALUES)) * resamples,
    )
    found = [pl.DataFrame(schema={key: groups.schema[key], "resample": pl.Int64,
                                  **dict.fromkeys(metrics, pl.Float64)})]  # fmt: skip
    for batch in _batches(groups):
        rows = batch.with_columns(number=pl.int_ranges(0, pl.col("draws"))).explode("number")
        picked = pl.struct(key, "number").hash(seed) % pl.col("size").cast(pl.UInt64)
        place = rows.select(pl.col("offset") + picked.cast(pl.Int64)).to_series()
        resample = pl.col("number") % resamples
        drawn = rows.select(key, resample=resample).hstack(ordered.select(metrics)[place])
        medians = drawn.group_by(key, "resample").agg(pl.col(metrics).median())
        found.append(medians.select(key, "resample", pl.col(metrics).cast(pl.Float64)))
    wide = pl.concat(found)
    return wide.unpivot(metrics, index=[key, "resample"], variable_name="metric",
                        value_name="median")  # fmt: skip


def _batches(groups: pl.DataFrame) -> Iterator[pl.DataFrame]:
    batch = groups.get_column("draws").cum_sum() // _ROWS_AT_ONCE
    yield from groups.with_columns(batch=batch).partition_by("batch", include_key=False)
