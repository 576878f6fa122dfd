"""GPU work of a program, and what each piece of it, and each waiting call, waited for. Above program."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

import polars as pl

from launchkit.profiling.timeline.what_if.program import USUAL_BETWEEN_NS, USUAL_LATENCY_NS, Op

# Work that starts this soon after other work has ended on the device waited for it.
_SOON_NS = 20_000


def ops_of(gpu: pl.DataFrame) -> list[Op]:
    """Return the GPU work in the order of its launches, with what each piece waited for."""
    rows = gpu.select(
        "device", pl.col("stream").fill_null(0), "called", "start_ns", "end_ns"
    ).rows()  # fmt: skip
    issued = [start - called for _, _, called, start, _ in rows if start >= called]
    latency = int(min(median(issued), USUAL_LATENCY_NS)) if issued else USUAL_LATENCY_NS
    ends: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    made = []
    for number, (device, stream, called, start, end) in enumerate(rows):
        before = ends.get((device, stream), -(2**62))
        after = _other_stream(device, stream, start, called, before, ends, last)
        made.append(_op(rows[number], before, after, ends, latency))
        ends[device, stream] = max(end, before)
        last[device, stream] = number
    return made


def _other_stream(
    device: int, stream: int, start: int, called: int, before: int,
    ends: Mapping[tuple[int, int], int], last: Mapping[tuple[int, int], int],
) -> tuple[int, tuple[int, int]] | None:  # fmt: skip
    """Return the work of another stream that ended just before this one started late, if any."""
    if start - max(called, before) <= USUAL_LATENCY_NS * 2:
        return None
    near = [
        (end, key)
        for key, end in ends.items()
        if key[0] == device and key[1] != stream and 0 <= start - end <= _SOON_NS and end > called
    ]
    if not near:
        return None
    _, key = max(near)
    return last[key], key


def _op(
    row: tuple[int, int, int, int, int], before: int,
    after: tuple[int, tuple[int, int]] | None, ends: Mapping[tuple[int, int], int], latency: int,
) -> Op:  # fmt: skip
    device, stream, called, start, end = row
    key, duration = (device, stream), max(0, end - start)
    if after is not None:
        lag = start - ends[after[1]]
        return Op(key, duration, latency, USUAL_BETWEEN_NS, after[0], lag)
    if called + latency <= before:
        return Op(key, duration, latency, max(0, min(start - before, _SOON_NS)))
    return Op(key, duration, start - called, USUAL_BETWEEN_NS)


class Waits:
    """What synchronizing calls and blocking copies waited for."""

    def __init__(self, gpu: pl.DataFrame) -> None:
        ended = gpu.with_row_index("number").sort("end_ns")
        self._ends = ended.get_column("end_ns")
        self._numbers = ended.get_column("number").to_list()
        self._launched = gpu.get_column("called").to_list()
        self._end_of = gpu.get_column("end_ns").to_list()

    def of(self, row: Mapping[str, Any], ops: tuple[int, ...], cost: int) -> tuple[int, int, int]:
        """Return the work waited for (-1 none), the time to return after it, and the call's cost."""
        if row["kind"] == "memcpy" and ops and self._end_of[ops[-1]] <= row["end_ns"]:
            number = ops[-1]
        elif row["kind"] == "sync":
            number = self._last(row["start_ns"], row["end_ns"])
        else:
            return -1, 0, cost
        if number < 0:
            return -1, 0, cost
        ended = self._end_of[number]
        tail = row["end_ns"] - max(ended, row["start_ns"])
        if ended <= row["start_ns"]:
            return number, min(tail, cost), cost
        return number, tail, min(cost, USUAL_BETWEEN_NS)

    def _last(self, start_ns: int, end_ns: int) -> int:
        """Return the work that ended last before ``end_ns`` of what was launched before the call."""
        place = int(self._ends.search_sorted(end_ns, side="right")) - 1
        while place >= 0 and self._launched[self._numbers[place]] >= start_ns:
            place -= 1
        return self._numbers[place] if place >= 0 else -1
