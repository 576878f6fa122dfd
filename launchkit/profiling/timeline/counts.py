"""Rows read, used and dropped by reason, for the end of every report. A leaf."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class TableCounts:
    """The rows of one table of a capture.

    ``dropped`` counts those left out by reason, ``noted`` those used that are remarkable (ranges
    never closed, kernels without a launch) by remark. A row read is used or dropped once.
    """

    read: int = 0
    used: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    noted: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON has them."""
        return {
            "read": self.read,
            "used": self.used,
            "dropped": dict(sorted(self.dropped.items())),
            "noted": dict(sorted(self.noted.items())),
        }


class RowCounts:
    """Rows read, used and dropped, by table of the capture; ``add`` while it is read."""

    def __init__(self) -> None:
        self._tables: dict[str, TableCounts] = {}

    def add(
        self,
        table: str,
        *,
        read: int = 0,
        used: int = 0,
        dropped: Mapping[str, int] | None = None,
        noted: Mapping[str, int] | None = None,
    ) -> None:
        """Count rows of ``table``; reasons and remarks without rows are left out."""
        counts = self._tables.setdefault(table, TableCounts())
        counts.read += read
        counts.used += used
        for kept, given in ((counts.dropped, dropped), (counts.noted, noted)):
            kept.update({reason: rows for reason, rows in (given or {}).items() if rows})

    def update(self, other: RowCounts) -> None:
        """Add the counts of ``other``."""
        for table, counts in other:
            self.add(
                table,
                read=counts.read,
                used=counts.used,
                dropped=counts.dropped,
                noted=counts.noted,
            )

    def __iter__(self) -> Iterator[tuple[str, TableCounts]]:
        return iter(self._tables.items())

    def __getitem__(self, table: str) -> TableCounts:
        """Return the counts of ``table``: zeros where nothing was counted."""
        return self._tables.get(table, TableCounts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowCounts) and self._tables == other._tables

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RowCounts({self.to_dict()})"

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON has them: by table ``read``, ``used``, ``dropped``, ``noted``."""
        return {table: counts.to_dict() for table, counts in self}

    def sentences(self) -> list[str]:
        """Return a line of text a table, for people: ``calls: 12 read, 10 used, 2 dropped (…)``."""
        return [_sentence(table, counts) for table, counts in self]


def _sentence(table: str, counts: TableCounts) -> str:
    text = f"{table}: {counts.read} read, {counts.used} used"
    if counts.dropped:
        text += f", {counts.dropped.total()} dropped ({_listed(counts.dropped)})"
    return text + (f"; {_listed(counts.noted)}" if counts.noted else "")


def _listed(reasons: Counter[str]) -> str:
    return ", ".join(f"{rows} {reason}" for reason, rows in sorted(reasons.items()))
