"""Two analyses side by side: what became slower, and how sure that is. Above analysis.

Ranges are compared by the median of their times, with a bootstrap interval of the ratio. Host times
of the second are first divided by how much slower its machine ran what both captures calibrated, so
that captures of two machines can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import polars as pl

from launchkit.errors import UsageError
from launchkit.profiling.timeline.analysis.analysis import Analysis
from launchkit.profiling.timeline.analysis.bootstrap import median_ratios
from launchkit.profiling.timeline.figures import DURATION_NS

HOST_METRICS = ("wall_ns", "inclusive_python_ns", "api_ns")
METRICS = (*HOST_METRICS, "gpu_ns", "launches")
"""What is compared of ranges; of kernels it is ``gpu_ns``, their duration."""

CHANGES = ("slower", "faster", "unclear", "too few", "only before", "only after")
"""``slower`` and ``faster``: the whole interval lies on that side of 1, and the difference of a
host time is more than what is not known of the cost of recording it. ``too few``: less than 5 times
on a side, whose interval would say nothing."""

_FEW = 5


@dataclass(frozen=True)
class Comparison:
    """``rows``: the most time before first; of each range and kernel, a row for each metric.

    ``table`` ("ranges" or "kernels"), ``name``, ``domain`` (null for kernels), ``metric``,
    ``count_before``, ``count_after``, ``before`` and ``after`` (medians, after calibration),
    ``ratio`` (after / before), ``low`` and ``high`` (its interval), ``change`` (of ``CHANGES``).

    ``calibration``: what host times of the second were divided by, 1 where the captures share no
    calibration; ``calibrated`` names what they share. ``over``: the rows that fail ``fail_over``.
    """

    rows: pl.DataFrame
    over: pl.DataFrame
    calibration: float
    calibrated: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether any row is over what was allowed."""
        return self.over.height > 0


def compare(
    before: Analysis, after: Analysis, *, fail_over: float | None = None, resamples: int = 400,
    confidence: float = 0.95, seed: int = 0,
) -> Comparison:  # fmt: skip
    """Return how ``after`` differs from ``before``.

    A row fails if its ratio is more than 1 + ``fail_over`` and its whole interval lies above 1;
    launches fail by their number alone. None: nothing fails.

    Raises:
        UsageError: ``fail_over`` is negative or no number, ``resamples`` is below 1, or
            ``confidence`` is not between 0 and 1.
    """
    _check(fail_over, resamples, confidence)
    calibration, calibrated = _calibration(before, after)
    unknown_ns = _uncertainty_ns(before, after)
    ratios = partial(median_ratios, resamples=resamples, confidence=confidence, seed=seed)
    rows = pl.concat(
        [
            _table("ranges", _ranges(before, 1.0), _ranges(after, calibration), METRICS, ratios),
            _table("kernels", _kernels(before), _kernels(after), ("gpu_ns",), ratios),
        ]
    )
    rows = rows.with_columns(_known(unknown_ns))
    over = rows.clear() if fail_over is None else rows.filter(_is_over(fail_over))
    return Comparison(rows, over, calibration, calibrated)


def _check(fail_over: float | None, resamples: int, confidence: float) -> None:
    if fail_over is not None and not (math.isfinite(fail_over) and fail_over >= 0):
        raise UsageError(
            f"fail_over={fail_over!r} cannot be. Give a share of at least 0, such as 0.1 for 10 %.",
            fail_over=fail_over,
        )
    if resamples < 1 or not 0 < confidence < 1:
        raise UsageError(
            f"resamples={resamples!r} and confidence={confidence!r} cannot be. Give at least one "
            "resample, and a confidence between 0 and 1.",
            resamples=resamples,
            confidence=confidence,
        )


def _calibration(before: Analysis, after: Analysis) -> tuple[float, tuple[str, ...]]:
    """Return the geometric mean of how much longer the second took for what both calibrated."""
    one, other = (_positive(each.timeline.source.calibration) for each in (before, after))
    shared = sorted(one.keys() & other.keys())
    if not shared:
        return 1.0, ()
    logs = [math.log(other[name] / one[name]) for name in shared]
    return math.exp(sum(logs) / len(logs)), tuple(shared)


def _uncertainty_ns(before: Analysis, after: Analysis) -> float:
    """Return what is not known of the cost of recording a range, of both captures together."""
    each = (side.timeline.source.calibration.get("range_uncertainty_ns", 0.0)
            for side in (before, after))  # fmt: skip
    return math.hypot(*each)


