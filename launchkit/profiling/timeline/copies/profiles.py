"""Copies of saved profiles: scrubbed, or of some time only. Above files and scrubbed_text.

A profile holds no environment, command line or path of its own; what names of ranges, kernels and
threads hold of the machine goes. In a slice stands what was kept singly, since totals have no
times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from launchkit.errors import BadDocumentError
from launchkit.profiling.profile import profile_file
from launchkit.profiling.timeline.copies.files import (
    OUTSIDE,
    AnyPath,
    Window,
    check_window,
    occurrence_of,
    replacing,
)
from launchkit.profiling.timeline.copies.scrubbed_text import Cleaner
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.refusing import unusable

if TYPE_CHECKING:
    from launchkit.profiling.profile.schema import LaunchesPart, ProfileDocument, RangePart

_NAMES = ("name", "kernel", "op")
_TOTALS = "kept as totals only"


def scrub_profile(path: AnyPath, output: AnyPath) -> RowCounts:
    """Write a copy of a saved profile to ``output``, whose names hold no path, address or host.

    Raises TimelineError for what is no profile.
    """
    document, counts, clean = _read(path), RowCounts(), Cleaner().clean
    members = document.model_dump()
    for table in ("threads", "ranges", "launches"):
        shortened = 0
        for row in members[table]:
            for name in _NAMES:
                if row.get(name):
                    cleaned = clean(row[name]) or "(hidden)"
                    shortened += cleaned != row[name]
                    row[name] = cleaned
        rows = len(members[table])
        counts.add(table, read=rows, used=rows, noted={"names were shortened": shortened})
    _write(path, output, members)
    return counts


def slice_profile(path: AnyPath, output: AnyPath, start_ns: int, end_ns: int) -> RowCounts:
    """Write what a saved profile holds singly from ``start_ns`` to ``end_ns`` to ``output``.

    Time 0 is the recording's start, also in the copy. Raises UsageError for an end that is not
    after its start, TimelineError for what is no profile.
    """
    check_window(start_ns, end_ns)
    document, counts = _read(path), RowCounts()
    _write(path, output, _Slice(document, start_ns, end_ns, counts).members())
    return counts


def profile_range_bounds(path: AnyPath, name: str, occurrence: int = 1) -> tuple[int, int]:
    """Return start and end, in ns, of the ``occurrence``-th visit of this range in a profile.

    Raises UsageError where there is none, TimelineError for what is no profile.
    """
    document = _read(path)
    zero_ns = document.process.start_ns
    found = sorted(
        (start - zero_ns, end - zero_ns)
        for part in document.ranges
        if part.name == name
        for start, end in _visits(part)
        if end > start
    )
    names = (part.name for part in document.ranges)
    return occurrence_of(os.fspath(path), name, occurrence, found, names)


def _read(path: AnyPath) -> ProfileDocument:
    try:
        return profile_file.read(path)
    except BadDocumentError as error:
        raise unusable(path, error, "Save the profile again.") from None


def _write(path: AnyPath, output: AnyPath, members: Mapping[str, Any]) -> None:
    with replacing(path, output) as part:
        profile_file.write(part, dict(members))


def _visits(part: RangePart) -> list[tuple[int, int]]:
    recorder = part.recorder_ns or [0] * len(part.thread)
    columns = zip(part.started_ns, part.length_ns, recorder, strict=True)
    return [(start, start + max(0, length) + max(0, own)) for start, length, own in columns]


class _Slice:
    """A profile on its way into a slice."""

    def __init__(
        self, document: ProfileDocument, start_ns: int, end_ns: int, counts: RowCounts
    ) -> None:
        self._document = document
        self._zero_ns = document.process.start_ns
        self._window = Window(self._zero_ns + start_ns, self._zero_ns + end_ns)
        self._counts = counts
        self._threads = [
            {**thread.model_dump(), "launches": 0, "failed": 0, "total_ns": 0.0}
            for thread in document.threads
        ]

    def members(self) -> dict[str, Any]:
        """Return the members of the copy's file."""
        document = self._document
        launches = [self._launches(part) for part in document.launches]
        found = document.model_dump() | {
            "seen": 0,
            "lost": 0,
            "host_only_launches": 0,
            "ranges": self._ranges(),
            "launches": [part for part in launches if part["launches"]],
            "threads": self._threads,
        }
        if document.host_only_launches:
            found["host_only_launches"] = sum(each["launches"] for each in self._threads)
        return found

    def _count(self, table: str, part: RangePart | LaunchesPart, made: int, kept: int) -> None:
        singly = len(part.thread)
        dropped = {_TOTALS: made - singly, OUTSIDE: singly - kept}
        self._counts.add(table, read=made, used=kept, dropped=dropped)

    def _ranges(self) -> list[dict[str, Any]]:
        parts = [self._range(part) for part in self._document.ranges]
        for part in parts:
            part["within_each_ns"] = [0] * part["calls"]
        for part in parts:
            if part["parent"]:
                _put_within(parts[part["parent"] - 1], part)
        for part in parts:
            part["within_ns"] = sum(part["within_each_ns"])
        return parts

    def _range(self, part: RangePart) -> dict[str, Any]:
        rows = []
        recorder = part.recorder_ns or [0] * len(part.thread)
        for (start, end), own, thread in zip(_visits(part), recorder, part.thread, strict=True):
            edges = self._window.clipped(start, end)
            if edges is not None:
                length = edges[1] - edges[0]
                own = max(0, own) * length // max(1, end - start)
                rows.append((edges[0], length - own, own, thread))
        self._count("ranges", part, part.calls, len(rows))
        columns = ("started_ns", "length_ns", "recorder_ns", "thread")
        made = dict(zip(columns, _columns(rows, len(columns)), strict=True))
        total = {"calls": len(rows), "ns": sum(made["length_ns"])}
        return {**part.model_dump(), **made, **total}

    def _launches(self, part: LaunchesPart) -> dict[str, Any]:
        rows: list[tuple[int, ...]] = []
        places: list[int] = []
        columns = zip(part.started_ns, part.each_ns, part.thread, part.phase_at, strict=True)
        for start, length, thread, place in columns:
            edges = self._window.clipped(start, start + max(0, length))
            if edges is None:
                continue
            whole = edges == (start, start + length)
            # What of a phase lies inside is not known of a launch that was cut.
            rows.append(
                (edges[0], edges[1] - edges[0], thread, len(places) if whole and place >= 0 else -1)
            )
            places += [place] if whole and place >= 0 else []
            self._on_thread(thread, part, edges[1] - edges[0])
        self._count("launches" if part.kernel else "replays", part, part.launches, len(rows))
        names = ("started_ns", "each_ns", "thread", "phase_at")
        made = dict(zip(names, _columns(rows, len(names)), strict=True))
        phases = {name: _phase(phase.each_ns, places) for name, phase in part.phases.items()}
        total = {"launches": len(rows), "failed": 0, "ns": float(sum(made["each_ns"]))}
        return {**part.model_dump(), **made, **total, "phases": phases}

    def _on_thread(self, thread: int, part: LaunchesPart, length_ns: int) -> None:
        if part.kernel is not None:
            self._threads[thread]["launches"] += 1
            self._threads[thread]["total_ns"] += length_ns


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[list[int]]:
    return [[row[number] for row in rows] for number in range(width)]


def _phase(each_ns: Sequence[int], places: Sequence[int]) -> dict[str, Any]:
    kept = [each_ns[place] for place in places]
    return {"launches": len(kept), "ns": float(sum(kept)), "each_ns": kept}


def _put_within(outer: dict[str, Any], inner: Mapping[str, Any]) -> None:
    """Add the times of inner visits to the outer ones that they are in: the last that began before."""
    begun = sorted(
        (thread, start, place)
        for place, (thread, start) in enumerate(
            zip(outer["thread"], outer["started_ns"], strict=True)
        )
    )
    visits = sorted(zip(inner["thread"], inner["started_ns"], inner["length_ns"], strict=True))
    at = 0
    for thread, start, length in visits:
        while at + 1 < len(begun) and begun[at + 1][:2] <= (thread, start):
            at += 1
        if begun and begun[at][0] == thread and begun[at][1] <= start:
            outer["within_each_ns"][begun[at][2]] += length
