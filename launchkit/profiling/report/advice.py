"""What a report advises: why ranges are bound, and what helps. Reads a document only."""

from __future__ import annotations

from collections.abc import Iterator

from launchkit.profiling.report.views import CHANGES, Document, Row, titled
from launchkit.profiling.timeline.analysis.verdicts import HELPS

_TOLD = 5
"""Ranges whose verdict is explained: those at the head of the table."""


def reason_lines(document: Document) -> list[str]:
    """Return for the first ranges that something can be done about why they have their verdict."""
    return [f"{titled(row)} is {row['verdict']}: {row['reason']}" for row in _told(document)]


def help_lines(document: Document) -> list[str]:
    """Return what helps for each verdict among those that are explained."""
    verdicts = dict.fromkeys(row["verdict"] for row in _told(document))
    return [f"{verdict}: {HELPS[verdict]}" for verdict in verdicts]


def caveat_lines(document: Document) -> list[str]:
    """Return what the predictions leave out, each remark once, with what it is about if not all."""
    rows: list[Row] = document["what_if"]
    notes = dict.fromkeys(note for row in rows for note in row["notes"])
    return [f"{_about(note, rows)}{note}" for note in notes]


def _about(note: str, rows: list[Row]) -> str:
    noted = [row for row in rows if note in row["notes"]]
    if len(noted) == len(rows):
        return ""
    whole = {row["change"] for row in rows} - {row["change"] for row in rows if row not in noted}
    names = ("" if row["change"] in whole else f"{row['range']} " for row in noted)
    changes = (CHANGES.get(row["change"], row["change"]) for row in noted)
    about = dict.fromkeys(f"{name}{change}" for name, change in zip(names, changes, strict=True))
    return f"{', '.join(about)}: "


def _told(document: Document) -> list[Row]:
    return list(_bound(document))[:_TOLD]


def _bound(document: Document) -> Iterator[Row]:
    return (row for row in document["ranges"] if row["verdict"] in HELPS)
