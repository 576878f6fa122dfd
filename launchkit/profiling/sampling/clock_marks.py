"""Marks by which a sampler's clock is set to that of the process that it samples. A leaf.

The process runs functions whose names occur once, for some sampling intervals each, and notes
when. A sampler sees each begin, and end, at its first sample after: never before. So the smallest
difference of all of them is the offset of the clocks, and the more marks, the nearer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from launchkit import clock

NAME = "launchkit_clock_mark_"

_BUSY, _PAUSE = 2.4, 1.3
"""Length of a mark and of the pause behind it, in sampling intervals; no whole numbers."""
_LONGEST_NS = 400_000_000
_MOST = 24


class Mark(NamedTuple):
    """A mark: its number, and when its function began and ended."""

    number: int
    start_ns: int
    end_ns: int


class Seen(NamedTuple):
    """A mark, when the sampler first saw it, and when it first saw that it had gone."""

    mark: Mark
    first_ns: int
    gone_ns: int


class Offset(NamedTuple):
    """``offset_ns`` to take off a sampler's time; ``uncertainty_ns``: how far it may be off."""

    offset_ns: int
    uncertainty_ns: int
    marks: int


def leave_marks(interval_ns: int, first: int = 0) -> list[Mark]:
    """Keep this thread busy in marks, numbered from ``first``; takes 0.4 s at most."""
    busy_ns, pause_ns = round(interval_ns * _BUSY), round(interval_ns * _PAUSE)
    number = max(2, min(_MOST, _LONGEST_NS // (busy_ns + pause_ns)))
    marks = []
    for each in range(first, first + number):
        spin = _named(each)
        start_ns, end_ns = spin(clock.now_ns, busy_ns)
        marks.append(Mark(each, start_ns, end_ns))
        _spin(clock.now_ns, pause_ns)
    return marks


def _spin(now_ns: Callable[[], int], length_ns: int) -> tuple[int, int]:
    start_ns = now = now_ns()
    while now - start_ns < length_ns:
        now = now_ns()
    return start_ns, now


def _named(number: int) -> Any:
    name = f"{NAME}{number}"
    names: dict[str, Any] = {"co_name": name}
    if sys.version_info >= (3, 11):
        names["co_qualname"] = name
    return FunctionType(_spin.__code__.replace(**names), globals(), name)


def number_of(frame: str) -> int | None:
    """Return the number of the mark whose function a sampled frame is, or None for another."""
    name, found, rest = frame.partition(NAME)
    digits = rest.split(" ")[0]
    return int(digits) if found and not name and digits.isdecimal() else None


def offset_of(seen: Sequence[Seen], interval_ns: int) -> Offset | None:
    """Return the offset of a sampler's clock; None where it saw no mark."""
    if not seen:
        return None
    late_ns = sorted(
        late
        for mark, first_ns, gone_ns in seen
        for late in (first_ns - mark.start_ns, gone_ns - mark.end_ns)
    )
    spread_ns = late_ns[min(2, len(late_ns) - 1)] - late_ns[0]
    uncertainty_ns = max(spread_ns, interval_ns // (len(late_ns) + 1))
    return Offset(late_ns[0], uncertainty_ns, len(seen))
