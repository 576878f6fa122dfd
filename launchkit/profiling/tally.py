"""What a recording counts: a tree of ranges with timed launches in each. A leaf.

One tree for all threads, behind one lock. Its size is bounded: samples per series and in
all, and ranges; what no longer fits is counted, never silently lost.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator

MAX_RANGES = 4096
"""Distinct range paths kept apart; launches in further ones are counted under MORE_RANGES."""

MAX_SAMPLES = 4_000_000
"""Samples kept in one recording, 8 bytes each."""

MORE_RANGES = "(more ranges)"


class Series:
    """The launches of one kernel in one range. Times are host ns, overhead included.

    ``launches`` and ``total_ns`` count every launch that returned, ``failed`` those that
    raised; ``samples`` holds the first launches up to the caps, ``dropped`` counts the rest.
    """

    __slots__ = ("failed", "launches", "samples", "total_ns")

    def __init__(self) -> None:
        self.launches = 0
        self.failed = 0
        self.total_ns = 0
        self.samples = array("q")

    @property
    def dropped(self) -> int:
        """Launches whose time is in the total but not among the samples."""
        return self.launches - len(self.samples)

    def merge(self, other: Series) -> None:
        """Add the figures of ``other`` to these."""
        self.launches += other.launches
        self.failed += other.failed
        self.total_ns += other.total_ns
        self.samples.extend(other.samples)


class RangeNode:
    """One path of open ranges; ``layer`` is that of the innermost range that has one."""

    __slots__ = ("children", "layer", "parent", "path", "series")

    def __init__(self, parent: RangeNode | None, path: tuple[str, ...], layer: int | None) -> None:
        self.parent = parent
        self.path = path
        self.layer = layer
        self.children: dict[tuple[str, int | None], RangeNode] = {}
        self.series: dict[str, Series] = {}

    def lineage(self) -> Iterator[RangeNode]:
        """Yield this node and those around it, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class Tally:
    """The counts of one recording. Safe to use from many threads."""

    def __init__(self, samples_per_row: int) -> None:
        self.root = RangeNode(None, (), None)
        self.host_only_launches = 0
        self._nodes = [self.root]
        self._more_ranges: RangeNode | None = None
        self._samples_per_row = samples_per_row
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
        node = RangeNode(parent, (*parent.path, name), layer)
        self._nodes.append(node)
        return node

    def add(self, node: RangeNode, kernel: str, elapsed_ns: int, host_only: bool) -> None:
        """Count a launch of ``kernel`` in ``node`` that took ``elapsed_ns`` on the host."""
        with self._lock:
            if self._closed:
                return
            series = self._series(node, kernel)
            series.launches += 1
            series.total_ns += elapsed_ns
            self.host_only_launches += host_only
            if self._samples_left > 0 and len(series.samples) < self._samples_per_row:
                series.samples.append(elapsed_ns)
                self._samples_left -= 1

    def add_failure(self, node: RangeNode, kernel: str) -> None:
        """Count a launch that raised; it has no time."""
        with self._lock:
            if not self._closed:
                self._series(node, kernel).failed += 1

    def _series(self, node: RangeNode, kernel: str) -> Series:
        found = node.series.get(kernel)
        if found is None:
            found = node.series[kernel] = Series()
        return found

    def close(self) -> None:
        """Ignore launches that return from now on: the figures are final."""
        with self._lock:
            self._closed = True

    def by_launch(self) -> dict[tuple[tuple[str, ...], int | None, str], Series]:
        """Return a copy of the series per (path, layer, kernel), each launch in one."""
        merged: dict[tuple[tuple[str, ...], int | None, str], Series] = {}
        with self._lock:
            for node in self._nodes:
                for kernel, series in node.series.items():
                    merged.setdefault((node.path, node.layer, kernel), Series()).merge(series)
        return merged

    def by_range(self) -> dict[tuple[tuple[str, ...], int | None], Series]:
        """Return a copy of the series per (path, layer), each launch in all ranges around it."""
        merged: dict[tuple[tuple[str, ...], int | None], Series] = {}
        with self._lock:
            for node in self._nodes:
                for outer in node.lineage():
                    total = merged.setdefault((outer.path, outer.layer), Series())
                    for series in node.series.values():
                        total.merge(series)
        return merged
