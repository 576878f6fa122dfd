"""How long launch calls take: quantiles, and a histogram by ratio. Above the timeline only."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from launchkit.profiling.timeline.figures import DURATION_NS, QUANTILES
from launchkit.profiling.timeline.vocabulary import LAUNCH_KINDS

_PER_DECADE = 10


def launch_latency(calls: pl.DataFrame) -> dict[str, Any]:
    """Return the durations of launch calls (of ``stalls.with_stalls`` and ``cold.mark_cold``).

    ``count``, of which ``cold`` and ``stalled`` (both apart from the steady ones); ``median_ns``,
    ``p90_ns``, ``p99_ns`` of the ``steady`` launches (None without any); ``bins``: ``from_ns``,
    ``to_ns`` and how many launches of each kind ended within, ten bins to a factor of ten.
    """
    took = DURATION_NS.alias("took")
    kind = (
        pl.when("cold").then(pl.lit("cold"))
        .when(pl.col("stall_ns") > 0).then(pl.lit("stalled"))
        .otherwise(pl.lit("steady"))
    )  # fmt: skip
    launches = calls.filter(pl.col("kind").cast(pl.String).is_in(LAUNCH_KINDS)).select(
        took, of=kind
    )
    steady = launches.filter(pl.col("of") == "steady").get_column("took")
    counts = dict(launches.group_by("of").len().iter_rows())
    return {
        "count": launches.height,
        **{name: counts.get(name, 0) for name in ("steady", "cold", "stalled")},
        **{name: steady.quantile(part, "linear") for name, part in QUANTILES.items()},
        "bins": _bins(launches),
    }


def _bins(launches: pl.DataFrame) -> list[dict[str, Any]]:
    place = (pl.col("took").clip(1).log10() * _PER_DECADE).floor().cast(pl.Int64)
    counted = launches.group_by(place.alias("bin"), "of").len()
    found: dict[int, dict[str, int]] = {}
    for number, of, count in counted.iter_rows():
        found.setdefault(number, {})[of] = count
    if not found:
        return []
    return [_bin(number, found.get(number, {})) for number in range(min(found), max(found) + 1)]


def _bin(number: int, counts: dict[str, int]) -> dict[str, Any]:
    edges = (math.pow(10, (number + at) / _PER_DECADE) for at in (0, 1))
    from_ns, to_ns = (round(edge, 1) for edge in edges)
    named = {name: counts.get(name, 0) for name in ("steady", "cold", "stalled")}
    return {"from_ns": from_ns, "to_ns": to_ns, **named}
