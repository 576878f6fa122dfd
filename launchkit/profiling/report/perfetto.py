"""A timeline as a trace for ui.perfetto.dev and chrome://tracing. Above the timeline only.

The JSON form of the Trace Event Format: complete events that nest on every track, times in µs with
exact ns, and a flow from each launch to each piece of GPU work that it started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, Any, NamedTuple

import polars as pl

from launchkit import jsonio
from launchkit.profiling.report.perfetto_events import (
    Event,
    Row,
    of_call,
    of_gap,
    of_overhead,
    of_range,
    of_sample,
    of_work,
)
from launchkit.profiling.timeline.containment import lanes_of
from launchkit.profiling.timeline.model import Timeline

_EXACT_BELOW_NS = 2**50
"""Below it, µs with three decimals keep their ns in the viewers' floating point."""
_BATCH = 20_000
_DEVICES_FROM = 2_000_000_000
"""Process numbers of devices: above any pid."""
_SPAN = ("start_ns", "end_ns")


def write_trace(
    timeline: Timeline,
    file: IO[bytes],
    gaps: pl.DataFrame | None = None,
    verdicts: pl.DataFrame | None = None,
) -> dict[str, int]:
    """Write a timeline as a trace; return how many ``slices`` and ``flows`` it has.

    ``gaps``: idle times of devices (``Analysis.gaps``) for a track of their own. ``verdicts``
    (``Analysis.verdicts``) stand beside each range.
    """
    trace = _Trace(timeline, gaps, verdicts)
    file.write(b'{"displayTimeUnit":"ns","otherData":')
    file.write(jsonio.dumps_compact(trace.facts()))
    file.write(b',"traceEvents":[\n')
    events = trace.events()
    separator = b""
    while batch := list(islice(events, _BATCH)):
        file.write(separator + jsonio.dumps_compact(batch)[1:-1])
        separator = b",\n"
    file.write(b"\n]}\n")
    return {"slices": trace.slices, "flows": trace.flows}


class _Place(NamedTuple):
    """Where the event of a row stands: ``track`` is a process number and a track's number."""

    table: int
    row: int
    track: tuple[int, int]
    start_ns: int
    end_ns: int


