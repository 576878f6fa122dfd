"""A report as JSON types: every table that the other forms show. Above the timeline only.

Times are int or float ns. The tables ``ranges``, ``apis`` and ``kernels`` have ``name``, ``count``
and ``total_ns`` first; docs/json.md has the rest.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from launchkit.profiling.report.latency import launch_latency
from launchkit.profiling.timeline.analysis.analysis import Analysis
from launchkit.profiling.timeline.figures import DURATION_NS, QUANTILES
from launchkit.profiling.timeline.model import Source, Timeline
from launchkit.profiling.timeline.summaries import api_summary

SCHEMA_VERSION = 1
LONGEST = 200
"""Rows kept of the tables that have one per event: gaps, cold launches, steps."""

_VERDICT = (
    "verdict", "reason", "python_share", "api_share", "stall_share", "sync_share", "gpu_share",
    "gpu_active_share",
)  # fmt: skip
_STEP = (
    "step", "name", "start_ns", "wall_ns", "period_ns", "done_ns", "inclusive_python_ns", "api_ns",
    "stall_ns", "cold_ns", "sync_ns", "launches", "kernels", "gpu_ns", "gpu_busy_ns",
    "exposed_idle_ns",
)  # fmt: skip
_GAP = (
    "device", "start_ns", "idle_ns", "cause", "domain", "range", "kernel", "name", "thread",
)  # fmt: skip


def report_document(analysis: Analysis, what_if: pl.DataFrame | None = None) -> dict[str, Any]:
    """Return what a report says of one capture, as JSON types.

    ``what_if``: the predictions to report, of ``suggestions``.
    """
    timeline = analysis.timeline
    first_ns, last_ns = timeline.span_ns()
    work = analysis.kernels.with_columns(pl.col("kind").cast(pl.String))
    copies = pl.col("kind").is_in(["memcpy", "memset"])
    return {
        "schema": SCHEMA_VERSION,
        "source": source_object(timeline.source),
        "span_ns": last_ns - first_ns,
        "ranges": rows_of(_judged(analysis)),
        "launches": rows_of(_phases(timeline)),
        "apis": rows_of(_apis(analysis)),
        "kernels": rows_of(work.filter(~copies)),
        "copies": rows_of(work.filter(copies)),
        "ops": rows_of(analysis.ops),
        "layers": rows_of(analysis.layers),
        "steps": rows_of(_some(analysis.steps, _STEP).head(LONGEST)),
        "idle": rows_of(analysis.idle),
        "gaps": rows_of(_some(analysis.gaps, _GAP).head(LONGEST)),
        "processes": rows_of(analysis.processes),
        "devices": rows_of(analysis.devices),
        "sync": rows_of(analysis.sync),
        "cold": rows_of(analysis.cold.head(LONGEST)),
        "what_if": [] if what_if is None else rows_of(what_if),
        "python": rows_of(analysis.python),
        "frames": rows_of(analysis.frames),
        "launch_latency": launch_latency(analysis.calls),
        "omitted": _omitted(analysis),
        "warnings": list(analysis.warnings),
        "rows": timeline.counts.to_dict(),
    }


def source_object(source: Source) -> dict[str, Any]:
    """Return where a timeline comes from; of its path the file's name."""
    return {**asdict(source), "path": os.path.basename(source.path.rstrip("/"))}


def rows_of(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a table's rows as JSON has them: what is no number in JSON is null."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_dicts()]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value


def _judged(analysis: Analysis) -> pl.DataFrame:
    """The ranges with their verdicts, which stand in the same order."""
    return analysis.ranges.hstack(analysis.verdicts.select(_VERDICT))


def _phases(timeline: Timeline) -> pl.DataFrame:
    """Launches of an own profile by kernel, with the medians of their phases where they are known."""
    if "driver_ns" not in timeline.calls.columns:
        return pl.DataFrame()
    rows = timeline.calls.group_by("name").agg(
        pl.len().alias("count"), DURATION_NS.sum().alias("total_ns"),
        *(DURATION_NS.quantile(part, "linear").alias(name) for name, part in QUANTILES.items()),
        pl.col("find_ns", "grid_ns", "driver_ns").median().name.prefix("median_"),
    )  # fmt: skip
    return rows.sort("total_ns", "name", descending=[True, False])


def _apis(analysis: Analysis) -> pl.DataFrame:
    """Functions of the API with their stalls. An own profile has launches, and calls of no API."""
    apis = api_summary(analysis.timeline)
    if analysis.timeline.source.format == "launchkit":
        apis = apis.clear()
    waited = analysis.stalls.group_by("name").agg(
        pl.col("stalled", "stall_ns").sum(), pl.col("launch_median_ns").median()
    )
    return apis.join(waited, on="name", how="left", maintain_order="left")


def _some(table: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    return table.select(name for name in names if name in table.columns)


def _omitted(analysis: Analysis) -> dict[str, int]:
    """How many rows of the longer tables are left out."""
    heights = {name: getattr(analysis, name).height for name in ("steps", "gaps", "cold")}
    return {name: height - LONGEST for name, height in heights.items() if height > LONGEST}
