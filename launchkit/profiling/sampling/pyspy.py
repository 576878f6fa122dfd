"""What py-spy writes: chrometrace, raw and speedscope, as stacks. A leaf.

Only chrometrace has times: the begin and the end of each stretch in which a thread's stack was
the same, on a clock that starts with py-spy. Threads are pthread ids there, not those of the
system; ``clock_marks`` and the thread map of the recorded process put both right.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from launchkit import jsonio
from launchkit.errors import LaunchkitError, TimelineError
from launchkit.profiling.saved_file import LIMIT_BYTES

PySpyFormat = Literal["chrometrace", "raw", "speedscope"]

_RAW_LINE = re.compile(r"(?P<stack>\S.*?) (?P<count>\S+)\s*")
_PROCESS = re.compile(r"process (?P<id>\d+):")
_THREAD = re.compile(r"[Tt]hread \(?(?P<id>\d+)\)?")
_SPEEDSCOPE = b"speedscope.app/file-format-schema"
_TRACE = re.compile(rb'"cat"\s*:\s*"py-spy"')
_AGAIN = "Record it again: launchkit profile --py-spy -- ..."


class Stretch(NamedTuple):
    """A thread's stack from ``start_ns`` to ``end_ns`` on py-spy's clock; None: no times are known.

    ``stack``: its place in ``Stacks.stacks``. ``weight``: how many samples saw it, where the format
    says so, else 0.
    """

    process: int
    thread: int
    start_ns: int | None
    end_ns: int | None
    stack: int
    weight: float


@dataclass
class Stacks:
    """The stacks of a file of py-spy: tuples of ``name (file:line)``, the root first.

    ``read`` counts its events, lines or samples, ``dropped`` those left out by reason.
    """

    form: PySpyFormat
    stacks: list[tuple[str, ...]] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    _places: dict[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def place(self, stack: tuple[str, ...]) -> int:
        """Return the place of ``stack`` in ``stacks``; an unknown one is added."""
        found = self._places.setdefault(stack, len(self.stacks))
        if found == len(self.stacks):
            self.stacks.append(stack)
        return found


def is_trace(head: bytes) -> bool:
    """Tell whether JSON that begins so is py-spy's chrometrace."""
    return _TRACE.search(head) is not None


def is_speedscope(head: bytes) -> bool:
    """Tell whether JSON that begins so is a speedscope file."""
    return _SPEEDSCOPE in head


def is_raw(head: bytes) -> bool:
    """Tell whether text begins as py-spy's raw format: a stack and its count."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    found = _RAW_LINE.fullmatch(line)
    return found is not None and found["count"].isdecimal() and ("(" in line or ";" in line)


def read(path: str | os.PathLike[str]) -> Stacks:
    """Return the stacks of a file of py-spy. Raises TimelineError for what is none, or has none."""
    source = os.fspath(path)
    try:
        data = jsonio.read_limited(source, LIMIT_BYTES)
    except (OSError, ValueError, LaunchkitError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise TimelineError(source, f"it cannot be read ({reason})", "Check the path.") from None
    stacks = _parsed(source, data)
    if not stacks.stretches:
        raise TimelineError(source, "it has no samples", _AGAIN)
    return stacks


def _parsed(source: str, data: bytes) -> Stacks:
    if data.lstrip()[:1] not in (b"[", b"{"):
        return _raw(data.decode("utf-8", "replace"))
    try:
        # py-spy writes no key twice; what others add may.
        document, _ = jsonio.tolerant_decoder()(data.decode("utf-8", "replace").lstrip(), 0)
    except (ValueError, ArithmeticError, RecursionError):
        raise TimelineError(source, "it is no whole JSON document", _AGAIN) from None
    if isinstance(document, list):
        return _chrometrace(document)
    if isinstance(document, dict) and isinstance(document.get("profiles"), list):
        return _speedscope(document)
    raise TimelineError(source, "it is no file of py-spy", _AGAIN)


def _chrometrace(events: list[Any]) -> Stacks:
    stacks = Stacks("chrometrace", read=len(events))
    threads: dict[tuple[int, int], _Thread] = {}
    for event in events:
        placed = _placed(event)
        if placed is None:
            stacks.dropped["that are no begin or end of a frame"] += 1
            continue
        process, tid, at_ns = placed
        thread = threads.setdefault((process, tid), _Thread(process, tid))
        if not thread.step(stacks, event, at_ns):
            stacks.dropped["that end a frame that did not begin"] += 1
    for thread in threads.values():
        stacks.dropped["that begin a frame that does not end"] += len(thread.frames)
    stacks.dropped += Counter()
    return stacks


def _placed(event: object) -> tuple[int, int, int] | None:
    if not isinstance(event, dict) or event.get("ph") not in ("B", "E"):
        return None
    process, tid, at = (event.get(key) for key in ("pid", "tid", "ts"))
    if type(process) is not int or type(tid) is not int:
        return None
    if not isinstance(at, int | Decimal) or not 0 <= at < 2**53:
        return None
    return process, tid, round(at * 1000)


class _Thread:
    """The frames that a thread has open, and since when."""

    def __init__(self, process: int, tid: int) -> None:
        self.process, self.tid = process, tid
        self.frames: list[str] = []
        self._since_ns = 0

    def step(self, stacks: Stacks, event: Mapping[str, Any], at_ns: int) -> bool:
        """Take an event; False for an end without a begin."""
        if self.frames and at_ns > self._since_ns:
            _, _, frames = _without_prefixes(self.frames)
            place = stacks.place(frames)
            span = (self._since_ns, at_ns)
            stacks.stretches.append(Stretch(self.process, self.tid, *span, place, 0.0))
        self._since_ns = at_ns
        if event["ph"] == "B":
            self.frames.append(_frame(event.get("name"), event.get("args")))
        elif self.frames:
            self.frames.pop()
        else:
            return False
        return True


def _frame(name: object, args: object) -> str:
    file, line = (args.get(key) for key in ("filename", "line")) if isinstance(args, dict) else ("", 0)  # fmt: skip
    return frame_text(str(name), str(file or ""), line if isinstance(line, int) else 0)


def frame_text(name: str, file: str, line: int) -> str:
    """Return a frame as py-spy's raw format spells it."""
    place = f"{file}:{line}" if line else file
    return f"{name} ({place})" if place else name


