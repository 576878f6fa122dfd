"""Tracks on which slices nest: viewers drop slices that cross on one track. A leaf."""

from __future__ import annotations

from collections.abc import Sequence


def lanes_of(spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the lane of each span (start, end), from 0: on a lane, spans nest or are apart.

    ``spans`` stand in the order of their starts, the longer first where they start together.
    Each takes the first lane that it fits into, so what nests already keeps to lane 0.
    """
    open_ends: list[list[int]] = []
    return [_lane(open_ends, start, end) for start, end in spans]


def _lane(open_ends: list[list[int]], start: int, end: int) -> int:
    for lane, ends in enumerate(open_ends):
        while ends and ends[-1] <= start:
            ends.pop()
        if not ends or end <= ends[-1]:
            ends.append(end)
            return lane
    open_ends.append([end])
    return len(open_ends) - 1
