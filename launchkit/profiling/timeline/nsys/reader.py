"""Reads an export of Nsight Systems, whatever its form, as a timeline. Above the rest here."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from launchkit.profiling.timeline.containment import crossing
from launchkit.profiling.timeline.model import Format, Timeline, table_of
from launchkit.profiling.timeline.nsys import cleaning
from launchkit.profiling.timeline.nsys.about import (
    read_diagnostics,
    read_metadata,
    read_processes,
    read_threads,
)
from launchkit.profiling.timeline.nsys.calls import CALLS, read_calls, read_overheads
from launchkit.profiling.timeline.nsys.devices import place_devices
from launchkit.profiling.timeline.nsys.directory import DirectoryTables
from launchkit.profiling.timeline.nsys.gpu import GRAPHS, KERNELS, OF_KIND, read_gpu
from launchkit.profiling.timeline.nsys.owners import Pids
from launchkit.profiling.timeline.nsys.ranges import TABLE as RANGES
from launchkit.profiling.timeline.nsys.ranges import read_ranges
from launchkit.profiling.timeline.nsys.sqlite import SqliteTables
from launchkit.profiling.timeline.nsys.tables import Export, Tables
from launchkit.profiling.timeline.partners import with_partners
from launchkit.profiling.timeline.progress import Progress

_SOURCES = {"ranges": RANGES, "calls": CALLS}


def read_nsys(path: Path, progress: Progress | None = None) -> Timeline:
    """Return the timeline of an Nsight Systems export, schemas 3.0 to 3.25 and what is like them.

    ``path`` is an SQLite file, or a directory of parquet or arrow tables. ``progress`` is told the
    table, its rows read and its rows in all, after every piece. The export is never written to.
    Raises TimelineError for a file that cannot be read or is no export.
    """
    tables: Tables
    form: Format = "nsys-sqlite"
    if path.is_dir():
        directory = DirectoryTables(path)
        tables, form = directory, directory.format
    else:
        tables = SqliteTables(path)
    try:
        return _timeline(Export(str(path), tables, progress), form)
    finally:
        tables.close()


def _timeline(export: Export, form: Format) -> Timeline:
    metadata = read_metadata(export)
    made = {"gpu": _distinct(export, "gpu", read_gpu(export))}
    made["calls"] = _distinct(export, "calls", read_calls(export))
    ranges, nvtx_threads = read_ranges(export, metadata.duration_ns)
    made["ranges"] = _distinct(export, "ranges", ranges)
    del ranges
    overheads = read_overheads(export)
    pids = Pids((*made.values(), overheads))
    if pids.shared:
        export.warn(f"several machines or containers have processes with the pids {pids.shared}")
    for table in made:
        made[table] = _renumbered(pids, table, made[table])
    made["gpu"], devices = place_devices(export, made["gpu"])
    crossed = crossing(made["ranges"])
    export.counts.add(RANGES, noted={"crossing another of their thread and domain": crossed})
    _warn_of_absences(export)
    read_diagnostics(export)
    listed, threads = read_processes(export), pl.concat([read_threads(export), nvtx_threads])
    processes = _seen(export, pids, listed, made)
    timeline = Timeline(
        source=metadata.source(export.path, form, host_only=not made["gpu"].height),
        **made,
        overheads=table_of("overheads", pids.of(overheads)),
        processes=processes,
        threads=_names(pids.of(threads), processes),
        devices=table_of("devices", devices),
        counts=export.counts,
        warnings=tuple(export.warnings),
    )
    del made
    return with_partners(timeline, CALLS, OF_KIND)


def _renumbered(pids: Pids, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return ``frame`` with process numbers, still sorted."""
    numbered = pids.of(frame)
    return table_of(table, numbered) if pids.mixed else numbered


def _distinct(export: Export, table: str, frame: pl.DataFrame) -> pl.DataFrame:
    keys = ["process", "device" if table == "gpu" else "thread", "start_ns", "end_ns"]
    made = table_of(table, frame)
    kept, doubled = cleaning.without_duplicates(made.drop(made.columns[0]), keys)
    for kind, count in doubled.group_by("kind").len().iter_rows():
        source = _SOURCES.get(table) or OF_KIND[kind]
        export.counts.add(source, used=-count, dropped={"equal to another": count})
    return table_of(table, kept) if doubled.height else made


def _seen(
    export: Export, pids: Pids, listed: pl.DataFrame, made: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    """Return the processes that have events: an export lists all that the machine ran."""
    used = pl.concat([frame.select("process") for frame in made.values()]).unique().sort("process")
    named = pids.of(listed).unique("process", keep="first", maintain_order=True)
    mine = used.join(named, on="process", how="left", maintain_order="left")
    kept = named.join(used, on="process", how="semi").height
    read = export.counts["PROCESSES"].read
    export.counts.add("PROCESSES", used=kept, dropped={"without an event": read - kept})
    return table_of("processes", mine)


def _names(threads: pl.DataFrame, processes: pl.DataFrame) -> pl.DataFrame:
    mine = threads.drop_nulls("name").join(
        processes, on="process", how="semi", maintain_order="left"
    )
    return table_of(
        "threads", mine.unique(["process", "thread"], keep="first", maintain_order=True)
    )


def _warn_of_absences(export: Export) -> None:
    counts = export.counts
    if not counts[RANGES].read:
        export.warn("there are no NVTX events: nothing can be told by range (capture with -t nvtx)")
    if not counts[CALLS].read:
        export.warn("there are no CUDA API calls: launches cannot be told (capture with -t cuda)")
    if counts[GRAPHS].used and not counts[KERNELS].used:
        export.warn(
            "only whole CUDA graphs were captured, and the kernels in them are not seen "
            "(capture with --cuda-graph-trace=node)"
        )
