"""Timelines written by hand, for the tests of what is read from them."""

from __future__ import annotations

import polars as pl

from launchkit.profiling.timeline.model import Source, Timeline


def rng(name, start, end, **more):
    """A range of process and thread 1."""
    return {"process": 1, "thread": 1, "domain": "", "name": name, "kind": "push_pop",
            "start_ns": start, "end_ns": end, **more}  # fmt: skip


def call(name, start, end, kind, correlation=None, **more):
    """A call of process and thread 1."""
    return {"process": 1, "thread": 1, "name": name, "kind": kind, "layer": "driver",
            "start_ns": start, "end_ns": end, "correlation": correlation, **more}  # fmt: skip


def work(name, start, end, correlation, **more):
    """A kernel on stream 7 of device 0."""
    return {"process": 1, "device": 0, "stream": 7, "name": name, "full_name": name,
            "kind": "kernel", "start_ns": start, "end_ns": end, "correlation": correlation,
            **more}  # fmt: skip


def timeline(ranges=(), calls=(), gpu=(), overheads=(), **source):
    """The timeline of these rows."""
    made = Timeline(Source("x", "nsys-sqlite", **source))
    return made.with_tables(ranges=ranges, calls=calls, gpu=gpu, overheads=overheads)


def row(frame, **where):
    """The one row of ``frame`` with these values, as a dict."""
    found = frame.filter(*[pl.col(name) == value for name, value in where.items()])
    assert found.height == 1, found
    return found.row(0, named=True)


KERNEL_NS, LAUNCH_NS, QUEUE = 1000, 10, 100


def full_queue(launches=400, overheads=False):
    """Launches of 10 ns faster than kernels of 1000 ns: from 100 queued on each waits for a start."""
    calls, gpu, waits, now, free = [], [], [], 0, 0
    starts: list[int] = []
    for number in range(launches):
        begin = now
        done = begin + LAUNCH_NS
        if number >= QUEUE:
            done = max(done, starts[number - QUEUE])
        start = max(begin + LAUNCH_NS, free)
        free = start + KERNEL_NS
        starts.append(start)
        calls.append(call("cuLaunchKernel", begin, done, "launch", number))
        gpu.append(work("k", start, free, number))
        if done > begin + LAUNCH_NS:
            waits.append({"process": 1, "thread": 1, "kind": "queue_full",
                          "start_ns": begin + LAUNCH_NS, "end_ns": done})  # fmt: skip
        now = done + 5
    ranges = [rng("pushing", 0, now)]
    waited = sum(each["end_ns"] - each["start_ns"] for each in waits)
    return timeline(ranges, calls, gpu, waits if overheads else ()), waited
