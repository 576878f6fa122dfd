"""What a report says in lines of text, in the terminal and in HTML. Reads a document only."""

from __future__ import annotations

from launchkit.profiling.report.views import Document, Row, microseconds


def headline(document: Document) -> str:
    """Return what a report is of, in one line."""
    source = document["source"]
    made_by = " ".join(part for part in (source["product"], source["version"]) if part)
    parts = [source["path"], made_by or source["format"]]
    if document["span_ns"]:
        parts.append(f"{document['span_ns'] / 1e6:,.1f} ms")
    if source["host_only"]:
        parts.append("host only: no GPU work was captured")
    return " · ".join(parts)


def device_lines(document: Document) -> list[str]:
    """Return a line for each GPU: how much of its time it was busy."""
    return [
        f"GPU {row['device']}: busy {row['busy_ns'] / 1e6:,.1f} ms of {row['span_ns'] / 1e6:,.1f} ms "
        f"({100 * row['busy_ns'] / max(1, row['span_ns']):.0f} %)"
        for row in document["devices"]
    ]


def recorder_line(document: Document) -> str:
    """Return what recording cost, of an own profile, in one line."""
    known = document["source"]["calibration"]
    costs = [
        f"{microseconds(known[f'{name}_ns'])} ± {microseconds(known[f'{name}_uncertainty_ns'])} µs"
        f" of {what}"
        for name, what in (("launch", "a launch"), ("range", "a range"))
        if known.get(f"{name}_ns") and f"{name}_uncertainty_ns" in known
    ]
    return f"Recording took {' and '.join(costs)}, and is subtracted." if costs else ""


def latency_line(document: Document) -> str:
    """Return how long launches took, in one line; nothing where there were none."""
    found = document["launch_latency"]
    if not found["count"]:
        return ""
    text = f"{found['count']:,} launches"
    if found["steady"]:
        figures = (microseconds(found[name]) for name in ("median_ns", "p90_ns", "p99_ns"))
        # An own profile knows the driver's part of a launch, and its tables have the whole.
        part = "driver call " if document["source"]["format"] == "launchkit" else ""
        text += " of which {:,} steady: {}p50 {} µs, p90 {} µs, p99 {} µs".format(
            found["steady"], part, *figures
        )
    return text + f"; {found['cold']:,} cold, {found['stalled']:,} held up by a full queue"


def row_lines(document: Document) -> list[str]:
    """Return a line for each table of the capture: rows read, used and dropped by reason."""
    return [
        _row_line(table, counts) for table, counts in document["rows"].items() if counts["read"]
    ]


def _row_line(table: str, counts: Row) -> str:
    text = f"{table}: {counts['read']:,} read, {counts['used']:,} used"
    dropped = [f"{rows:,} {reason}" for reason, rows in counts["dropped"].items()]
    noted = [f"{rows:,} {remark}" for remark, rows in counts["noted"].items()]
    text += f", dropped: {', '.join(dropped)}" if dropped else ""
    return text + (f"; {', '.join(noted)}" if noted else "")
