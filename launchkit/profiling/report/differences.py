"""What differs between two captures, as JSON and for the terminal. Above the timeline only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from launchkit.printing import printable
from launchkit.profiling.report.document import rows_of, source_object
from launchkit.profiling.report.lines import row_lines
from launchkit.profiling.report.views import microseconds, titled
from launchkit.profiling.timeline.analysis.analysis import Analysis
from launchkit.profiling.timeline.analysis.comparing import Comparison

SCHEMA_VERSION = 1

_METRICS = {
    "wall_ns": "wall", "inclusive_python_ns": "Python", "api_ns": "calls", "gpu_ns": "GPU work",
    "launches": "launches",
}  # fmt: skip
_TELLING = ("slower", "faster", "only before", "only after")
_COUNTED = {"slower": "more", "faster": "fewer"}
"""What is said of launches, which are counted, for what is said of times."""
_STYLES = {"slower": "red", "more": "red", "faster": "green", "fewer": "green"}


def difference_document(
    comparison: Comparison, before: Analysis, after: Analysis, fail_over: float | None
) -> dict[str, Any]:
    """Return a comparison as JSON types; ``fail_over`` is what was allowed, as a share.

    ``rows`` have every range and kernel, ``over`` those that fail.
    """
    sides = {"before": before, "after": after}
    names = _apart(*(each.timeline.source.path for each in sides.values()))
    return {
        "schema": SCHEMA_VERSION,
        **{
            name: {**source_object(each.timeline.source), "path": path}
            for (name, each), path in zip(sides.items(), names, strict=True)
        },
        "calibration": comparison.calibration,
        "calibrated": list(comparison.calibrated),
        "fail_over": fail_over,
        "failed": comparison.failed,
        "rows": rows_of(comparison.rows),
        "over": rows_of(comparison.over),
        "warnings": {name: list(each.warnings) for name, each in sides.items()},
        "rows_read": {name: each.timeline.counts.to_dict() for name, each in sides.items()},
    }


def _apart(before: str, after: str) -> tuple[str, str]:
    """Return the names of two files; where they are the same, with the folders that tell them apart."""
    # Not resolved: a link is what the user named.
    parts = [Path(os.path.abspath(each)).parts for each in (before, after)]
    shortest = min(map(len, parts))
    for length in range(1, shortest + 1):
        mine, theirs = ("/".join(each[-length:]) for each in parts)
        if mine != theirs:
            return mine, theirs
    return parts[0][-1], parts[1][-1]


def difference_renderables(
    document: Mapping[str, Any], *, limit: int = 30, every: bool = False
) -> Iterator[RenderableType]:
    """Yield a comparison's parts: what became slower or faster, or with ``every`` all of it."""
    yield Text(f"{document['before']['path']} → {document['after']['path']}", style="bold")
    yield Text(_calibration(document))
    found: list[Mapping[str, Any]] = document["rows"]
    rows = found if every else _telling(found)
    if rows:
        yield _table("Medians, in µs", rows, limit)
    yield Text(_summary(document))
    yield from _judgement(document, limit)
    for side in ("before", "after"):
        yield Text(f"\nRows of {document[side]['path']}", style="italic")
        yield from (Text(line) for line in row_lines({"rows": document["rows_read"][side]}))


def _judgement(document: Mapping[str, Any], limit: int) -> Iterator[RenderableType]:
    """Yield what fails. Launches do by their number, however seldom the range was there."""
    if document["fail_over"] is None:
        return
    allowed = f"{100 * document['fail_over']:g} %"
    if not document["over"]:
        yield Text(f"Nothing is over {allowed}.")
        return
    # However seldom the range was there: the rows themselves may say that it is too few.
    failing = [
        {**row, "change": "slower"} if row["metric"] == "launches" else row
        for row in document["over"]
    ]
    yield _table(f"Over {allowed}", failing, limit)


def _telling(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that changed, the surest first; of what one side lacks, one row each."""
    whole = ("wall_ns", "gpu_ns")
    found = [
        row
        for row in rows
        if row["change"] in ("slower", "faster")
        or (row["change"] in _TELLING and row["metric"] == whole[row["table"] == "kernels"])
    ]
    return sorted(found, key=lambda row: _TELLING.index(row["change"]))


def _calibration(document: Mapping[str, Any]) -> str:
    if not document["calibrated"]:
        return "Not calibrated: the captures share no measurement of their machines."
    factor = document["calibration"]
    return (
        f"Host times of the second are divided by {factor:.3f}, how much longer its machine took "
        f"for {', '.join(document['calibrated'])}."
    )


def _table(title: str, rows: list[Mapping[str, Any]], limit: int) -> Table:
    more = len(rows) - limit
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
        caption=f"{more} more row{'s' * (more > 1)}: --limit, or --json." if more > 0 else None,
        caption_justify="left", padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("range or kernel", overflow="fold", min_width=12)
    table.add_column("what", no_wrap=True)
    for name in ("n", "before", "after", "ratio", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("change", no_wrap=True)
    for row in rows[:limit]:
        table.add_row(*_cells(row), style=_STYLES.get(_change(row)))
    return table


def _cells(row: Mapping[str, Any]) -> list[Text]:
    numbers = f"{row['count_before']}/{row['count_after']}"
    known = row["low"] is not None and row["high"] is not None
    cells = [
        printable(titled(row)),
        "kernel" if row["table"] == "kernels" else _METRICS[row["metric"]],
        numbers,
        _value(row, "before"),
        _value(row, "after"),
        "" if row["ratio"] is None else f"{row['ratio']:.3f}",
        f"{row['low']:.2f} to {row['high']:.2f}" if known else "",
        _change(row),
    ]
    return [Text(cell) for cell in cells]


def _change(row: Mapping[str, Any]) -> str:
    change: str = row["change"]
    return _COUNTED.get(change, change) if row["metric"] == "launches" else change


def _value(row: Mapping[str, Any], side: str) -> str:
    value = row[side]
    if value is None:
        return ""
    return f"{value:,.0f}" if row["metric"] == "launches" else microseconds(value)


def _summary(document: Mapping[str, Any]) -> str:
    counts: dict[str, int] = {}
    for row in document["rows"]:
        change = _change(row)
        counts[change] = counts.get(change, 0) + 1
    listed = ", ".join(f"{count} {change}" for change, count in sorted(counts.items()))
    return f"Comparisons: {listed or 'none, the captures share nothing that is timed'}."
