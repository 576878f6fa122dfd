"""A copy of a chrome trace of some time only, clipped at its edges. Above the copies of traces."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from launchkit.errors import TimelineError
from launchkit.profiling.names import untraced
from launchkit.profiling.timeline.chrome.values import nanoseconds
from launchkit.profiling.timeline.copies.files import (
    OUTSIDE,
    AnyPath,
    Window,
    check_window,
    occurrence_of,
)
from launchkit.profiling.timeline.copies.trace_rewriting import TABLE, Event, copy_trace, events_of
from launchkit.profiling.timeline.counts import RowCounts

_SPANS = ("X", "B", "b")


def slice_trace(path: AnyPath, output: AnyPath, start_ns: int, end_ns: int) -> RowCounts:
    """Write what the chrome trace ``path`` holds from ``start_ns`` to ``end_ns`` to ``output``.

    Time 0 is the first event with a duration, as in reports; the copy keeps the trace's own times.
    A pair of begin and end becomes one complete event. Returns the rows read, used, dropped, and
    clipped. Raises UsageError for an end that is not after its start, TimelineError for what is no
    trace.
    """
    check_window(start_ns, end_ns)
    first_ns, counts = _first_ns(path), RowCounts()
    slicing = _TraceSlicing(Window(first_ns + start_ns, first_ns + end_ns))
    copy_trace(path, output, counts, slicing.events, dict)
    counts.add(TABLE, read=slicing.read, used=slicing.used, dropped=slicing.dropped,
               noted=slicing.noted)  # fmt: skip
    return counts


def trace_range_bounds(path: AnyPath, name: str, occurrence: int = 1) -> tuple[int, int]:
    """Return start and end, in ns, of the ``occurrence``-th complete event of this name on the host.

    Raises UsageError where there is none, TimelineError for what is no trace.
    """
    first_ns = _first_ns(path)
    ranges = [
        (_name(event), span)
        for event in events_of(path)
        if not str(event.get("cat", "")).startswith("gpu_")
        if (span := _span(event)) is not None and span[1] > span[0]
    ]
    found = sorted(span for each, span in ranges if each == name)
    names = (each for each, _ in ranges)
    start, end = occurrence_of(os.fspath(path), name, occurrence, found, names)
    return start - first_ns, end - first_ns


def _name(event: Mapping[str, Any]) -> str:
    """As a report has it."""
    name = str(event.get("name"))
    found = untraced(name)
    return found[0] if found else name


def _first_ns(path: AnyPath) -> int:
    times = (nanoseconds(event.get("ts")) for event in events_of(path) if event.get("ph") in _SPANS)
    first = min((at for at in times if at is not None), default=None)
    if first is None:
        advice = "Give a trace with events, as torch.profiler exports it."
        raise TimelineError(os.fspath(path), "it has no event with a duration", advice)
    return first


def _span(event: Mapping[str, Any]) -> tuple[int, int] | None:
    start, lasted = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if event.get("ph") != "X" or start is None or lasted is None or lasted < 0:
        return None
    return start, start + lasted


class _TraceSlicing:
    """One walk over the events; ``window`` is on the trace's own clock."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._open: dict[tuple[Any, ...], list[Event]] = {}
        self.read = self.used = 0
        self.dropped: Counter[str] = Counter()
        self.noted: Counter[str] = Counter()

    def events(self, found: Iterator[Any]) -> Iterator[Event]:
        """Yield what of the events lies in the window."""
        for event in found:
            self.read += 1
            if isinstance(event, dict):
                yield from self._event(event)
            else:
                self.dropped["that are no objects"] += 1
        for begun in self._open.values():
            for event in begun:
                yield from self._unended(event)

    def _event(self, event: Event) -> Iterator[Event]:
        phase, at = event.get("ph"), nanoseconds(event.get("ts"))
        span = _span(event)
        if phase == "M":
            yield from self._kept(event)
        elif at is None or (phase == "X" and span is None):
            self.dropped["without a usable time"] += 1
        elif span is not None:
            yield from self._clipped(event, *span)
        elif phase in ("B", "E"):
            yield from self._half(event, at)
        elif self._window.clipped(at, at):
            yield from self._kept(event)
        else:
            self.dropped[OUTSIDE] += 1

    def _half(self, event: Event, at: int) -> Iterator[Event]:
        lane = (str(event.get("pid")), str(event.get("tid")))
        if event["ph"] == "B":
            self._open.setdefault(lane, []).append(event)
        elif not self._open.get(lane):
            self.dropped["ends without a begin"] += 1
        else:
            begun = self._open[lane].pop()
            whole = {**event, **begun, "ph": "X", "args": {**_args(event), **_args(begun)}}
            whole.pop("dur", None)
            yield from self._clipped(whole, nanoseconds(begun["ts"]) or 0, at, rows=2)

    def _clipped(self, event: Event, start: int, end: int, rows: int = 1) -> Iterator[Event]:
        edges = self._window.clipped(start, end)
        if edges is None:
            self.dropped[OUTSIDE] += rows
            return
        if edges != (start, end) or "dur" not in event:
            event = {**event, "ts": _us(edges[0]), "dur": _us(edges[1] - edges[0])}
        self.noted["clipped at the slice's start"] += start < self._window.start_ns
        self.noted["clipped at the slice's end"] += end > self._window.end_ns
        yield from self._kept(event, rows)

    def _unended(self, event: Event) -> Iterator[Event]:
        at = nanoseconds(event["ts"]) or 0
        if at < self._window.end_ns:
            yield from self._kept({**event, "ts": _us(max(at, self._window.start_ns))})
        else:
            self.dropped[OUTSIDE] += 1

    def _kept(self, event: Event, rows: int = 1) -> Iterator[Event]:
        self.used += rows
        yield event


def _args(event: Mapping[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _us(time_ns: int) -> Decimal:
    return Decimal(time_ns).scaleb(-3)
