"""What a recording counts: a tree of ranges with timed launches in each. A leaf.

One tree for all threads, behind one lock. Its size is bounded: samples per series and in
all, and ranges; what no longer fits is counted, never silently lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from launchkit.profiling.series import Series, Times

MAX_RANGES = 4096
"""Distinct range paths kept apart; launches in further ones are counted under MORE_RANGES."""

MAX_SAMPLES = 4_000_000
"""Launches whose times are kept in one recording, 8 to 32 bytes each."""

MORE_RANGES = "(more ranges)"


class Subject(NamedTuple):
    """What was launched: ``kernel`` by itself or in a replay of ``op``; no kernel: the replay."""

    kernel: str | None
    op: str | None


@dataclass(frozen=True)
class Batch:
    """Launches that have everything but their times in common.

    ``total`` and ``phases`` (see ``PHASES``; empty where they are not known) hold their times,
    the recorder's own share taken off; of failed ones only the number counts.
    """

    subject: Subject
    thread: int
    total: Times
    phases: Mapping[str, Times] = field(default_factory=dict)
    host_only: bool = False
    failed: bool = False


@dataclass
class ThreadTotal:
    """What one thread has launched."""

    name: str
    launches: int = 0
    failed: int = 0
    total_ns: float = 0


class RangeNode:
    """One path of open ranges; ``layer`` is that of the innermost range that has one."""

    __slots__ = ("children", "layer", "number", "parent", "path", "series")

    def __init__(
        self, number: int, parent: RangeNode | None, path: tuple[str, ...], layer: int | None
    ) -> None:
        self.number = number
        self.parent = parent
        self.path = path
        self.layer = layer
        self.children: dict[tuple[str, int | None], RangeNode] = {}
        self.series: dict[Subject, Series] = {}

    def lineage(self) -> Iterator[RangeNode]:
        """Yield this node and those around it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class Tally:
    """The counts of one recording. Safe to use from many threads."""

    def __init__(self, samples_per_row: int) -> None:
        self.root = RangeNode(0, None, (), None)
        self.host_only_launches = 0
        self.lost = 0
        """Launches that were seen and could not be recorded."""
        self.refresh: Callable[[], None] = _nothing_to_fetch
        """Called before the counts are read: fetches what was recorded elsewhere meanwhile."""
        self._nodes = [self.root]
        self._threads: dict[threading.Thread, int] = {}
        self._thread_totals: list[ThreadTotal] = []
        self._more_ranges: RangeNode | None = None
        self.samples_per_row = samples_per_row
        self._samples_left = MAX_SAMPLES
        self._closed = False
        # Re-entrant: a finalizer may launch a kernel while its own thread holds the lock.
        self._lock = threading.RLock()

    def child(self, node: RangeNode, name: str, layer: int | None) -> RangeNode:
        """Return the node of range ``name`` inside ``node``, made on first use."""
        found = node.children.get((name, layer))
        if found is None:
            with self._lock:
                found = node.children.get((name, layer)) or self._new_child(node, name, layer)
        return found

    def _new_child(self, node: RangeNode, name: str, layer: int | None) -> RangeNode:
        if len(self._nodes) > MAX_RANGES:
            if self._more_ranges is None:
                self._more_ranges = self._new_node(self.root, MORE_RANGES, None)
            return self._more_ranges
        child = self._new_node(node, name, node.layer if layer is None else layer)
        node.children[name, layer] = child
        return child

    def _new_node(self, parent: RangeNode, name: str, layer: int | None) -> RangeNode:
        node = RangeNode(len(self._nodes), parent, (*parent.path, name), layer)
        self._nodes.append(node)
        return node

    def node(self, number: int) -> RangeNode:
        """Return the node of a number, as it stands in ``RangeNode.number``."""
        return self._nodes[number]

    def thread(self) -> int:
        """Return the number of the current thread."""
        thread = threading.current_thread()
        with self._lock:
            number = self._threads.setdefault(thread, len(self._thread_totals))
            if number == len(self._thread_totals):
                self._thread_totals.append(ThreadTotal(thread.name))
            return number

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

    def by_range(self) -> dict[tuple[tuple[str, ...], int | None], Series]:
        """Return the launches per (path, layer), each in all ranges around it.

        What replays took besides their launches is in ``total.ns``, and in no sample.
        """
        merged: dict[tuple[tuple[str, ...], int | None], Series] = {}
        with self._lock:
            self.refresh()
            for node in self._nodes:
                for outer in node.lineage():
                    total = merged.setdefault((outer.path, outer.layer), Series())
                    for subject, series in node.series.items():
                        if subject.kernel is not None:
                            total.merge(series)
                        else:
                            total.total.ns += _own_ns(series.total, series.phases)
        return merged

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
