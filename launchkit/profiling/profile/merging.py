"""One tally of several profile files. Above the tally."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from launchkit.profiling.recording.series import Series, Times
from launchkit.profiling.recording.tally import RangeNode, Subject, Tally, ThreadTotal

if TYPE_CHECKING:
    from launchkit.profiling.profile.schema import LaunchesPart, ProfileDocument, RangePart

_NO_LIMIT = 2**62


def tally_of(documents: Sequence[ProfileDocument]) -> Tally:
    """Return the counts of all files together; times are in UTC."""
    tally = Tally(_NO_LIMIT)
    for place, document in enumerate(documents):
        _Addition(tally, document, place, named=len(documents) > 1).add()
    return tally


class _Addition:
    """A file on its way into a tally."""

    def __init__(self, tally: Tally, document: ProfileDocument, place: int, named: bool) -> None:
        self._tally = tally
        self._document = document
        self._threads: list[int] = []
        self._shift_ns = document.process.utc_ns - document.process.start_ns
        process = document.process
        who = f"pid {process.pid}" if process.rank is None else f"rank {process.rank}"
        for thread in document.threads:
            name = f"{who}, {thread.name}" if named else thread.name
            total = ThreadTotal(
                name, thread.native_id, place, thread.launches, thread.failed, thread.total_ns
            )
            self._threads.append(tally.add_thread(total))

    def add(self) -> None:
        """Add it."""
        tally, document = self._tally, self._document
        tally.host_only_launches += document.host_only_launches
        tally.lost += document.lost
        tally.seen += document.seen
        nodes = [tally.root]
        for part in document.ranges:
            node = tally.child(nodes[part.parent], part.name, part.layer, part.op)
            nodes.append(node)
            self._visits(node, part)
        for launches in document.launches:
            self._launches(nodes[launches.range], launches)

    def _visits(self, node: RangeNode, part: RangePart) -> None:
        visits = node.visits
        visits.count += part.calls
        visits.ns += part.ns
        visits.within_ns += part.within_ns
        visits.started_ns.extend(self._shifted(part.started_ns))
        visits.length_ns.extend(part.length_ns)
        visits.within_each_ns.extend(part.within_each_ns)
        visits.recorder_ns.extend(part.recorder_ns or [0] * len(part.thread))
        visits.thread.extend(self._threads[each] for each in part.thread)

    def _launches(self, node: RangeNode, part: LaunchesPart) -> None:
        series = node.series.setdefault(Subject(part.kernel, part.op), Series())
        phases = {
            name: Times(phase.launches, phase.ns, array("q", phase.each_ns))
            for name, phase in part.phases.items()
        }
        before = min((len(series.phases[name].samples) for name in series.phases), default=0)
        series.failed += part.failed
        series.add(Times(part.launches, part.ns, array("q", part.each_ns)), phases, _NO_LIMIT)
        series.started_ns.extend(self._shifted(part.started_ns))
        series.thread.extend(self._threads[each] for each in part.thread)
        series.phase_at.extend(place + before if place >= 0 else -1 for place in part.phase_at)

    def _shifted(self, times_ns: Sequence[int]) -> array[int]:
        return array("q", [time_ns + self._shift_ns for time_ns in times_ns])
