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
