"""What a recording counts: a tree of ranges with timed launches in each. Above series and visits.

One tree for all threads, behind one lock. Its size is bounded: samples per series and in
all, and ranges; what no longer fits is counted, never silently lost.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from launchkit.profiling.recording.series import Series, Times
from launchkit.profiling.recording.visits import Visit, Visits

MAX_RANGES = 4096
"""Distinct range paths kept apart; launches in further ones are counted under MORE_RANGES."""

MAX_SAMPLES = 4_000_000
"""Launches whose times are kept in one recording, 8 to 32 bytes each."""

MORE_RANGES = "(more ranges)"

REPLAY = "replay"
"""A phase of totals: what replays took besides their launches. It is in no sample."""

Group = TypeVar("Group")


class Subject(NamedTuple):
    """What was launched: ``kernel`` by itself or in a replay of ``op``; no kernel: the replay."""

    kernel: str | None
    op: str | None


@dataclass(frozen=True)
class Batch:
    """Launches that have everything but their times in common.

    ``total`` and ``phases`` (see ``PHASES``; empty where they are not known) hold their times,
    the recorder's own share taken off; of failed ones only the number counts. ``started_ns``: when
    those began whose times are kept singly.
    """

    subject: Subject
    thread: int
    total: Times
    phases: Mapping[str, Times] = field(default_factory=dict)
    host_only: bool = False
    failed: bool = False
    started_ns: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class ThreadTotal:
    """What one thread has launched."""

    name: str
    native_id: int = -1
    process: int = 0
    """Its process's place among those of the profile."""
    launches: int = 0
    failed: int = 0
    total_ns: float = 0


