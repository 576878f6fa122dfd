"""Everything that a timeline says of launches, in one call: ``analyse``. Above the rest here.

The frames of an ``Analysis`` are what reports render. Each has ``name``, ``count`` and
``total_ns`` where it is a table of design's report form; times are int64 ns (quantiles float64).
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from launchkit.profiling.timeline.analysis import (
    attribution,
    cold,
    gaps,
    layers,
    ranks,
    samples,
    stalls,
    steps,
    tables,
)
from launchkit.profiling.timeline.analysis.intervals import covered_by, union
from launchkit.profiling.timeline.analysis.linked import Linked, link
from launchkit.profiling.timeline.analysis.nesting import Nesting
from launchkit.profiling.timeline.analysis.verdicts import verdicts
from launchkit.profiling.timeline.figures import DURATION_NS
from launchkit.profiling.timeline.model import Timeline

_MUCH = 0.1
"""Part of the time of a full queue that a GPU may seem idle in: clocks differ, queues drain."""


@dataclass(frozen=True)
class Analysis:
    """A timeline, and what launches, ranges and GPUs did in it.

    Tables, by what the docstring of the function behind each says of its columns: ``ranges``
    (``attribution.by_name``), ``instances`` (``attribution.instances``: each range), ``steps``
    (``steps.step_table``), ``ops`` and ``layers`` (``layers``), ``kernels``
    (``tables.kernel_table``), ``stalls`` (``stalls.stall_table``), ``cold``
    (``cold.cold_launches``), ``sync`` (``tables.sync_table``), ``gaps`` and ``idle``
    (``gaps.Gaps``, with the ``domain`` and ``range`` of each gap and ``step_ns``, the idle time
    within the steps divided by their number), ``verdicts`` (``verdicts.verdicts``), ``python`` and
    ``frames`` (``samples.bucket_table`` and ``frame_table``). ``calls`` holds each call that
    counts, with its figures, ``gpu`` the timeline's GPU work with the ``call_id`` that started it.

    ``processes`` (``ranks.process_table``) compares processes, where there are several.
    ``devices`` has the busy and idle time of each GPU between its first and last work.
    ``warnings`` are the timeline's and what the analysis adds.
    """

    timeline: Timeline
    ranges: pl.DataFrame
    instances: pl.DataFrame
    steps: pl.DataFrame
    ops: pl.DataFrame
    layers: pl.DataFrame
    kernels: pl.DataFrame
    calls: pl.DataFrame
    gpu: pl.DataFrame
    stalls: pl.DataFrame
    cold: pl.DataFrame
    sync: pl.DataFrame
    gaps: pl.DataFrame
    idle: pl.DataFrame
    devices: pl.DataFrame
    processes: pl.DataFrame
    verdicts: pl.DataFrame
    python: pl.DataFrame
    frames: pl.DataFrame
    warnings: tuple[str, ...] = ()


def analyse(timeline: Timeline, *, step_range: str | None = None) -> Analysis:
    """Return what ``timeline`` says of launches.

    ``step_range`` names the ranges that are steps (see ``steps.steps_of``). Takes
    O(n log n) for n rows, whatever they look like.

    Raises:
        UsageError: no closed range is called ``step_range``.
    """
    whole = timeline
    if timeline.source.format == "py-spy":
        timeline = samples.without_times(timeline)
    linked = link(timeline)
    sampled = timeline.source.calibration.get("sample_every", 1) > 1
    calls = cold.mark_cold(stalls.with_stalls(linked), linked.overheads, sampled=sampled)
    # What needs the calls alone comes first and gaps last, so that their memory does not add up.
    of_calls = {
        "kernels": tables.kernel_table(linked, calls),
        "stalls": stalls.stall_table(calls),
        "cold": cold.cold_launches(calls),
        "devices": tables.device_table(linked),
        "processes": ranks.process_table(timeline.processes, calls, linked.gpu),
    }
    nesting = attribution.nested_ranges(linked)
    found = _warnings(timeline, nesting, linked, calls)
    warnings = (*timeline.warnings, *found, *_short(whole))
    host = attribution.host_time(linked, calls, "lane")
    instances = attribution.instances(linked, calls, nesting, host)
    chosen = steps.steps_of(instances, step_range)
    of_ranges = _of_ranges(timeline, linked, calls, nesting, instances)
    idle, each = _gaps(linked, calls, nesting, host, chosen)
    return Analysis(
        timeline=timeline,
        instances=instances,
        steps=steps.step_table(chosen),
        calls=calls,
        gpu=linked.gpu,
        gaps=each,
        idle=idle,
        python=samples.bucket_table(whole),
        frames=samples.frame_table(whole),
        warnings=warnings,
        **of_calls,
        **of_ranges,
    )


def _of_ranges(
    timeline: Timeline,
    linked: Linked,
    calls: pl.DataFrame,
    nesting: Nesting,
    instances: pl.DataFrame,
) -> dict[str, pl.DataFrame]:
    ranges, places = attribution.by_name(instances), layers.placed(nesting)
    source = timeline.source
    return {
        "ranges": ranges,
        "ops": layers.op_table(instances, places),
        "layers": layers.layer_table(instances, calls, nesting, places),
        "sync": tables.sync_table(linked, calls, nesting),
        "verdicts": verdicts(
            ranges,
            attribution.by_name(attribution.without_cold(instances)),
            host_only=source.host_only,
            uncertainty_ns=source.calibration.get("range_uncertainty_ns", 0.0),
        ),
    }


def _gaps(
    linked: Linked,
    calls: pl.DataFrame,
    nesting: Nesting,
    host: attribution.HostTime,
    chosen: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    whole = gaps.find_gaps(linked, calls, nesting, host, _window(chosen))
    share = pl.col("window_ns") / max(1, chosen.height)
    step_ns = pl.when(chosen.height > 0).then(share)
    return whole.idle.with_columns(step_ns=step_ns).drop("window_ns"), whole.gaps


def _window(chosen: pl.DataFrame) -> tuple[int, int] | None:
    if chosen.is_empty():
        return None
    ends = chosen.select(pl.max_horizontal("end_ns", "gpu_last_ns").max())
    return int(chosen["start_ns"].min()), int(ends.item())  # type: ignore[arg-type]


def _short(timeline: Timeline) -> list[str]:
    short = samples.short_ranges(timeline) if timeline.samples.height else 0
    told = "ranges are shorter than what the sampler's clock may be off: samples may miss them"
    return [f"{short} {told}"] if short else []


def _warnings(
    timeline: Timeline, nesting: Nesting, linked: Linked, calls: pl.DataFrame
) -> list[str]:
    unclosed = timeline.ranges.filter(~pl.col("closed")).height
    orphans = linked.gpu.filter(pl.col("call_id").is_null()).height
    lone = calls.filter((pl.col("launches") > 0) & (pl.col("gpu_ops") == 0)).height
    estimated = calls.filter((pl.col("stall_method") == "estimated") & (pl.col("stall_ns") > 0))
    found = {
        "ranges were never closed: their times are left out": unclosed,
        "ranges cross others of their thread and domain": nesting.crossing,
        "pieces of GPU work have no launch in the capture": orphans,
        "launches have no GPU work in the capture (captured into a graph, or cut off)": lone
        if linked.gpu.height else 0,
        "calls seem to have waited for a full launch queue: estimated, the capture does not say":
        estimated.height,
    }  # fmt: skip
    hidden_ns = _hidden_work_ns(linked)
    frames = (timeline.ranges, timeline.calls, timeline.gpu, timeline.samples)
    nothing = not any(frame.height for frame in frames)
    made = ["there is no range, call or GPU work in the capture"] if nothing else []
    if hidden_ns:
        made.append(
            f"the GPU seems idle for {hidden_ns / 1e6:.1f} ms in which launches waited for a full "
            "queue: work is missing (cut off, or in a graph), and idle times are too long"
        )
    return made + [f"{count} {text}" for text, count in found.items() if count]


def _hidden_work_ns(linked: Linked) -> int:
    """Return for how long a launch queue was full while no GPU work is known; 0 for little of it."""
    spans = union(linked.overheads.filter(pl.col("kind") == "queue_full"))
    whole_ns = int(spans.select(DURATION_NS.sum()).item())
    hidden_ns = whole_ns - int(covered_by(spans, linked.active).sum())
    return hidden_ns if linked.gpu.height and hidden_ns > _MUCH * whole_ns else 0
