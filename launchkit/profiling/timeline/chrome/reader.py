"""Chrome traces, as torch.profiler (kineto) exports them, as a timeline. Above the rest here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import polars as pl

from launchkit.errors import TimelineError
from launchkit.profiling.names import DOMAIN, untraced
from launchkit.profiling.timeline.chrome.events import TRACE_ADVICE, TraceEvents
from launchkit.profiling.timeline.chrome.halves import pair_halves
from launchkit.profiling.timeline.chrome.owners import at_home, with_owners
from launchkit.profiling.timeline.chrome.rows import Rows
from launchkit.profiling.timeline.chrome.text import pieces
from launchkit.profiling.timeline.chrome.values import integer, text
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.model import GPU_KINDS, Source, Timeline, table_of
from launchkit.profiling.timeline.partners import with_partners
from launchkit.profiling.timeline.progress import Progress

# Times above this are ns of UTC (2001 and later), others those of a clock that began elsewhere.
_UTC_NS = 10**18
_TIMES = ("start_ns", "end_ns")


def read_chrome(path: str | os.PathLike[str], progress: Progress | None = None) -> Timeline:
    """Return the timeline of a chrome trace: JSON, plain or gzip, read piece by piece.

    Ranges are the spans of the host; their domain is ``launchkit`` for those of ``annotate`` that
    ``launchkit profile --torch`` traced, ``torch`` for torch's operators and other annotations,
    ``python`` for Python's functions, else empty. Time 0 is the trace's first event.
    A damaged file is read as far as it can be, with warnings. ``progress`` is told the bytes read
    so far and the file's size. Raises TimelineError for what is no trace.
    """
    source, warnings, rows = os.fspath(path), list[str](), Rows()
    events = TraceEvents(source, pieces(source, warnings.append, progress))
    for event in events:
        rows.add(event)
    if events.bare and not rows.recognised:
        raise TimelineError(source, "it is a JSON list, but not of trace events", TRACE_ADVICE)
    pair_halves(rows)
    if events.truncated:
        warnings.append("the file ends within its JSON: it was cut off, and events are missing")
    if events.more and not events.truncated:
        warnings.append("what stands behind its JSON was not read")
    return _Assembly(source, rows, events, warnings).timeline()


class _Assembly:
    """The timeline of all rows of a trace."""

    def __init__(self, path: str, rows: Rows, events: TraceEvents, warnings: list[str]) -> None:
        self._path = path
        self._rows = rows
        self._members = events.members
        self._malformed = events.malformed
        self._warnings = warnings

    def timeline(self) -> Timeline:
        """Return it."""
        frames = self._frames()
        spans = [frames[name] for name in ("ranges", "calls", "gpu", "overheads")]
        first_ns = min((_least(frame, "start_ns") for frame in spans if frame.height), default=0)
        last_ns = max((_greatest(frame, "end_ns") for frame in spans if frame.height), default=0)
        tables = {
            name: table_of(name, frame.with_columns(*(pl.col(each) - first_ns for each in _TIMES)))
            for name, frame in zip(("ranges", "calls", "gpu", "overheads"), spans, strict=True)
        }
        named = self._named(tables)
        timeline = Timeline(
            self._source(first_ns, last_ns - first_ns, host_only=not tables["gpu"].height),
            **tables,
            **named,
            counts=self._counts(),
            warnings=tuple(self._warnings + self._remarks(tables["calls"])),
        )
        return with_partners(timeline, "events", dict.fromkeys(GPU_KINDS.categories, "events"))

    def _frames(self) -> dict[str, pl.DataFrame]:
        rows = self._rows
        calls = rows.calls.frame()
        gpu, shared = with_owners(rows.gpu.frame(), calls)
        if shared:
            rows.noted["GPU work whose correlation several processes have"] += shared
        frames = {"calls": calls, "gpu": gpu, "overheads": rows.overheads.frame()}
        ranges = _with_own(self._ranges(frames))
        frames["ranges"], moved = at_home(ranges, calls)
        if moved:
            rows.noted["ranges under a process id that calls nothing, moved to the caller's"] += (
                moved
            )
        return frames

    def _ranges(self, others: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """Return the ranges; those that were not ended end with the trace."""
        ranges = self._rows.ranges.frame().with_columns(pl.lit(True).alias("closed"))
        unended = self._rows.open_ends.frame()
        if not unended.height:
            return ranges
        self._rows.noted["ranges that were never ended"] += unended.height
        ends = [_greatest(each, "end_ns") for each in (ranges, *others.values()) if each.height]
        last_ns = max((*ends, _greatest(unended, "start_ns")))
        unended = unended.with_columns(
            pl.lit(last_ns, dtype=pl.Int64).alias("end_ns"),
            pl.lit(None, dtype=pl.Int64).alias("end_thread"),
            pl.lit("push_pop").alias("kind"),
            pl.lit(False).alias("closed"),
        )
        return pl.concat([ranges, unended.select(ranges.columns)])

    def _counts(self) -> RowCounts:
        counts, rows = RowCounts(), self._rows
        dropped = {**rows.dropped, "that are no JSON": self._malformed}
        read = rows.read + self._malformed
        used = read - sum(dropped.values())
        counts.add("events", read=read, used=used, dropped=dropped, noted=rows.noted)
        return counts

    def _source(self, first_ns: int, duration_ns: int, host_only: bool) -> Source:
        members = self._members
        base_ns = integer(members.get("baseTimeNanoseconds"))
        utc_ns = first_ns + base_ns if base_ns else first_ns if first_ns > _UTC_NS else None
        version = members.get("schemaVersion")
        return Source(
            self._path,
            "chrome",
            product="torch.profiler" if version is not None else "",
            schema="" if version is None else text(version),
            utc_epoch_ns=utc_ns,
            duration_ns=duration_ns,
            host_only=host_only,
        )

    def _named(self, tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        names, numbers = self._rows.names, {n: t for t, n in self._rows.texts.items()}
        host = [tables[name].select("process", "thread") for name in ("ranges", "calls")]
        lanes = pl.concat(host).unique().sort("process", "thread").rows()
        # Kineto names a process at its thread 0.
        processes = {process: name for (process, _), name in names["process_name"].items()}
        rank = _member(self._members.get("distributedInfo"), "rank")
        return {
            "processes": table_of(
                "processes",
                [
                    {"process": each, "name": processes.get(each, numbers.get(each, "")),
                     "rank": rank}
                    for each in dict.fromkeys(process for process, _ in lanes)
                ],
            ),
            "threads": table_of(
                "threads",
                [
                    {"process": lane[0], "thread": lane[1],
                     "name": names["thread_name"].get(lane, numbers.get(lane[1], ""))}
                    for lane in lanes
                ],
            ),
            "devices": table_of("devices", self._devices(tables["gpu"])),
        }  # fmt: skip

    def _devices(self, gpu: pl.DataFrame) -> list[dict[str, Any]]:
        listed = self._members.get("deviceProperties")
        known = {
            number: each
            for each in (listed if isinstance(listed, list) else [])
            if (number := _member(each, "id")) is not None
        }
        used = gpu["device"].unique().to_list()
        return [
            {"device": each, "name": text(known.get(each, {}).get("name")),
             "sm_count": _member(known.get(each), "numSms")}
            for each in sorted({*known, *used})
        ]  # fmt: skip

    @staticmethod
    def _remarks(calls: pl.DataFrame) -> list[str]:
        unknown = calls.filter(kind="unknown_launch")["name"].unique().sort().to_list()
        listed = ", ".join(unknown)
        return [f"calls that look like launches and are not known: {listed}"] if unknown else []


def _with_own(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges, those of ``annotate`` as NVTX has them: domain, category, payload."""
    own = [(each, *found) for each in ranges["name"].unique() if (found := untraced(each))]
    known = pl.DataFrame(
        own, dict.fromkeys(("name", "own", "layer", "op"), pl.String), orient="row"
    )
    return ranges.join(known, on="name", how="left", maintain_order="left").select(
        pl.exclude("name", "domain", "category", "own", "layer", "op"),
        name=pl.coalesce("own", "name"),
        domain=pl.when(pl.col("own").is_null()).then("domain").otherwise(pl.lit(DOMAIN)),
        category=pl.when(pl.col("own").is_null()).then("category").otherwise(pl.coalesce("op", "own")),
        payload="layer",
    )  # fmt: skip


def _least(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].min())  # type: ignore[arg-type]


def _greatest(frame: pl.DataFrame, column: str) -> int:
    return int(frame[column].max())  # type: ignore[arg-type]


def _member(holder: object, name: str) -> int | None:
    return integer(holder.get(name)) if isinstance(holder, dict) else None