def _raw(text: str) -> Stacks:
    stacks = Stacks("raw")
    for line in text.splitlines():
        if not line.strip():
            continue
        stacks.read += 1
        found = _RAW_LINE.fullmatch(line)
        count = _count(found["count"]) if found else None
        if found is None or count is None:
            stacks.dropped["without a count above 0"] += 1
            continue
        process, thread, frames = _without_prefixes(found["stack"].split(";"))
        if not frames:
            stacks.dropped["without a frame"] += 1
            continue
        place = stacks.place(frames)
        stacks.stretches.append(Stretch(process, thread, None, None, place, count))
    return stacks


def _count(text: str) -> float | None:
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return float(count) if count else None


def _without_prefixes(parts: Iterable[str]) -> tuple[int, int, tuple[str, ...]]:
    """Take off what ``--subprocesses`` and ``--threads`` put in front: -1 for what is not said."""
    process, thread, frames = -1, -1, list[str]()
    for part in parts:
        if not frames and (found := _PROCESS.match(part)):
            process, thread = int(found["id"]), -1
        elif not frames and thread < 0 and (found := _THREAD.match(part)):
            thread = int(found["id"])
        elif part:
            frames.append(part)
    return process, thread, tuple(frames)


def _speedscope(document: Mapping[str, Any]) -> Stacks:
    stacks = Stacks("speedscope")
    shared = document.get("shared")
    listed = shared.get("frames") if isinstance(shared, dict) else None
    frames = [_speedscope_frame(each) for each in listed] if isinstance(listed, list) else []
    for profile in document["profiles"]:
        for stack, weight in _speedscope_samples(profile, stacks):
            stacks.read += 1
            if not stack or not all(type(at) is int and 0 <= at < len(frames) for at in stack):
                stacks.dropped["without a frame, or with one that the file does not have"] += 1
                continue
            place = stacks.place(tuple(frames[at] for at in stack))
            thread = _THREAD.search(str(profile.get("name", "")))
            number = int(thread["id"]) if thread else -1
            stacks.stretches.append(Stretch(-1, number, None, None, place, weight))
    return stacks


def _speedscope_frame(frame: object) -> str:
    if not isinstance(frame, dict):
        return "?"
    line = frame.get("line")
    return frame_text(
        str(frame.get("name", "?")),
        str(frame.get("file") or ""),
        line if isinstance(line, int) else 0,
    )


def _speedscope_samples(profile: object, stacks: Stacks) -> Iterator[tuple[list[Any], float]]:
    """Yield each sample's frames with 1: weights are the same for all of them."""
    if not isinstance(profile, dict) or profile.get("type") != "sampled":
        stacks.read += 1
        stacks.dropped["profiles that are not sampled"] += 1
        return
    samples, weights = profile.get("samples"), profile.get("weights")
    if not isinstance(samples, list) or not isinstance(weights, list):
        stacks.read += 1
        stacks.dropped["profiles without samples"] += 1
        return
    spare = abs(len(samples) - len(weights))
    stacks.read += spare
    stacks.dropped["samples without a weight, or weights without a sample"] += spare
    stacks.dropped += Counter()
    for sample, _ in zip(samples, weights, strict=False):
        yield sample if isinstance(sample, list) else [], 1.0
