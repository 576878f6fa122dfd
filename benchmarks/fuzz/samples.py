"""Files of samples, of launchkit and of py-spy, for ``launchkit bench fuzz``: changed and damaged.

What reads them needs polars, which comes with the extra ``profile``.
"""

from __future__ import annotations

import codecs
import functools
from random import Random
from typing import Any

from launchkit.benchmarks.fuzz import traces
from launchkit.benchmarks.fuzz.mutations import damaged

Files = dict[str, bytes]

for _name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"):
    codecs.lookup(
        _name
    )  # now, not when an input is read: what Python imports then is not its doing


@functools.cache
def samples() -> Any:
    """Return a small file of samples, as ``launchkit profile --py-spy`` writes it."""
    return {
        "capture": "py-spy",
        "schema": 1,
        "clock": {"marks": 40, "uncertainty_ns": 70_000},
        "sampler": {"version": "0.4.3", "rate_hz": 500, "native": False, "blocking": False,
                    "samples": 7, "errors": 1},
        "processes": [{"pid": 70, "rank": 1, "utc_ns": 10**18, "logged": True},
                      {"pid": 72, "rank": None, "utc_ns": 0, "logged": False}],
        "threads": [{"process": 70, "thread": 71, "name": "MainThread"}],
        "frames": ["<module> (a.py:1)", "JITFunction.run (triton/runtime/jit.py:720)", "wait (b.so)"],
        "stacks": [[0], [0, 1], [0, 2]],
        "samples": {"process": [70, 70, 72], "thread": [71, 71, -1], "time_ns": [100, 4_000_100, 7],
                    "count": [2, 4, 1], "stack": [0, 1, 2]},
        "names": [{"name": "step", "layer": None, "op": None}, {"name": "op", "layer": 3, "op": "ssd"}],
        "visits": {"process": [70, 70], "thread": [71, 71], "name": [0, 1], "start_ns": [0, 90],
                   "end_ns": [9_000_000, 5_000_000]},
        "dropped": {"of the capture itself": 3},
        "lost": 0,
    }  # fmt: skip


def _event(kind: str, at_us: int, name: str) -> dict[str, Any]:
    return {"ph": kind, "ts": at_us, "name": name, "cat": "py-spy", "pid": 70, "tid": 140_376,
            "args": {"filename": "a.py", "line": 3}}  # fmt: skip


@functools.cache
def chrometrace() -> Any:
    """Return what py-spy writes as chrometrace."""
    return [_event("B", 10, "main"), _event("B", 900, "inner"), _event("E", 5000, "inner"),
            _event("E", 9000, "main")]  # fmt: skip


@functools.cache
def speedscope() -> Any:
    """Return what py-spy writes as speedscope."""
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "profiles": [{"type": "sampled", "name": 'Thread 7 "MainThread"', "unit": "seconds",
                      "startValue": 0.0, "endValue": 0.02, "samples": [[0], [0, 1]],
                      "weights": [0.01, 0.01]}],
        "shared": {"frames": [{"name": "main", "file": "a.py", "line": 1, "col": None},
                              {"name": "inner", "file": "", "line": None, "col": None}]},
        "exporter": "py-spy@0.4.3", "activeProfileIndex": 0, "name": "py-spy",
    }  # fmt: skip


RAW = (
    b"<module> (a b (c).py:1);f (x.py:2) 3\n"
    b'process 20070:"python sub.py";thread (71): MainThread;g (y.py:1) 2\n'
)


def make_samples(rng: Random) -> Files:
    """Return a changed file of samples."""
    return {"it.json": traces.changed(rng, samples(), exact=True)}


def make_pyspy(rng: Random) -> Files:
    """Return a changed file of py-spy, in one of its formats."""
    kind = rng.randrange(3)
    if kind == 0:
        return {"it.json": damaged(rng, RAW)}
    content = chrometrace() if kind == 1 else speedscope()
    return {"it.json": traces.changed(rng, content, exact=False)}
