"""The plots of a report, as Plotly.js takes them: data and layout. Reads a document only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launchkit.profiling.report.views import Document, Row, place_of, titled

Figure = dict[str, Any]

COLORS: Mapping[str, str] = {
    "Python": "#4c78a8",
    "calls": "#f58518",
    "calls and waits": "#f58518",
    "queue full": "#e45756",
    "waits": "#b279a2",
    "steady": "#4c78a8",
    "cold": "#72b7b2",
    "stalled": "#e45756",
    "python": "#4c78a8",
    "api": "#f58518",
    "sync": "#b279a2",
    "launch": "#54a24b",
    "queue": "#eeca3b",
    "profiler": "#9d755d",
    "unknown": "#bab0ac",
}
"""A color for each thing, the same in every plot."""

_PALETTE = tuple(dict.fromkeys(COLORS.values()))

_MOST = 40
"""Bars in a plot; the tables have the rest."""


def figures(document: Document) -> list[Figure]:
    """Return the plots that a document has something for, each with ``id``, ``title``, ``note``,
    ``data`` and ``layout``."""
    made = (
        _host_time(document),
        _python(document),
        _idle(document),
        _latency(document),
        _steps(document),
    )
    return [figure for figure in made if figure is not None]


def _host_time(document: Document) -> Figure | None:
    """Stacked host time by layer; by range where no layers are known."""
    rows = [row for row in document["layers"] if row["layer"] is not None]
    if rows:
        labels, of = _layers(rows)
        title, note = (
            "Host time by layer",
            "µs in all; calls without the time that they waited for a full queue.",
        )
    else:
        rows = [row for row in document["ranges"] if row["exclusive_ns"]]
        rows = sorted(rows, key=lambda row: -row["exclusive_ns"])[:_MOST]
        labels = [titled(row) for row in rows]
        of = {
            "Python": [row["python_ns"] / 1000 for row in rows],
            "calls and waits": [(row["exclusive_ns"] - row["python_ns"]) / 1000 for row in rows],
        }
        title, note = "Host time by range", "µs in all, without what the ranges inside it take."
    if not labels:
        return None
    data = [_bars(name, labels, values) for name, values in of.items() if any(values)]
    layout = {"barmode": "stack", "xaxis": {"type": "category"}, "yaxis": {"title": {"text": "µs"}}}
    return _figure("host-time", title, note, data, layout)


def _layers(rows: Sequence[Row]) -> tuple[list[str], dict[str, list[float]]]:
    layers = sorted({row["layer"] for row in rows})
    merged = [
        {
            name: sum(row[name] or 0 for row in rows if row["layer"] == layer)
            for name in ("python_ns", "api_ns", "stall_ns", "sync_ns")
        }
        for layer in layers
    ]
    return [f"layer {layer}" for layer in layers], _stacks(merged)


def _stacks(rows: Sequence[Row]) -> dict[str, list[float]]:
    parts = {"Python": "python_ns", "calls": "api_ns", "queue full": "stall_ns", "waits": "sync_ns"}
    found = {name: [(row[key] or 0) / 1000 for row in rows] for name, key in parts.items()}
    pairs = zip(found["calls"], found["queue full"], strict=True)
    found["calls"] = [max(0.0, calls - stalls) for calls, stalls in pairs]
    return found


def _python(document: Document) -> Figure | None:
    """What Python was doing in each range, stacked to 100 %."""
    rows = document["python"]
    labels = list(dict.fromkeys(place_of(row) for row in rows))[:_MOST]
    if not labels:
        return None
    shares = {(row["name"], place_of(row)): 100 * row["share"] for row in rows}
    data = [
        {**_bars(name, labels, [shares.get((name, label), 0.0) for label in labels]),
         "marker": {"color": _PALETTE[number % len(_PALETTE)]}}
        for number, name in enumerate(dict.fromkeys(row["name"] for row in rows))
    ]  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"type": "category"},
        "yaxis": {"title": {"text": "% of samples"}, "range": [0, 100]},
    }
    note = "By the innermost frame that is known; the intervals are in the table."
    return _figure("python", "Python by range", note, data, layout)


def _idle(document: Document) -> Figure | None:
    """Idle time of the GPU by range, stacked by its cause."""
    rows = [row for row in document["idle"] if row["idle_ns"]]
    per_step = any(row["step_ns"] is not None for row in rows)
    key = "step_ns" if per_step else "idle_ns"
    places = {place_of(row): 0.0 for row in rows}
    for row in rows:
        places[place_of(row)] += row[key] or 0
    labels = sorted((place for place in places if places[place]), key=lambda place: -places[place])
    labels = labels[:_MOST]
    if not labels:
        return None
    causes: dict[str, dict[str, float]] = {}
    for row in rows:
        of_cause = causes.setdefault(row["cause"], {})
        of_cause[place_of(row)] = of_cause.get(place_of(row), 0.0) + (row[key] or 0) / 1000
    data = [
        _bars(cause, labels, [of.get(place, 0.0) for place in labels])
        for cause, of in causes.items()
    ]
    unit = "µs per step" if per_step else "µs"
    layout = {"barmode": "stack", "xaxis": {"type": "category"}, "yaxis": {"title": {"text": unit}}}
    note = "By what the launching thread did, and the range that it did it in."
    return _figure("idle", "Why the GPU was idle", note, data, layout)


def _latency(document: Document) -> Figure | None:
    """The distribution of launch calls' durations."""
    bins = document["launch_latency"]["bins"]
    if not bins:
        return None
    middles = [(each["from_ns"] * each["to_ns"]) ** 0.5 / 1000 for each in bins]
    widths = [(each["to_ns"] - each["from_ns"]) / 1000 for each in bins]
    data = [
        {**_bars(name, middles, [each[name] for each in bins]), "width": widths}
        for name in ("steady", "cold", "stalled")
        if any(each[name] for each in bins)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0,
        "xaxis": {"type": "log", "dtick": 1, "title": {"text": "µs in the launch call"}},
        "yaxis": {"title": {"text": "launches"}},
    }
    note = "Stalled launches waited for a full queue: that is the GPU's time, not the launch's."
    return _figure("latency", "Launch latency", note, data, layout)


def _steps(document: Document) -> Figure | None:
    steps = document["steps"]
    if len(steps) < 2:
        return None
    numbers = [row["step"] for row in steps]
    data = [
        {
            "type": "scatter", "mode": "lines+markers", "name": name, "x": numbers,
            "y": [row[key] / 1000 for row in steps],
        }
        for name, key in (("host", "wall_ns"), ("host and GPU", "done_ns"))
    ]  # fmt: skip
    layout = {
        "xaxis": {"title": {"text": "step"}, "dtick": max(1, len(steps) // 10)},
        "yaxis": {"title": {"text": "µs"}, "rangemode": "tozero"},
    }
    return _figure(
        "steps", "Steps", "From its start until the host, and both, were done.", data, layout
    )


def _bars(name: str, x: Sequence[Any], y: Sequence[float]) -> dict[str, Any]:
    color = COLORS.get(name, "#888888")
    return {"type": "bar", "name": name, "x": list(x), "y": list(y), "marker": {"color": color}}


def _figure(
    name: str, title: str, note: str, data: list[dict[str, Any]], layout: dict[str, Any]
) -> Figure:
    return {"id": name, "title": title, "note": note, "data": data, "layout": layout}
