"""GPU work of a program, and what it and each waiting call waited for. Above program."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import polars as pl

from launchkit.profiling.timeline.what_if.program import USUAL_BETWEEN_NS, USUAL_LATENCY_NS, Op

# Work that starts this soon after other work has ended on the device waited for it.
_SOON_NS = 20_000


class _Work(NamedTuple):
    device: int
    stream: int
    called_ns: int
    start_ns: int
    end_ns: int

    @property
    def lane(self) -> tuple[int, int]:
        """The device and its stream."""
        return self.device, self.stream


def ops_of(gpu: pl.DataFrame) -> list[Op]:
    """Return the GPU work in the order of its launches, with what each piece waited for."""
    columns = ("device", pl.col("stream").fill_null(0), "called", "start_ns", "end_ns")
    works = [_Work(*row) for row in gpu.select(*columns).rows()]
    issued = [work.start_ns - work.called_ns for work in works if work.start_ns >= work.called_ns]
    latency_ns = int(min(median(issued), USUAL_LATENCY_NS)) if issued else USUAL_LATENCY_NS
    streams = _Streams(latency_ns)
    return [streams.op(number, work) for number, work in enumerate(works)]


class _Streams:
    """The streams of all devices, while their work is gone through in the order of its launches."""

    def __init__(self, latency_ns: int) -> None:
        self._latency_ns = latency_ns
        self._ends: dict[tuple[int, int], int] = {}
        self._last: dict[tuple[int, int], int] = {}

    def op(self, number: int, work: _Work) -> Op:
        """Return the next piece of work, the ``number``-th."""
        before_ns = self._ends.get(work.lane, -(2**62))
        made = self._waiting(work, before_ns)
        self._ends[work.lane] = max(work.end_ns, before_ns)
        self._last[work.lane] = number
        return made

    def _waiting(self, work: _Work, before_ns: int) -> Op:
        key, duration_ns = work.lane, max(0, work.end_ns - work.start_ns)
        other = self._other_stream(work, before_ns)
        if other is not None:
            lag_ns = work.start_ns - self._ends[other]
            return Op(
                key, duration_ns, self._latency_ns, USUAL_BETWEEN_NS, self._last[other], lag_ns
            )
        if work.called_ns + self._latency_ns <= before_ns:
            between_ns = max(0, min(work.start_ns - before_ns, _SOON_NS))
            return Op(key, duration_ns, self._latency_ns, between_ns)
        return Op(key, duration_ns, work.start_ns - work.called_ns, USUAL_BETWEEN_NS)

    def _other_stream(self, work: _Work, before_ns: int) -> tuple[int, int] | None:
        """Return another stream whose work ended just before this started late, if any."""
        if work.start_ns - max(work.called_ns, before_ns) <= USUAL_LATENCY_NS * 2:
            return None
        near = [
            (end_ns, key)
            for key, end_ns in self._ends.items()
            if key[0] == work.device
            and key[1] != work.stream
            and 0 <= work.start_ns - end_ns <= _SOON_NS
            and end_ns > work.called_ns
        ]
        return max(near)[1] if near else None


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