class _Trace:
    """The events of one trace. A track is a process number and a number that was given to it."""

    def __init__(
        self, timeline: Timeline, gaps: pl.DataFrame | None, verdicts: pl.DataFrame | None
    ) -> None:
        self._timeline = timeline
        self._gaps = gaps
        self._verdicts = {} if verdicts is None else _by_range(verdicts)
        first_ns, last_ns = timeline.span_ns()
        self._origin_ns = 0 if first_ns >= 0 and last_ns < _EXACT_BELOW_NS else first_ns
        self._tracks: dict[tuple[object, ...], tuple[int, int]] = {}
        self._titles: list[Event] = []
        self._submitted: dict[tuple[int, int], tuple[int, int, float]] = {}
        self.slices = self.flows = 0

    def facts(self) -> dict[str, Any]:
        """What the capture is."""
        source = self._timeline.source
        return {
            "capture": os.path.basename(source.path),
            "format": source.format,
            # As a string: a viewer would read it as a floating point number.
            "origin_ns": str(self._origin_ns),
            "product": source.product,
            "version": source.version,
        }

    def events(self) -> Iterator[Event]:
        """Every event; the names of the tracks, which may stand anywhere, at the end."""
        timeline = self._timeline
        yield from self._processes()
        yield from self._host()
        # These may overlap, also over threads: they stand in no stack.
        started = timeline.ranges.filter(pl.col("kind") == "start_end")
        yield from self._apart(started, self._range, "started ranges")
        yield from self._apart(timeline.overheads, of_overhead, "driver and profiler")
        samples = timeline.samples.with_columns(start_ns="time_ns", end_ns="time_ns")
        yield from self._apart(samples, of_sample, "Python samples")
        yield from self._work()
        yield from self._idle()
        yield from self._titles

    def _processes(self) -> Iterator[Event]:
        named = self._timeline.processes.select("process", "name", "rank")
        for process, name, rank in named.iter_rows():
            title = name if rank is None else f"rank {rank} {name}"
            yield _title("process_name", process, 0, title.strip() or f"process {process}")
        devices = dict(self._timeline.devices.select("device", "name").iter_rows())
        for device in sorted({*devices, *self._timeline.gpu.get_column("device").unique()}):
            title = f"GPU {device} {devices.get(device) or ''}".strip()
            yield _title("process_name", _DEVICES_FROM + device, 0, title)

    def _host(self) -> Iterator[Event]:
        """Ranges and calls of a thread share its tracks, so that calls stand in their ranges."""
        ranges = self._timeline.ranges.filter(pl.col("kind").ne_missing(pl.lit("start_end")))
        tables = [(ranges, self._range), (self._timeline.calls, of_call)]
        rows = pl.concat(
            table.select("process", "thread", *_SPAN, table=pl.lit(at), row=pl.int_range(pl.len()))
            for at, (table, _) in enumerate(tables)
        ).sort(
            ["process", "thread", *_SPAN, "table"],
            descending=[False, False, False, True, False],
            maintain_order=True,
        )
        names = self._thread_names()
        for (process, thread), frame in rows.group_by("process", "thread", maintain_order=True):
            title = f"{names.get((process, thread), '')} ({thread})".strip()
            for place in self._laned(frame, process, title if thread != -1 else "host"):
                table, described = tables[place.table]
                event = self._placed(described(table.row(place.row, named=True)), place)
                yield event
                if place.table == 1:
                    self._remember(process, event)

    def _range(self, row: Row) -> Event:
        event = of_range(row)
        if row["kind"] != "mark":
            event["args"].update(self._verdicts.get((row["domain"], row["name"]), {}))
        return event

    def _remember(self, process: int, call: Event) -> None:
        """Note where flows to GPU work start: of nested calls, the outermost comes first."""
        correlation = call["args"].get("correlation")
        if correlation is not None:
            start = call["pid"], call["tid"], call["ts"]
            self._submitted.setdefault((process, correlation), start)

    def _thread_names(self) -> dict[tuple[object, ...], str]:
        named = self._timeline.threads.select("process", "thread", "name")
        return {(process, thread): name for process, thread, name in named.iter_rows()}

    def _apart(
        self, table: pl.DataFrame, described: Callable[[Row], Event], title: str
    ) -> Iterator[Event]:
        for (process,), frame in _in_order(table, "process"):
            for place in self._laned(frame, process, title):
                yield self._placed(described(table.row(place.row, named=True)), place)

    def _work(self) -> Iterator[Event]:
        work = self._timeline.gpu
        for (process, device, stream), frame in _in_order(work, "process", "device", "stream"):
            owner = _DEVICES_FROM + device
            title = f"stream {stream}" if stream is not None else "no stream"
            for place in self._laned(frame, owner, title, process):
                event = self._placed(of_work(work.row(place.row, named=True)), place)
                yield event
                submitted = self._submitted.get((process, event["args"].get("correlation")))
                if submitted is not None:
                    yield from self._flow(submitted, event)

    def _flow(self, start: tuple[int, int, float], work: Event) -> Iterator[Event]:
        self.flows += 1
        event = {"cat": "launch", "name": "launch", "id": self.flows}
        yield {**event, "ph": "s", "pid": start[0], "tid": start[1], "ts": start[2]}
        where = {name: work[name] for name in ("pid", "tid", "ts")}
        # To the slice that holds it, where a viewer would else take the next one.
        yield {**event, "ph": "f", "bp": "e", **where}

    def _idle(self) -> Iterator[Event]:
        if self._gaps is None:
            return
        for (device,), frame in _in_order(self._gaps, "device"):
            for place in self._laned(frame, _DEVICES_FROM + device, "idle, by its cause"):
                yield self._placed(of_gap(self._gaps.row(place.row, named=True)), place)

    def _laned(
        self, frame: pl.DataFrame, process: int, title: str, *more: object
    ) -> Iterator[_Place]:
        """Yield table, row, track, start and end of each row: slices nest on every track."""
        spans = list(frame.select(_SPAN).iter_rows())
        rows = zip(frame["table"], frame["row"], lanes_of(spans), spans, strict=True)
        for table, row, lane, (start_ns, end_ns) in rows:
            key = (process, title, *more, lane)
            track = self._tracks.get(key) or self._new_track(key, process, title)
            yield _Place(table, row, track, start_ns, end_ns)

    def _new_track(self, key: tuple[object, ...], process: int, title: str) -> tuple[int, int]:
        track = self._tracks[key] = (process, len(self._tracks) + 1)
        self._titles.append(_title("thread_name", *track, title))
        order = {"sort_index": track[1]}
        self._titles.append({**_title("thread_sort_index", *track, ""), "args": order})
        return track

    def _placed(self, event: Event, place: _Place) -> Event:
        self.slices += 1
        event["pid"], event["tid"] = place.track
        event["ts"] = (place.start_ns - self._origin_ns) / 1000
        if event["ph"] == "X":
            event["dur"] = (place.end_ns - place.start_ns) / 1000
        else:
            event["s"] = "t"
        return event


def _in_order(table: pl.DataFrame, *keys: str) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    rows = table.select(*keys, *_SPAN, table=pl.lit(0), row=pl.int_range(pl.len()))
    rows = rows.sort(*keys, *_SPAN, descending=[*(False for _ in keys), False, True])
    yield from rows.group_by(*keys, maintain_order=True)


def _by_range(verdicts: pl.DataFrame) -> dict[tuple[str, str], dict[str, str]]:
    rows = verdicts.select("domain", "name", "verdict", "reason").iter_rows()
    return {
        (domain, name): {"verdict": verdict, "why": reason or ""}
        for domain, name, verdict, reason in rows
    }


def _title(kind: str, process: int, track: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