def _known(uncertainty_ns: float) -> pl.Expr:
    """Return the changes, none of which is smaller than what recording may have put into it."""
    host = pl.col("metric").is_in(HOST_METRICS)
    small = (pl.col("after") - pl.col("before")).abs() <= uncertainty_ns
    decided = pl.col("change").is_in(["slower", "faster"])
    unclear = pl.lit("unclear", pl.Enum(CHANGES))
    return pl.when(host & small & decided).then(unclear).otherwise("change").alias("change")


def _positive(calibration: Mapping[str, float]) -> dict[str, float]:
    return {
        name: value
        for name, value in calibration.items()
        if name.endswith("_ns")
        and not name.endswith("uncertainty_ns")
        and math.isfinite(value)
        and value > 0
    }


def _ranges(analysis: Analysis, calibration: float) -> pl.DataFrame:
    closed = analysis.instances.filter(pl.col("closed") & (pl.col("kind") != "mark"))
    return closed.select(
        "name", "domain",
        *(pl.col(metric) / calibration for metric in HOST_METRICS),
        pl.col("gpu_ns", "launches").cast(pl.Float64),
    )  # fmt: skip


def _kernels(analysis: Analysis) -> pl.DataFrame:
    took = DURATION_NS.cast(pl.Float64)
    return analysis.gpu.select(
        "name", pl.lit(None, pl.String).alias("domain"), took.alias("gpu_ns")
    )


def _table(
    table: str, before: pl.DataFrame, after: pl.DataFrame, metrics: tuple[str, ...],
    ratios: Callable[..., pl.DataFrame],
) -> pl.DataFrame:  # fmt: skip
    """Return the rows of one table; ``ratios`` is ``median_ratios`` as it was asked for."""
    keys = pl.concat([each.select("name", "domain") for each in (before, after)]).unique()
    keys = keys.sort("domain", "name").with_row_index("key")
    one, other = (
        each.join(keys, on=["name", "domain"], how="left", nulls_equal=True)
        for each in (before, after)
    )
    intervals = ratios(one, other, "key", metrics)
    rows = _medians(one, metrics, "before").join(
        _medians(other, metrics, "after"), on=["key", "metric"], how="full", coalesce=True
    )
    rows = rows.join(intervals, on=["key", "metric"], how="left").join(keys, on="key")
    rows = rows.with_columns(pl.col("count_before", "count_after").fill_null(0))
    some = pl.col("before") > 0
    rows = rows.with_columns(ratio=pl.when(some).then(pl.col("after") / pl.col("before")))
    order = pl.col("metric").replace_strict(list(metrics), list(range(len(metrics))))
    weight = (pl.col("before") * pl.col("count_before")).max().over("key")
    return rows.sort(-weight.fill_null(0), "key", order).select(
        pl.lit(table).alias("table"), "name", "domain", "metric", "count_before", "count_after",
        "before", "after", "ratio", "low", "high", _change(),
    )  # fmt: skip


def _medians(values: pl.DataFrame, metrics: tuple[str, ...], side: str) -> pl.DataFrame:
    medians = values.group_by("key").agg(pl.col(metrics).median(), pl.len().alias(f"count_{side}"))
    return medians.unpivot(
        metrics, index=["key", f"count_{side}"], variable_name="metric", value_name=side
    )


def _change() -> pl.Expr:
    few = pl.min_horizontal("count_before", "count_after") < _FEW
    return (
        pl.when(pl.col("count_after") == 0).then(pl.lit("only before"))
        .when(pl.col("count_before") == 0).then(pl.lit("only after"))
        .when(few).then(pl.lit("too few"))
        .when(pl.col("low") > 1).then(pl.lit("slower"))
        .when(pl.col("high") < 1).then(pl.lit("faster"))
        .otherwise(pl.lit("unclear"))
        .cast(pl.Enum(CHANGES)).alias("change")
    )  # fmt: skip


def _is_over(fail_over: float) -> pl.Expr:
    # Launches are counted, not timed: one more is one more, however few there were.
    more = pl.col("after") > pl.col("before") * (1 + fail_over)
    launches = (pl.col("metric") == "launches") & more
    return launches | ((pl.col("change") == "slower") & (pl.col("ratio") > 1 + fail_over))
