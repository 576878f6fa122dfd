"""Sampled Python stacks as timelines, of any tool that runs py-spy. Above the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from launchkit.errors import BadDocumentError
from launchkit.profiling.names import DOMAIN
from launchkit.profiling.sampling import pyspy, samples_file
from launchkit.profiling.timeline.counts import RowCounts
from launchkit.profiling.timeline.model import Source, Timeline, table_of
from launchkit.profiling.timeline.progress import Progress, silent
from launchkit.profiling.timeline.refusing import unusable

if TYPE_CHECKING:
    from launchkit.profiling.sampling.schema import SamplesDocument

_LATE = 3
"""Intervals for which a sampler may be late where the machine is busy."""


def read_samples(path: Path, progress: Progress | None = None) -> Timeline:
    """Return the timeline of a file that ``launchkit profile --py-spy`` wrote.

    ``samples`` are on the clock of ``ranges``, whose times must not be taken for more than telling
    which samples are in them: the sampler was in the way. ``seen_ns`` of a sample is when its stack
    was certainly seen: at ``time_ns`` it had not been seen to change. Raises TimelineError for a
    file that cannot be used.
    """
    source = str(path)
    try:
        document = samples_file.read(path)
    except BadDocumentError as error:
        raise unusable(source, error, "Sample again.") from None
    timeline = _timeline(source, document)
    (progress or silent)("samples", timeline.samples.height, timeline.samples.height)
    return timeline


def _timeline(path: str, document: SamplesDocument) -> Timeline:
    clock, sampler = document.clock, document.sampler
    visits = document.visits if clock is not None else None
    utc_ns = min((each.utc_ns for each in document.processes if each.utc_ns), default=0)
    calibration = {"sampling_interval_ns": 1e9 / sampler.rate_hz}
    if clock is not None:
        calibration["clock_uncertainty_ns"] = float(clock.uncertainty_ns)
    counts, used = RowCounts(), sum(document.samples.count)
    counts.add("samples", read=used + sum(document.dropped.values()), used=used,
               dropped=document.dropped)  # fmt: skip
    ranges = _ranges(document) if visits else pl.DataFrame()
    logged = len(document.visits.name)
    backwards = logged - ranges.height if visits else 0
    counts.add("ranges", read=logged + document.lost, used=ranges.height,
               dropped={"that could not be kept": document.lost,
                        "that end before they begin": backwards,
                        "not on the samples' clock": 0 if visits else logged})  # fmt: skip
    return Timeline(
        Source(path, "py-spy", product="py-spy", version=sampler.version,
               schema=str(samples_file.SCHEMA), utc_epoch_ns=utc_ns or None, host_only=True,
               calibration=calibration),
        ranges=table_of("ranges", ranges),
        samples=table_of("samples", _samples(document)),
        processes=table_of("processes", [
            {"process": each.pid, "name": "", "rank": each.rank} for each in document.processes
        ]),
        threads=table_of("threads", [each.model_dump() for each in document.threads]),
        counts=counts,
        warnings=tuple(_warnings(document)),
    )  # fmt: skip


def _ranges(document: SamplesDocument) -> pl.DataFrame:
    names, visits = document.names, document.visits
    table = pl.DataFrame(
        {
            "at": pl.Series(range(len(names)), dtype=pl.Int64),
            "name": pl.Series([each.name for each in names], dtype=pl.String),
            "category": pl.Series([each.op for each in names], dtype=pl.String),
            "payload": pl.Series(
                [None if each.layer is None else str(each.layer) for each in names],
                dtype=pl.String,
            ),
        }
    )
    columns = {"process": visits.process, "thread": visits.thread, "at": visits.name,
               "start_ns": visits.start_ns, "end_ns": visits.end_ns}  # fmt: skip
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    frame = frame.filter(pl.col("end_ns") >= pl.col("start_ns"))
    return frame.join(table, on="at", how="left").drop("at").with_columns(
        pl.lit(DOMAIN).alias("domain"), pl.lit("push_pop").alias("kind")
    )  # fmt: skip


def _samples(document: SamplesDocument) -> pl.DataFrame:
    stacks = [[document.frames[at] for at in stack] for stack in document.stacks]
    table = pl.DataFrame(
        {"stack": range(len(stacks)), "frames": pl.Series(stacks, dtype=pl.List(pl.String))},
        schema_overrides={"stack": pl.Int64},
    )
    columns = document.samples.model_dump()
    frame = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    interval_ns = round(1e9 / document.sampler.rate_hz)
    each = frame.with_columns(
        at=pl.int_ranges(pl.col("count")), sure=(pl.col("count") - _LATE - 1).clip(0)
    ).explode("at")
    # py-spy says when it found a stack changed, and may not have looked for a while before.
    each = each.with_columns(
        seen_ns=pl.col("time_ns") + pl.min_horizontal("at", "sure") * interval_ns,
        time_ns=pl.col("time_ns") + pl.col("at") * interval_ns,
    )
    return each.drop("count", "at", "sure").join(
        table, on="stack", how="left", maintain_order="left"
    )


def _warnings(document: SamplesDocument) -> Iterator[str]:
    sampler, clock = document.sampler, document.clock
    yield (
        "sampled by py-spy, which is in the program's way: no time is taken from this run, only "
        "shares. Take times from a run without it"
    )
    if clock is None:
        yield (
            "the clocks could not be set to each other (no mark was sampled), so no sample is in "
            "a range: sample at a higher rate, or for longer"
        )
    unlogged = [str(each.pid) for each in document.processes if not each.logged]
    if unlogged:
        yield (
            f"processes that left no ranges (killed, forked, or without launchkit): "
            f"{', '.join(unlogged)}"
        )
    if sampler.errors:
        yield f"py-spy could not read {sampler.errors} of {(sampler.samples or 0) + sampler.errors} samples"
    used = sum(document.samples.count) + sum(document.dropped.values())
    if sampler.samples and not 0.8 <= used / sampler.samples <= 1.25:
        yield (
            f"py-spy took {sampler.samples} samples where its rate gives {used}: it fell behind. "
            "What it saw last stands for the time that it missed, in whatever range that was, and "
            "intervals are too narrow (take a lower --rate)"
        )


def read_pyspy(path: Path, progress: Progress | None = None) -> Timeline:
    """Return the samples of a file that py-spy itself wrote: raw, speedscope or chrometrace.

    There is no range in it. Raises TimelineError for a file that cannot be used.
    """
    stacks = pyspy.read(path)
    rows = [
        {"process": each.process, "thread": each.thread, "time_ns": each.start_ns,
         "frames": stacks.stacks[each.stack], "weight": _weight(each)}
        for each in stacks.stretches
    ]  # fmt: skip
    counts = RowCounts()
    dropped = Counter(stacks.dropped)
    counts.add(
        f"py-spy {stacks.form}",
        read=stacks.read,
        used=stacks.read - dropped.total(),
        dropped=dropped,
    )
    (progress or silent)("samples", len(rows), len(rows))
    warnings = ["a file of py-spy alone has no ranges: launchkit profile --py-spy records them"]
    if stacks.form == "chrometrace":
        warnings.append("its number of samples is taken from their times, for 100 a second")
    return Timeline(
        Source(str(path), "py-spy", product="py-spy", schema=stacks.form, host_only=True),
        samples=table_of("samples", rows),
        counts=counts,
        warnings=tuple(warnings),
    )


def _weight(stretch: pyspy.Stretch) -> float:
    if stretch.start_ns is None or stretch.end_ns is None:
        return stretch.weight
    return float(max(1, round((stretch.end_ns - stretch.start_ns) / 1e7)))