class RangeNode:
    """One path of open ranges; ``layer`` and ``op`` are those of the innermost that has one."""

    __slots__ = ("children", "layer", "number", "op", "parent", "path", "series", "visits")

    def __init__(
        self,
        number: int,
        parent: RangeNode | None,
        path: tuple[str, ...],
        layer: int | None,
        op: str | None = None,
    ) -> None:
        self.number = number
        self.parent = parent
        self.path = path
        self.layer = layer
        self.op = op
        self.children: dict[tuple[str, int | None, str | None], RangeNode] = {}
        self.series: dict[Subject, Series] = {}
        self.visits = Visits()

    def lineage(self) -> Iterator[RangeNode]:
        """Yield this node and those around it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


@dataclass
class RangeTotal:
    """A range path with all inside it; ``direct`` counts the launches in no range within."""

    series: Series = field(default_factory=Series)
    visits: Visits = field(default_factory=Visits)
    direct: int = 0


class Tally:
    """The counts of one recording. Safe to use from many threads."""

    def __init__(self, samples_per_row: int) -> None:
        self.root = RangeNode(0, None, (), None)
        self.host_only_launches = 0
        self.lost = 0
        """Launches that were seen and could not be recorded."""
        self.seen = 0
        """Launches and replays of which a sample is recorded; 0 where all are."""
        self.refresh: Callable[[], None] = _nothing_to_fetch
        """Called before the counts are read: fetches what was recorded elsewhere meanwhile."""
        self._nodes = [self.root]
        self._threads: dict[threading.Thread, int] = {}
        self._thread_totals: list[ThreadTotal] = []
        self._more_ranges: RangeNode | None = None
        self.samples_per_row = samples_per_row
        self._samples_left = self._visits_left = MAX_SAMPLES
        self._closed = False
        # Re-entrant: a finalizer may launch a kernel while its own thread holds the lock.
        self._lock = threading.RLock()

    def child(
        self, node: RangeNode, name: str, layer: int | None, op: str | None = None
    ) -> RangeNode:
        """Return the node of range ``name`` inside ``node``, made on first use."""
        key = (name, layer, op)
        found = node.children.get(key)
        if found is None:
            with self._lock:
                found = node.children.get(key) or self._new_child(node, key)
        return found

    def _new_child(self, node: RangeNode, key: tuple[str, int | None, str | None]) -> RangeNode:
        name, layer, op = key
        if len(self._nodes) > MAX_RANGES:
            if self._more_ranges is None:
                self._more_ranges = self._new_node(self.root, MORE_RANGES, None, None)
            return self._more_ranges
        layer = node.layer if layer is None else layer
        child = self._new_node(node, name, layer, node.op if op is None else op)
        node.children[key] = child
        return child

    def _new_node(
        self, parent: RangeNode, name: str, layer: int | None, op: str | None
    ) -> RangeNode:
        node = RangeNode(len(self._nodes), parent, (*parent.path, name), layer, op)
        self._nodes.append(node)
        return node

    def visit(self, node: RangeNode, visit: Visit) -> None:
        """Count that a range was open so long, and keep it singly while there is room."""
        with self._lock:
            if self._closed:
                return
            visits = node.visits
            visits.count += 1
            visits.ns += visit.length_ns
            visits.within_ns += visit.within_ns
            if self._visits_left > 0 and len(visits.started_ns) < self.samples_per_row:
                self._visits_left -= 1
                visits.keep(visit)

    @property
    def nodes(self) -> Sequence[RangeNode]:
        """All ranges, each behind the one around it; first the root, which is none."""
        with self._lock:
            self.refresh()
            return list(self._nodes)

    def node(self, number: int) -> RangeNode:
        """Return the node of a number, as it stands in ``RangeNode.number``."""
        return self._nodes[number]

    def thread(self) -> int:
        """Return the number of the current thread."""
        thread = threading.current_thread()
        with self._lock:
            number = self._threads.setdefault(thread, len(self._thread_totals))
            if number == len(self._thread_totals):
                self._thread_totals.append(ThreadTotal(thread.name, thread.native_id or -1))
            return number

    def add_thread(self, total: ThreadTotal) -> int:
        """Take the figures of a thread of another recording, and return its number."""
        with self._lock:
            self._thread_totals.append(total)
            return len(self._thread_totals) - 1

    def add(self, node: RangeNode, batch: Batch) -> None:
        """Count launches in a range; they share what is left of the samples."""
        with self._lock:
            if self._closed:
                return
            series = self._series(node, batch.subject)
            launches = batch.total.launches
            if batch.failed:
                series.failed += launches
            else:
                room = min(self._samples_left, self.samples_per_row - len(series.total.samples))
                self._samples_left -= series.add(batch.total, batch.phases, room)
                series.locate(batch.started_ns, batch.thread, batch.phases)
            self._count_thread(batch, launches)

    def _count_thread(self, batch: Batch, launches: int) -> None:
        totals = self._thread_totals[batch.thread]
        if batch.subject.kernel is None:
            totals.total_ns += _own_ns(batch.total, batch.phases)
        elif batch.failed:
            totals.failed += launches
        else:
            totals.launches += launches
            totals.total_ns += batch.total.ns
            self.host_only_launches += launches if batch.host_only else 0

    def _series(self, node: RangeNode, subject: Subject) -> Series:
        found = node.series.get(subject)
        if found is None:
            found = node.series[subject] = Series()
        return found

    def close(self) -> None:
        """Ignore launches that return from now on: the figures are final."""
        with self._lock:
            self.refresh()
            self.refresh = _nothing_to_fetch
            self._closed = True

    def by_subject(self) -> dict[tuple[tuple[str, ...], int | None, Subject], Series]:
        """Return a copy of the series per (path, layer, subject), each launch in one."""
        merged: dict[tuple[tuple[str, ...], int | None, Subject], Series] = {}
        with self._lock:
            self.refresh()
            for node in self._nodes:
                for subject, series in node.series.items():
                    merged.setdefault((node.path, node.layer, subject), Series()).merge(series)
        return merged

    def by_range(self) -> dict[tuple[tuple[str, ...], int | None, str | None], RangeTotal]:
        """Return what happened per (path, layer, op), launches in all ranges around them."""
        merged: dict[tuple[tuple[str, ...], int | None, str | None], RangeTotal] = {}
        for node in self.nodes:
            for outer in node.lineage():
                total = merged.setdefault((outer.path, outer.layer, outer.op), RangeTotal())
                self._gather(total.series, node)
            if node.parent is not None:
                total = merged[node.path, node.layer, node.op]
                total.visits.merge(node.visits)
                total.direct += sum(
                    each.launches for subject, each in node.series.items() if subject.kernel
                )
        return merged

    def by_group(self, group_of: Callable[[RangeNode], Group]) -> dict[Group, Series]:
        """Return the launches per group of their innermost range, each in one."""
        merged: dict[Group, Series] = {}
        for node in self.nodes:
            if node.series:
                self._gather(merged.setdefault(group_of(node), Series()), node)
        return merged

    def _gather(self, total: Series, node: RangeNode) -> None:
        with self._lock:
            for subject, series in node.series.items():
                if subject.kernel is not None:
                    total.merge(series)
                else:
                    own_ns = _own_ns(series.total, series.phases)
                    total.total.ns += own_ns
                    total.phases.setdefault(REPLAY, Times()).ns += own_ns

    def by_thread(self) -> Sequence[ThreadTotal]:
        """Return what each thread has launched, in the order of their first launches."""
        with self._lock:
            self.refresh()
            return list(self._thread_totals)


def _own_ns(total: Times, phases: Mapping[str, Times]) -> float:
    """Return what replays took besides their launches, which are counted by themselves."""
    return total.ns - phases["launches"].ns if phases else 0.0


def _nothing_to_fetch() -> None:
    """The counts are complete as they are."""
