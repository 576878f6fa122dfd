"""A copy of an Nsight Systems export of some time only. Above export_rewriting.

Rows that cross an edge are clipped to it, never dropped: without the kernel that runs across it, a
busy GPU would look idle. The clock stays that of the capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from launchkit.profiling.timeline.copies.export_rewriting import (
    Rewriting,
    Table,
    reading,
    rewriting,
)
from launchkit.profiling.timeline.copies.files import (
    OUTSIDE,
    AnyPath,
    check_window,
    occurrence_of,
)
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.nsys.sqlite_files import quoted

_RANGES = (59, 60, 70, 71)
_DEFINITIONS = (33, 39, 75, 76)
"""NVTX rows that name categories, threads and domains: they hold for the whole capture."""
_STRING_COLUMN = re.compile(
    r"(?i)(name|text|string|symbol|module|filename|content|value)(id)?$|^(source|arguments)id$"
)
_SLACK_NS = 1_000
_META = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Tables that say what a file is an export of."""


def slice_export(path: AnyPath, output: AnyPath, start_ns: int, end_ns: int) -> RowCounts:
    """Write what the SQLite export ``path`` holds from ``start_ns`` to ``end_ns`` to ``output``.

    Times are on the capture's own clock. Returns the rows read, used, dropped since they lie
    outside, and clipped. Raises UsageError for an end that is not after its start, TimelineError
    for what cannot be read as an export.
    """
    check_window(start_ns, end_ns)
    counts = RowCounts()
    with rewriting(path, output) as copy:
        _Slicing(copy, counts, {"start": start_ns, "end": end_ns}).run()
    return counts


def range_bounds(path: AnyPath, name: str, occurrence: int = 1) -> tuple[int, int]:
    """Return start and end, in ns, of the ``occurrence``-th range of this name in an SQLite export.

    Raises UsageError where there is none, TimelineError for what cannot be read as an export.
    """
    with reading(path) as capture:
        ranges = [each for table in capture.named("NVTX_EVENTS") for each in _named(capture, table)]
    found = sorted((start, end) for each, start, end in ranges if each == name)
    return occurrence_of(str(path), name, occurrence, found, (each for each, *_ in ranges if each))


def _named(capture: Rewriting, table: Table) -> Iterator[tuple[str | None, int, int]]:
    names = [f"row.{quoted('text')}"] if "text" in table.columns else []
    if "textId" in table.columns and any(capture.named("StringIds")):
        names.append('(SELECT value FROM capture."StringIds" WHERE id = row."textId")')
    if not names:
        return
    name = f"coalesce({', '.join([*names, 'NULL'])})"
    yield from capture.connection.execute(
        f'SELECT CAST({name} AS TEXT), "start", "end" FROM capture.{quoted(table.name)} AS row '
        f'WHERE "eventType" IN {_RANGES} AND typeof("start") = \'integer\' '
        'AND typeof("end") = \'integer\' AND "end" > "start"'
    )


def _capture_end(copy: Rewriting) -> int:
    """Return when the capture ended: there old exports let ranges end that were never closed."""
    ends = [
        copy.count(f'SELECT max("duration") FROM capture.{quoted(table.name)}')
        for table in copy.named("ANALYSIS_DETAILS")
        if "duration" in table.columns
    ]
    return max(ends, default=0) or 2**62


class _Slicing:
    def __init__(self, copy: Rewriting, counts: RowCounts, window: Mapping[str, int]) -> None:
        self._copy = copy
        self._counts = counts
        self._window = {**window, "last": _capture_end(copy) - _SLACK_NS}
        self._edges = window
        copy.connection.execute("CREATE TEMP TABLE used (id INTEGER PRIMARY KEY)")

    def run(self) -> None:
        strings = [table for table in self._copy.named("StringIds") if "id" in table.columns]
        for table in self._copy.tables:
            if table not in strings:
                self._slice(table)
                self._note_strings(table)
        for table in strings:
            self._keep(table, {}, 'row."id" IN (SELECT id FROM used)', "not named by a row")
        for base in _META:
            for table in self._copy.named(base):
                self._say_so(table)

    def _slice(self, table: Table) -> None:
        columns = table.columns
        if {"start", "end"} <= columns.keys():
            self._clip(table)
        elif "timestamp" in columns and table.base != "DIAGNOSTIC_EVENT":
            self._keep(table, {}, 'row."timestamp" BETWEEN :start AND :end', OUTSIDE)
        else:
            self._keep(table, {}, "1", "")

    def _clip(self, table: Table) -> None:
        """Keep what overlaps the slice, with its edges clipped. A row without an end is open."""
        start, end = 'row."start"', 'ifnull(row."end", row."start")'
        unended = open_range = definition = "0"
        if "eventType" in table.columns:
            unended = f'row."eventType" IN {_RANGES} AND ifnull(row."end", :last) >= :last'
            open_range = f"{unended} AND {start} < :end"
            definition = f'row."eventType" IN {_DEFINITIONS}'
        inside = f"{start} < :end AND {end} > :start OR {start} = {end} AND {start} BETWEEN :start AND :end"
        moves = f"NOT ({definition}) AND ({inside} OR {open_range})"
        clipped = {
            "start": f"CASE WHEN {moves} THEN max({start}, :start) ELSE {start} END",
            # A range that was never closed stays so, where it would else end at the edge.
            "end": f'CASE WHEN {unended} THEN NULL WHEN {moves} THEN min(row."end", :end) '
            'ELSE row."end" END',
        }
        where = f"({definition}) OR ({inside}) OR ({open_range})"
        self._keep(table, clipped, where, OUTSIDE)
        for edge, crosses in (("start", f"{start} < :start"), ("end", f"{end} > :end")):
            rows = self._copy.count(
                f"SELECT count(*) FROM capture.{quoted(table.name)} AS row "
                f"WHERE {moves} AND {crosses}",
                self._window,
            )
            self._counts.add(table.name, noted={f"clipped at the slice's {edge}": rows})

    def _keep(self, table: Table, expressions: Mapping[str, str], where: str, reason: str) -> None:
        used = self._copy.insert(table, expressions, where, self._window)
        read = self._copy.rows(table)
        self._counts.add(table.name, read=read, used=used, dropped={reason: read - used})

    def _note_strings(self, table: Table) -> None:
        for name in table.columns:
            if _STRING_COLUMN.search(name):
                self._copy.connection.execute(
                    f"INSERT OR IGNORE INTO used SELECT {quoted(name)} FROM main.{quoted(table.name)} "
                    f"WHERE typeof({quoted(name)}) = 'integer'"
                )

    def _say_so(self, table: Table) -> None:
        if {"name", "value"} <= table.columns.keys():
            self._copy.connection.executemany(
                f"INSERT INTO main.{quoted(table.name)} (name, value) VALUES (?, ?)",
                [
                    (f"LAUNCHKIT_SLICE_{edge.upper()}_NS", str(at))
                    for edge, at in self._edges.items()
                ],
            )
