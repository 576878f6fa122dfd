"""Puts together what py-spy saw and what the processes noted: one file of samples. Above pyspy.

py-spy knows threads by their pthread id and times since its own start; the processes say which
native thread that was, and when their marks ran. Both clocks are CLOCK_MONOTONIC, so one offset
serves all processes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launchkit import jsonio
from launchkit.errors import BadDocumentError, TimelineError
from launchkit.profiling.sampling.clock_marks import Mark, Offset, Seen, number_of, offset_of
from launchkit.profiling.sampling.pyspy import Stacks
from launchkit.profiling.saved_file import LIMIT_BYTES
from launchkit.profiling.session import FORMAT, SCHEMA

_OWN = re.compile(r"\((?:.*/)?launchkit/profiling/(?:session|sampling/clock_marks|hook/\w+)\.py\b")
_INSTALLED = re.compile(r" \((?:[^()]*/)?(?:site|dist)-packages/")
_LIBRARY = re.compile(r" \((?:[^()]*/)?lib/(?=python3\.\d+/)")


class Sampler(NamedTuple):
    """How py-spy was run; ``samples`` and ``errors`` are what it printed, None where it did not."""

    version: str
    rate_hz: int
    native: bool
    blocking: bool
    samples: int | None
    errors: int | None


def read_session(path: Path) -> dict[str, Any]:
    """Return what a process noted of itself. Raises BadDocumentError for what is no such file."""
    source = str(path)
    data = jsonio.read_limited(path, LIMIT_BYTES)
    found = jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadDocumentError(source, "it is not what launchkit profile writes")
    if found.get("schema") != SCHEMA:
        raise BadDocumentError(source, f"its schema is {found.get('schema')!r}, not {SCHEMA}")
    return found


def combined(
    stacks: Stacks, sessions: Sequence[Mapping[str, Any]], sampler: Sampler
) -> dict[str, Any]:
    """Return the members of a file of samples: ``samples_file.write`` takes them.

    Raises TimelineError for stacks without times.
    """
    if stacks.form != "chrometrace":
        advice = "Record with py-spy record --format chrometrace, or report this file by itself."
        raise TimelineError("the stacks", f"py-spy's {stacks.form} has no times", advice)
    interval_ns = round(1e9 / sampler.rate_hz)
    by_pid = {session["pid"]: session for session in sessions}
    offset = offset_of(list(_seen(stacks, by_pid)), interval_ns)
    zero_ns = min((session["start_ns"] for session in sessions), default=0)
    shift_ns = (offset.offset_ns + zero_ns) if offset else 0
    frames = _Frames(stacks)
    samples, dropped = _samples(stacks, frames, by_pid, (shift_ns, zero_ns, interval_ns))
    visits = list(_visits(sessions, zero_ns))
    names = list(dict.fromkeys(name for name, *_ in visits))
    places = {name: place for place, name in enumerate(names)}
    return {
        "clock": _clock(offset),
        "sampler": sampler._asdict(),
        "processes": [
            _process(pid, by_pid) for pid in sorted({s.process for s in stacks.stretches})
        ],
        "threads": [
            {"process": session["pid"], "thread": each["native_id"], "name": each["name"]}
            for session in sessions
            for each in _distinct(session)
        ],
        "frames": frames.texts,
        "stacks": frames.stacks,
        "samples": samples,
        "names": [{"name": name, "layer": layer, "op": op} for name, layer, op in names],
        "visits": {
            "process": [pid for _, pid, *_ in visits],
            "thread": [thread for _, _, thread, *_ in visits],
            "name": [places[name] for name, *_ in visits],
            "start_ns": [start for *_, start, _ in visits],
            "end_ns": [end for *_, end in visits],
        },
        "dropped": dict(dropped),
        "lost": sum(session["lost"] for session in sessions),
    }


def _clock(offset: Offset | None) -> dict[str, int] | None:
    return offset and {"marks": offset.marks, "uncertainty_ns": offset.uncertainty_ns}


def _process(pid: int, by_pid: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    session = by_pid.get(pid, {})
    return {
        "pid": pid,
        "rank": session.get("rank"),
        "utc_ns": session.get("utc_ns", 0),
        "logged": bool(session),
    }


def _seen(stacks: Stacks, by_pid: Mapping[int, Mapping[str, Any]]) -> Iterator[Seen]:
    """Yield the marks of all processes that were sampled."""
    numbers = [
        next((found for frame in stack if (found := number_of(frame)) is not None), None)
        for stack in stacks.stacks
    ]
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    for stretch in stacks.stretches:
        number = numbers[stretch.stack]
        if number is None or stretch.start_ns is None or stretch.end_ns is None:
            continue
        key = (stretch.process, number)
        first_ns, _ = seen.get(key, (stretch.start_ns, 0))
        seen[key] = (first_ns, stretch.end_ns)
    for pid, session in by_pid.items():
        for mark in map(Mark._make, session["marks"]):
            if (pid, mark.number) in seen:
                yield Seen(mark, *seen[pid, mark.number])


class _Frames:
    """The stacks of a file with each frame once, paths cut to what follows a library's folder."""

    def __init__(self, stacks: Stacks) -> None:
        places: dict[str, int] = {}
        self.own = [any(_OWN.search(frame) for frame in stack) for stack in stacks.stacks]
        self.stacks = [
            [places.setdefault(_cut(frame), len(places)) for frame in stack]
            for stack in stacks.stacks
        ]
        self.texts = list(places)


