"""Captures of any profiler as one timeline, and what can be read from it. Above the leaves only.

Its names are imported on first use, since polars comes with the extra ``profile`` only: without it
they raise MissingExtraError.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from launchkit.errors import MissingExtraError

if TYPE_CHECKING:
    from launchkit.profiling.timeline.analysis.analysis import Analysis, analyse
    from launchkit.profiling.timeline.analysis.comparing import Comparison, compare
    from launchkit.profiling.timeline.counts import RowCounts, TableCounts
    from launchkit.profiling.timeline.merging import merge_timelines, taken_together
    from launchkit.profiling.timeline.model import (
        TABLES,
        Source,
        Timeline,
        empty_table,
        table_of,
    )
    from launchkit.profiling.timeline.progress import Progress
    from launchkit.profiling.timeline.reading import read_timeline
    from launchkit.profiling.timeline.summaries import (
        api_summary,
        execution_summary,
        kernel_summary,
        range_kernel_summary,
        range_summary,
    )
    from launchkit.profiling.timeline.what_if.changes import (
        CachedLaunches,
        Change,
        CudaGraph,
        Fused,
        OpPlan,
    )
    from launchkit.profiling.timeline.what_if.prediction import Prediction, predict, suggestions

__all__ = [
    "TABLES",
    "Analysis",
    "CachedLaunches",
    "Change",
    "Comparison",
    "CudaGraph",
    "Fused",
    "OpPlan",
    "Prediction",
    "Progress",
    "RowCounts",
    "Source",
    "TableCounts",
    "Timeline",
    "analyse",
    "api_summary",
    "compare",
    "empty_table",
    "execution_summary",
    "kernel_summary",
    "merge_timelines",
    "predict",
    "range_kernel_summary",
    "range_summary",
    "read_timeline",
    "suggestions",
    "table_of",
    "taken_together",
]

# Where each name is found.
_HOMES = {
    "CachedLaunches": "what_if.changes",
    "Change": "what_if.changes",
    "Comparison": "analysis.comparing",
    "CudaGraph": "what_if.changes",
    "Fused": "what_if.changes",
    "OpPlan": "what_if.changes",
    "Prediction": "what_if.prediction",
    "compare": "analysis.comparing",
    "suggestions": "what_if.prediction",
    "predict": "what_if.prediction",
    "Analysis": "analysis.analysis",
    "Progress": "progress",
    "RowCounts": "counts",
    "Source": "model",
    "TABLES": "model",
    "TableCounts": "counts",
    "Timeline": "model",
    "analyse": "analysis.analysis",
    "api_summary": "summaries",
    "empty_table": "model",
    "execution_summary": "summaries",
    "kernel_summary": "summaries",
    "merge_timelines": "merging",
    "range_kernel_summary": "summaries",
    "range_summary": "summaries",
    "read_timeline": "reading",
    "table_of": "model",
    "taken_together": "merging",
}


def _public(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("launchkit"):
            raise
        raise MissingExtraError("profile", error.name or "polars") from None
    return getattr(module, name)


if not TYPE_CHECKING:
    # A type checker that saw it would take every misspelt name for a public one.
    __getattr__ = _public
