"""Chrome traces and saved profiles for ``launchkit bench fuzz``: changed, damaged and misspelled.

What reads them needs polars, which comes with the extra ``profile``.
"""

from __future__ import annotations

import functools
import gzip
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from launchkit import LaunchProfile, jsonio
from launchkit.benchmarks.fuzz import timelines as fuzz_timelines
from launchkit.benchmarks.fuzz.mutations import damaged, mutated, noise, spelled
from launchkit.errors import UsageError

Files = dict[str, bytes]


@functools.cache
def trace() -> Any:
    """Return a small chrome trace that has an event of every kind."""
    thread = {"pid": 70, "tid": 71}
    call = {**thread, "ph": "X", "cat": "cuda_runtime", "dur": 9.5}
    work = {"ph": "X", "pid": 0, "tid": 7, "dur": 4}
    on_gpu = {"device": 0, "context": 1, "stream": 7, "bytes": 64, "graph id": 3}
    half = {**thread, "cat": "io", "name": "wide", "id": "0x1"}
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": 1_727_743_122_000_000_000,
        "distributedInfo": {"rank": 1},
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "traceEvents": [
            {**thread, "ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 1.5, "dur": 40},
            {**thread, "ph": "X", "cat": "python_function", "name": "f", "ts": "2", "dur": 45},
            {"ph": "X", "pid": 9, "tid": 9, "cat": "user_annotation", "name": "ProfilerStep#1",
             "ts": 0, "dur": 100},
            {**call, "name": "cudaLaunchKernel", "ts": 5.25, "args": {"correlation": 1}},
            {**call, "name": "cuLaunchKernel", "cat": "cuda_driver", "ts": 6, "dur": 3,
             "args": {"correlation": 1}},
            {**call, "name": "cudaGraphLaunch", "ts": 20, "args": {"correlation": 2}},
            {**work, "cat": "kernel", "name": "void a::b<int>(int)", "ts": 12,
             "args": {**on_gpu, "correlation": 1}},
            {**work, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 30,
             "args": {**on_gpu, "correlation": 2}},
            {**work, "cat": "gpu_user_annotation", "name": "step", "ts": 12},
            {**thread, "ph": "X", "cat": "overhead", "name": "Command Buffer Full", "ts": 8, "dur": 1},
            {**thread, "ph": "B", "name": "begun", "ts": 50},
            {**thread, "ph": "E", "ts": 60},
            {**half, "ph": "b", "ts": 51},
            {**half, "ph": "e", "ts": 58, "tid": 72},
            {**thread, "ph": "B", "name": "never ended", "ts": 70},
            {**thread, "ph": "i", "name": "mark", "ts": 71},
            {"ph": "M", "name": "process_name", "pid": 70, "tid": 0, "args": {"name": "python3"}},
            {**thread, "ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 5.25},
        ],
    }  # fmt: skip


@functools.cache
def profile() -> Any:
    """Return a small saved profile, as its file holds it."""
    visits = {"started_ns": [1000, 3000], "length_ns": [1500, 900], "within_each_ns": [0, 0]}
    each = {"find": [90, 95], "grid": [40, 45], "driver": [700, 650]}
    return {
        "format": "launchkit-profile",
        "schema": 1,
        "mode": "cuda",
        "sample_every": 1,
        "seen": 3,
        "lost": 0,
        "host_only_launches": 0,
        "calibration": {"launch_ns": 30.0, "launch_uncertainty_ns": 5.0},
        "process": {"pid": 70, "rank": None, "start_ns": 900, "end_ns": 9000, "utc_ns": 10**18},
        "threads": [
            {"name": "MainThread", "native_id": 71, "launches": 2, "failed": 1, "total_ns": 1700.0}
        ],
        "ranges": [
            {"parent": 0, "name": "step", "layer": 3, "op": "ssd", "calls": 2, "ns": 2400,
             "within_ns": 0, "thread": [0, 0], **visits},
            {"parent": 1, "name": "inner", "layer": None, "op": None, "calls": 0, "ns": 0,
             "within_ns": 0, "thread": [], **{name: [] for name in visits}},
        ],
        "launches": [
            {"range": 1, "kernel": "scan", "op": None, "launches": 2, "failed": 1, "ns": 1700.0,
             "phases": {
                 name: {"launches": 2, "ns": float(sum(times)), "each_ns": times}
                 for name, times in each.items()
             },
             "started_ns": [1100, 3050], "each_ns": [850, 800], "thread": [0, 0], "phase_at": [0, 1]},
            {"range": 0, "kernel": None, "op": "layer", "launches": 1, "failed": 0, "ns": 5000.0,
             "phases": {}, "started_ns": [5000], "each_ns": [3000], "thread": [0], "phase_at": [-1]},
        ],
    }  # fmt: skip


def make_trace(rng: Random) -> Files:
    """Return a changed trace: in structure, in its spelling, or in its bytes."""
    content = trace() if rng.random() < 0.7 else trace()["traceEvents"]
    return {"it.json": changed(rng, content, exact=False)}


def make_profile(rng: Random) -> Files:
    """Return a changed profile."""
    return {"it.json": changed(rng, profile(), exact=True)}


def take_profile(folder: Path) -> tuple[Sequence[Any], Sequence[str]]:
    """Read a profile as a timeline; one that is taken must load, and have figures, too."""
    timelines, reasons = fuzz_timelines.take(folder)
    if any(each.source.format == "launchkit" for each in timelines):
        loaded = LaunchProfile.load(folder / "it.json")
        loaded.to_json()
        loaded.by_step()
    return timelines, reasons


def changed(rng: Random, content: Any, *, exact: bool) -> bytes:
    """Return ``content`` as JSON, changed, damaged or noise; ``exact``: never misspelled."""
    kind = rng.random()
    if kind < 0.02:
        return noise(rng)
    if kind < 0.3:
        data = damaged(rng, jsonio.dumps_python_compact(content))
    elif exact or kind < 0.7:
        data = _compact(mutated(rng, content))
    else:
        data = spelled(rng, mutated(rng, content))
    if rng.random() < 0.2:
        packed = gzip.compress(data, 1, mtime=0)
        return damaged(rng, packed) if rng.random() < 0.3 else packed
    return data


def _compact(content: Any) -> bytes:
    try:
        return jsonio.dumps_python_compact(content)
    except UsageError:
        return b"{}"
