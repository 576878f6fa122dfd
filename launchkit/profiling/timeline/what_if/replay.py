"""Replays a program: when hosts and GPUs would be done, by max-plus recurrences. Above program.

Each call begins when its thread comes to it; each piece of GPU work starts when the last of what
it waits for is done; a call that waits, or that meets a full queue, holds its thread until the GPU
is far enough. Baccelli, Cohen, Olsder and Quadrat, "Synchronization and Linearity" (1992), chapter
2, has the algebra. Of several threads, the call that returns first is taken first, since it is
then that its work has its place on a stream.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from launchkit.profiling.timeline.what_if.program import Entry, Program


@dataclass(frozen=True)
class Replayed:
    """When the program's thread (or all) and its GPU work were done, from the start, in ns.

    ``waited_ns``: how long threads waited for the GPU or its queue. ``gpu_ns``: sum of durations.
    """

    host_ns: int
    gpu_done_ns: int
    waited_ns: int
    gpu_ns: int

    @property
    def total_ns(self) -> int:
        """When all was done."""
        return max(self.host_ns, self.gpu_done_ns)


class _State:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.clocks: dict[int, int] = {}
        self.free = dict(program.busy_until)
        self.ends: dict[int, int] = {}
        self.starts: dict[int, list[int]] = {}
        self.waited_ns = 0
        self.gpu_done_ns = program.start_ns

    def done_ns(self, entry: Entry) -> int:
        """Return when the next ``entry`` of its lane would be done if it did not wait."""
        clock = self.clocks.get(entry.lane, self.program.start_ns)
        return clock + entry.before_ns + entry.cost_ns

    def take(self, entry: Entry) -> None:
        """Do the next ``entry`` of its lane."""
        done = self.done_ns(entry)
        begin = done - entry.cost_ns
        for number in entry.ops:
            end = self._start(number, begin)
            if self.program.lane in (None, entry.lane):
                self.gpu_done_ns = max(self.gpu_done_ns, end)
        waited = max(done, self._waited(entry), self._queued(entry))
        self.waited_ns += waited - done
        self.clocks[entry.lane] = waited

    def _start(self, number: int, begin: int) -> int:
        op = self.program.ops[number]
        start = begin + op.latency_ns
        if op.stream in self.free:
            start = max(start, self.free[op.stream] + op.between_ns)
        if op.after in self.ends:
            start = max(start, self.ends[op.after] + op.lag_ns)
        self.free[op.stream] = self.ends[number] = start + op.duration_ns
        device = self.starts.setdefault(op.stream[0], [])
        # Starts in order: the queue frees a place when the earliest of its work starts.
        device.append(max(start, device[-1]) if device else start)
        return self.ends[number]

    def _waited(self, entry: Entry) -> int:
        end = self.ends.get(entry.waits_for)
        return 0 if end is None else end + entry.tail_ns

    def _queued(self, entry: Entry) -> int:
        if not entry.ops:
            return 0
        starts = self.starts[self.program.ops[entry.ops[0]].stream[0]]
        place = len(starts) - 1 - self.program.queue
        return starts[place] if place >= 0 else 0


def replay(program: Program) -> Replayed:
    """Return when what ``program`` does would be done."""
    state = _State(program)
    for entry in _in_order(program, state):
        state.take(entry)
    start, lane = program.start_ns, program.lane
    clocks = state.clocks.values() if lane is None else [state.clocks.get(lane, start)]
    return Replayed(
        host_ns=max(clocks, default=start) - start,
        gpu_done_ns=max(state.gpu_done_ns, start) - start,
        waited_ns=state.waited_ns,
        gpu_ns=sum(program.ops[number].duration_ns for number in state.ends),
    )


def _in_order(program: Program, state: _State) -> Iterator[Entry]:
    """Yield the entries of each lane in their order, of several lanes what is done first."""
    lanes: dict[int, deque[Entry]] = {}
    for entry in program.entries:
        lanes.setdefault(entry.lane, deque()).append(entry)
    heap = [(state.done_ns(left[0]), lane) for lane, left in lanes.items()]
    heapq.heapify(heap)
    while heap:
        _, lane = heap[0]
        left = lanes[lane]
        yield left.popleft()
        if left:
            heapq.heapreplace(heap, (state.done_ns(left[0]), lane))
        else:
            heapq.heappop(heap)
