"""Rows of a timeline as events of a trace: their names and what stands beside them. A leaf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Event = dict[str, Any]
Row = Mapping[str, Any]


def of_range(row: Row) -> Event:
    """Return the event of a range or mark, without its times and track."""
    event = _event("range", row, "domain", "category", "payload")
    event["ph"] = "i" if row["kind"] == "mark" else "X"
    if not row["closed"]:
        event["args"]["never closed"] = True
    return event


def of_call(row: Row) -> Event:
    """Return the event of an API call or launch."""
    return _event("call", row, "kind", "layer", "correlation", "returned")


def of_work(row: Row) -> Event:
    """Return the event of GPU work."""
    event = _event("gpu", row, "full_name", "kind", "correlation", "graph_id", "bytes", "context")
    if event["args"].get("full_name") == row["name"]:
        del event["args"]["full_name"]
    return event


def of_overhead(row: Row) -> Event:
    """Return the event of what the driver or the profiler did for itself."""
    return {"cat": "overhead", "name": row["kind"], "ph": "X", "args": {}}


def of_gap(row: Row) -> Event:
    """Return the event of a time in which a device executed nothing, named after its cause."""
    args = {name: row[name] for name in ("range", "domain", "kernel") if row.get(name)}
    return {"cat": "gap", "name": row["cause"], "ph": "X", "args": args}


def of_sample(row: Row) -> Event:
    """Return the event of a Python stack, named after its innermost frame."""
    frames = row["frames"] or ["(no frame)"]
    return {"cat": "sample", "name": frames[-1], "ph": "i", "args": {"stack": "\n".join(frames)}}


def _event(category: str, row: Row, *details: str) -> Event:
    args = {name: row[name] for name in details if row[name] not in (None, "")}
    return {"cat": category, "name": row["name"] or "(no name)", "ph": "X", "args": args}