def _cut(frame: str) -> str:
    return _LIBRARY.sub(" (", _INSTALLED.sub(" (", frame))


def _samples(
    stacks: Stacks,
    frames: _Frames,
    by_pid: Mapping[int, Mapping[str, Any]],
    clock: tuple[int, int, int],
) -> tuple[dict[str, list[int]], Counter[str]]:
    shift_ns, zero_ns, interval_ns = clock
    threads = {pid: _Threads(session, zero_ns) for pid, session in by_pid.items()}
    columns: dict[str, list[int]] = {
        name: [] for name in ("process", "thread", "time_ns", "count", "stack")
    }
    dropped: Counter[str] = Counter(stacks.dropped)
    for stretch in stacks.stretches:
        assert stretch.start_ns is not None
        assert stretch.end_ns is not None
        count = max(1, round((stretch.end_ns - stretch.start_ns) / interval_ns))
        if frames.own[stretch.stack]:
            dropped["of the capture itself"] += count
            continue
        time_ns = stretch.start_ns - shift_ns
        known = threads.get(stretch.process)
        thread = known.native(stretch.thread, time_ns) if known else -1
        row = (stretch.process, thread, time_ns, count, stretch.stack)
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns, dropped


class _Threads:
    """The native id of a pthread: those of ended threads are used again, so by time."""

    def __init__(self, session: Mapping[str, Any], zero_ns: int) -> None:
        self._of: dict[int, list[tuple[int, int]]] = {}
        for each in _distinct(session):
            since_ns = each.get("since_ns", zero_ns) - zero_ns
            self._of.setdefault(each["ident"], []).append((since_ns, each["native_id"]))

    def native(self, ident: int, at_ns: int) -> int:
        """Return -1 for a thread that the process did not note."""
        found = self._of.get(ident)
        if not found:
            return -1
        begun = [native for since_ns, native in sorted(found) if since_ns <= at_ns]
        return begun[-1] if begun else min(found)[1]


def _distinct(session: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """Return the threads that entered ranges, and those alive at the end, each once."""
    return {each["native_id"]: each for each in (*session["alive"], *session["threads"])}.values()


def _visits(
    sessions: Sequence[Mapping[str, Any]], zero_ns: int
) -> Iterator[tuple[tuple[str, int | None, str | None], int, int, int, int]]:
    for session in sessions:
        names = [(each["name"], each["layer"], each["op"]) for each in session["names"]]
        for thread in session["threads"]:
            columns = zip(thread["range"], thread["start_ns"], thread["end_ns"], strict=True)
            for number, start_ns, end_ns in columns:
                pid, native = session["pid"], thread["native_id"]
                yield names[number], pid, native, start_ns - zero_ns, end_ns - zero_ns
