"""Python frames by range: how many samples, which share, and how sure that is. Above nesting.

Samples say what a thread was doing when it was looked at, so they give shares, and never times.
Intervals are Wilson's ("Probable Inference, the Law of Succession, and Statistical Inference",
1927): they hold for shares near 0 and for few samples, and take samples for independent.
"""

from __future__ import annotations

from statistics import NormalDist

import polars as pl

from launchkit.profiling.timeline.analysis.buckets import bucket_of
from launchkit.profiling.timeline.analysis.nesting import Nesting, innermost_at, nest
from launchkit.profiling.timeline.figures import DURATION_NS
from launchkit.profiling.timeline.model import Timeline, empty_table

CONFIDENCE = 0.95

_PLACE = ("domain", "range")
_EMPTY = {"domain": pl.String, "range": pl.String, "name": pl.String, "count": pl.UInt32,
          "of": pl.UInt32, "share": pl.Float64, "low": pl.Float64, "high": pl.Float64}  # fmt: skip


def wilson(
    count: pl.Expr, total: pl.Expr, confidence: float = CONFIDENCE
) -> tuple[pl.Expr, pl.Expr]:
    """Return the interval of a share of which ``count`` of ``total`` samples were seen."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share, scale = count / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = (z / scale) * (share * (1 - share) / total + z * z / (4 * total * total)).sqrt()
    return (middle - half).clip(0, 1), (middle + half).clip(0, 1)


def bucket_table(timeline: Timeline) -> pl.DataFrame:
    """Return by range (``domain``, ``range``; null outside any) and bucket (``name``) its share.

    ``count`` samples of the ``of`` taken while such a range was open on the sampled thread, also
    where inner ones were; ``share``, and its interval ``low`` to ``high`` (95 %). The ranges with
    the most samples first. Empty without samples.
    """
    return _shares(_placed(timeline), "bucket")


def frame_table(timeline: Timeline, most: int = 10) -> pl.DataFrame:
    """Return by range the ``most`` frequent leaf frames (``name``), as ``bucket_table``; ``bucket``."""
    placed = _placed(timeline)
    if placed.is_empty():
        return _shares(placed, "leaf").with_columns(bucket=pl.lit(None, dtype=pl.String))
    known = placed.group_by(*_PLACE, "leaf").agg(pl.col("bucket").mode().sort().first())
    known = known.rename({"leaf": "name"})
    table = _shares(placed, "leaf").group_by(*_PLACE, maintain_order=True).head(most)
    return table.join(known, on=[*_PLACE, "name"], how="left", nulls_equal=True,
                      maintain_order="left")  # fmt: skip


def short_ranges(timeline: Timeline) -> int:
    """Return how many ranges are no longer than what the clocks may be apart: samples may miss them."""
    apart_ns = timeline.source.calibration.get("clock_uncertainty_ns", 0.0)
    took = DURATION_NS
    return timeline.ranges.filter(took <= apart_ns).height


def _shares(placed: pl.DataFrame, column: str) -> pl.DataFrame:
    if placed.is_empty():
        return pl.DataFrame(schema=_EMPTY)
    whole = pl.col("count").sum().over(*_PLACE)
    table = (
        placed.group_by(*_PLACE, name=column)
        .agg(count=pl.col("weight").sum().round().cast(pl.UInt32))
        .filter(pl.col("count") > 0)
        .with_columns(of=whole)
    )
    low, high = wilson(pl.col("count"), pl.col("of"))
    share = pl.col("count") / pl.col("of")
    # Rounded, an end may lie on the wrong side of a share of 0 or 1.
    ends = {"low": pl.min_horizontal(low, share), "high": pl.max_horizontal(high, share)}
    table = table.with_columns(share=share, **ends)
    order = ["of", *_PLACE, "count", "name"]
    return table.sort(order, descending=[True, False, False, True, False], nulls_last=True)


def _placed(timeline: Timeline) -> pl.DataFrame:
    """Return each sample once for each name of a range that was open around it."""
    samples = timeline.samples.filter(pl.col("frames").list.len() > 0)
    if samples.is_empty():
        return pl.DataFrame()
    stacks = samples.select("frames").unique().with_columns(
        bucket=pl.col("frames").map_elements(lambda each: bucket_of(list(each)), pl.String),
        leaf=pl.col("frames").list.last().str.replace(r":\d+\)$", ")"),
    )  # fmt: skip
    samples = samples.with_row_index("sample").join(stacks, on="frames", how="left")
    return _around(timeline, samples.drop("frames"))


def _around(timeline: Timeline, samples: pl.DataFrame) -> pl.DataFrame:
    outside = samples.with_columns(
        domain=pl.lit(None, dtype=pl.String), range=pl.lit(None, dtype=pl.String)
    )
    ranges = timeline.ranges.filter(
        (pl.col("kind") == "push_pop") & pl.col("closed") & (pl.col("thread") >= 0)
    )
    timed = samples.filter(pl.col("time_ns").is_not_null())
    if ranges.is_empty() or timed.is_empty():
        return outside
    lanes = ranges.select("process", "thread").unique().sort("process", "thread")
    lanes = lanes.with_row_index("lane")
    nesting = nest(ranges.join(lanes, on=["process", "thread"], how="left", maintain_order="left"))
    timed = timed.join(lanes, on=["process", "thread"], how="inner", maintain_order="left")
    tops = innermost_at(timed, nesting.segments, "time_ns")
    timed = timed.with_columns(tops)
    stale = _stale(timed, nesting)
    inside = _ancestors(timed.join(stale, on="sample", how="anti"), nesting.ranges)
    gone = pl.concat([inside.select("sample"), stale]).unique()
    return pl.concat([inside, outside.join(gone, on="sample", how="anti")], how="diagonal_relaxed")


def _stale(timed: pl.DataFrame, nesting: Nesting) -> pl.DataFrame:
    """Return the samples that may show a stack of before: another range is open by then.

    Where a sampler falls behind, it tells only at its next look that a stack has changed.
    """
    if "seen_ns" not in timed.columns:
        return timed.clear().select("sample")
    before = innermost_at(timed, nesting.segments, "seen_ns").alias("before")
    names = nesting.ranges.select("order", which=pl.struct("domain", "name").rank("dense"))
    pairs = timed.with_columns(before)
    for column in ("top", "before"):
        renamed = names.rename({"order": column, "which": f"{column}_is"})
        pairs = pairs.join(renamed, on=column, how="left", maintain_order="left")
    return pairs.filter(~pl.col("top_is").eq_missing(pl.col("before_is"))).select("sample")


def _ancestors(samples: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each sample and each range around it, those of one name once."""
    named = ranges.select("order", "parent", "domain", range="name")
    level, levels = samples.filter(pl.col("top").is_not_null()), []
    while level.height:
        level = level.join(named, left_on="top", right_on="order", how="left")
        levels.append(level)
        outer = level.filter(pl.col("parent").is_not_null()).with_columns(top=pl.col("parent"))
        level = outer.drop("parent", "domain", "range")
    if not levels:
        return samples.clear().with_columns(
            domain=pl.lit(None, dtype=pl.String), range=pl.lit(None, dtype=pl.String)
        )
    return pl.concat(levels).unique(["sample", "domain", "range"], maintain_order=True)


def without_times(timeline: Timeline) -> Timeline:
    """Return a timeline whose times a sampler has distorted without what has them."""
    names = ("ranges", "calls", "gpu", "overheads")
    return timeline.with_tables(**{name: empty_table(name) for name in names})
