"""Ranges from the begins and ends of a chrome trace, which stand apart in it. Above rows."""

from __future__ import annotations

from typing import Any

from launchkit.profiling.timeline.chrome.rows import Rows, domain_of

_Half = tuple[int, int, Any]


def pair_halves(rows: Rows) -> None:
    """Add the ranges whose begin and end are events of their own.

    Those of a thread (B, E) nest: an end closes the range begun last. Others (b, e; S, F) have an
    id, and may end on another thread. Events of one time count in the order of the file.
    """
    for key, halves in rows.halves.items():
        nested = len(key) == 2
        halves.sort(key=lambda half: half[:2])
        open_ranges: list[_Half] = []
        for half in halves:
            if isinstance(half[2], tuple):
                open_ranges.append(half)
            elif open_ranges:
                _close(rows, open_ranges.pop(), half, nested)
            else:
                rows.dropped["ends without a begin"] += 1
        for start_ns, _, (lane, name, category) in open_ranges:
            rows.open_ends.add((*lane, start_ns), (name, domain_of(category), category or None))
    rows.halves.clear()


def _close(rows: Rows, begun: _Half, ended: _Half, nested: bool) -> None:
    start_ns, _, (lane, name, category) = begun
    end_ns, _, thread = ended
    rows.ranges.add(
        (*lane, start_ns, end_ns, None if thread == lane[1] else thread),
        (name, domain_of(category), category or None, "push_pop" if nested else "start_end"),
    )
