"""Files of py-spy and of sessions written by hand, for the tests of what is made of them."""

from __future__ import annotations

import json

from launchkit.profiling.sampling.clock_marks import NAME

PID, IDENT, NATIVE = 7, 140_000_000_000_000, 71
MS = 1_000_000


def trace(stretches, *, pid=PID, tid=IDENT):
    """py-spy's chrometrace of (start µs, end µs, frames): a frame that goes on is not ended."""
    events, open_frames = [], []
    for start, end, frames in stretches:
        common = 0
        while common < min(len(open_frames), len(frames)) and open_frames[common] == frames[common]:
            common += 1
        events += [event("E", frame, start, pid, tid) for frame in reversed(open_frames[common:])]
        events += [event("B", frame, start, pid, tid) for frame in frames[common:]]
        open_frames, last = frames, end
    return events + [event("E", frame, last, pid, tid) for frame in reversed(open_frames)]


def event(kind, frame, at, pid=PID, tid=IDENT):
    name, file, line = frame
    return {"args": {"filename": file, "line": line}, "cat": "py-spy", "name": name, "ph": kind,
            "pid": pid, "tid": tid, "ts": at}  # fmt: skip


def frame(name, file="script.py", line=3):
    return (name, file, line)


def mark_frame(number):
    return frame(
        f"{NAME}{number}", "/x/site-packages/launchkit/profiling/sampling/clock_marks.py", 60
    )


def session(visits=(), marks=(), *, pid=PID, start_ns=0, threads=None, lost=0):
    """What a process notes: ``visits`` are (name, start ns, end ns) on the thread NATIVE."""
    names = list(dict.fromkeys(name for name, _, _ in visits))
    log = {
        "ident": IDENT, "native_id": NATIVE, "name": "MainThread", "since_ns": start_ns,
        "range": [names.index(name) for name, _, _ in visits],
        "start_ns": [start for _, start, _ in visits], "end_ns": [end for _, _, end in visits],
    }  # fmt: skip
    return {
        "format": "launchkit-session", "schema": 1, "pid": pid, "rank": None, "utc_ns": 10**18,
        "start_ns": start_ns, "marks": [list(mark) for mark in marks],
        "alive": [{"ident": IDENT, "native_id": NATIVE, "name": "MainThread"}],
        "names": [{"name": name, "layer": None, "op": None} for name in names],
        "threads": [log] if threads is None else threads, "lost": lost,
    }  # fmt: skip


def written(path, events):
    path.write_text(json.dumps(events), encoding="utf-8")
    return path
