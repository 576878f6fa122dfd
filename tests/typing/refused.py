"""Uses that ``mypy --strict`` refuses: each with the code of its error, which must be that one.

A line whose error is missing fails as well: strict warns of an ignore that ignores nothing.
"""

from __future__ import annotations

import launchkit
import launchkit.profiling.timeline
from launchkit import hostonly
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.profiling.timeline import CachedLaunches, Fused, analyse, read_timeline

launchkit.Config  # type: ignore[attr-defined]
launchkit.grid(1.5)  # type: ignore[arg-type]
launchkit.cdiv("n")  # type: ignore[call-arg]
launchkit.buckets("1024")  # type: ignore[arg-type]
launchkit.nearest(2.0)  # type: ignore[call-arg]
launchkit.autotuned(configs=[])  # type: ignore[call-arg]
launchkit.open_store(7)  # type: ignore[arg-type]
launchkit.use_store("memory:", device="similar")  # type: ignore[arg-type]
launchkit.agree_across_ranks(unlike_configs="any")  # type: ignore[arg-type]
launchkit.annotate("mixer", layer="7")  # type: ignore[arg-type]
launchkit.install(include=3)  # type: ignore[arg-type]
launchkit.warm("manifest.json", workers="all")  # type: ignore[arg-type]
launchkit.stats().total  # type: ignore[attr-defined]
launchkit.ConfigStore()  # type: ignore[abstract]
launchkit.profiling.timeline.Timelines  # type: ignore[attr-defined]
mamba_chunk_scan_combined_varlen()  # type: ignore[call-arg]
hostonly.activate(arch="sm_90")  # type: ignore[arg-type]
analyse("capture.sqlite")  # type: ignore[arg-type]
read_timeline("capture.sqlite").ranges = None  # type: ignore[assignment, misc]
Fused(3)  # type: ignore[arg-type]
CachedLaunches("mixer", saves_us=3)  # type: ignore[call-arg]


@launchkit.planned
def op(x: int) -> int:
    return x


op("x")  # type: ignore[arg-type]

with launchkit.profile_launches(sample_every="all") as profile:  # type: ignore[arg-type]
    profile.save()  # type: ignore[call-arg]
