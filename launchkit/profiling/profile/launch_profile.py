"""The result of ``profile_launches``: figures per range and kernel. Above the rest here.

Every time is host µs of one launch call, from before the call to its return, less the
recorder's own share in it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from launchkit import clock, jsonio
from launchkit.errors import UsageError
from launchkit.profiling.facts import ProcessFacts
from launchkit.profiling.profile import profile_file
from launchkit.profiling.profile.grouping import group_row, step_rows
from launchkit.profiling.profile.merging import tally_of
from launchkit.profiling.profile.rows import (
    GroupRow,
    LaunchRow,
    OpRow,
    ProcessRow,
    RangeRow,
    ThreadRow,
    order,
    phased,
    range_figures,
    row_dict,
)
from launchkit.profiling.recording.calibration import Calibration
from launchkit.profiling.recording.series import PHASES, REPLAY_PHASES
from launchkit.profiling.recording.tally import RangeNode, Tally

if TYPE_CHECKING:
    # Imported when a table is asked for: a program that only annotates must not pay for it.
    from rich.table import Table

SCHEMA_VERSION = 2


class LaunchProfile:
    """Host time per launch, by range and kernel; may be read while it is being recorded.

    ``overhead_us`` is the recorder's share in the time of a launch (of one from a plan of the C
    core: reading the counter between its phases), measured before the recording; it is
    subtracted from every figure, none below 0. ``added_us`` is all that recording adds to a
    launch, most of it outside the figures: what the recorded program ran slower by; it is taken
    off the times of ranges. Without the C core it depends on the call, too: handing on many
    positional arguments (about 0.5 µs for 46) is not subtracted. ``calibration`` has both and
    what ranges cost, each with its uncertainty.

    ``sample_every``: of so many launches one was recorded, on average; figures are of those.
    """

    def __init__(
        self,
        tally: Tally,
        calibration: Calibration,
        mode: str | None = None,
        *,
        sample_every: int = 1,
        processes: Sequence[ProcessFacts] = (),
    ) -> None:
        self._tally = tally
        self._mode = mode
        self._processes = tuple(processes) or (ProcessFacts(),)
        self.calibration = calibration
        self.sample_every = sample_every
        self.overhead_us = calibration.launch.ns / 1000
        self.added_us = calibration.added.ns / 1000

    @property
    def mode(self) -> str:
        """``cuda``; ``host-only`` where some launches were; ``interpreter`` where kernels run in
        Python."""
        return self._mode or ("host-only" if self.host_only else "cuda")

    @property
    def host_only(self) -> bool:
        """Whether some launches ran in host-only mode, where no driver is called."""
        self._tally.refresh()
        return self._tally.host_only_launches > 0

    @property
    def rows(self) -> tuple[LaunchRow, ...]:
        """One row per range path, layer, kernel and op; most time first. Each launch is in one."""
        rows = (
            LaunchRow(path, layer, subject.kernel, subject.op, **phased(series, PHASES))
            for (path, layer, subject), series in self._tally.by_subject().items()
            if subject.kernel is not None
        )
        return tuple(sorted(rows, key=lambda row: (*order(row), row.kernel, row.op or "")))

    @property
    def ops(self) -> tuple[OpRow, ...]:
        """One row per range path, layer and op whose replays were seen; most time first."""
        rows = (
            OpRow(path, layer, subject.op, **phased(series, REPLAY_PHASES))
            for (path, layer, subject), series in self._tally.by_subject().items()
            if subject.kernel is None and subject.op is not None
        )
        return tuple(sorted(rows, key=lambda row: (*order(row), row.op)))

    @property
    def ranges(self) -> tuple[RangeRow, ...]:
        """One row per range path, layer and op; most time first. A launch is in all around it."""
        added_ns = self.calibration.added.ns
        rows = (
            RangeRow(path, layer, **range_figures(total, added_ns), op=op)
            for (path, layer, op), total in self._tally.by_range().items()
        )
        return tuple(sorted(rows, key=order))

    @property
    def by_op(self) -> tuple[GroupRow, ...]:
        """One row per op of ``annotate``, of the innermost range that has one; most time first."""
        return self._groups(lambda node: node.op)

    @property
    def by_layer(self) -> tuple[GroupRow, ...]:
        """One row per layer of ``annotate``, of the innermost range that has one; most time first."""
        return self._groups(lambda node: node.layer)

    def _groups(self, group_of: Callable[[RangeNode], str | int | None]) -> tuple[GroupRow, ...]:
        found = self._tally.by_group(group_of).items()
        rows = (group_row(group, series) for group, series in found)
        return tuple(sorted(rows, key=lambda row: (-row.total_us, str(row.group))))

    def by_step(self, name: str = "step") -> tuple[GroupRow, ...]:
        """One row per visit of the ranges called ``name`` that was kept singly, in their order.

        A step holds the launches that its thread began while its range was open.
        """
        return step_rows(self._tally.nodes, name, self.calibration.added.ns)

    @property
    def threads(self) -> tuple[ThreadRow, ...]:
        """One row per thread that launched, in the order of their first launches."""
        return tuple(
            ThreadRow(total.name, total.launches, total.failed, max(0.0, total.total_ns) / 1000)
            for total in self._tally.by_thread()
            if total.launches or total.failed
        )

    @property
    def processes(self) -> tuple[ProcessRow, ...]:
        """One row per process whose profile this is: one, or those that were loaded together."""
        rows = []
        for place, facts in enumerate(self._processes):
            mine = [each for each in self._tally.by_thread() if each.process == place]
            launches, failed = (
                sum(each.launches for each in mine),
                sum(each.failed for each in mine),
            )
            total_us = max(0.0, sum(each.total_ns for each in mine)) / 1000
            rows.append(ProcessRow(facts.pid, facts.rank, launches, failed, total_us))
        return tuple(rows)

    @property
    def seen(self) -> int:
        """Launches and replays that were made: as many as recorded, unless a sample was."""
        threads = self._tally.by_thread()
        recorded = sum(each.launches + each.failed for each in threads)
        return self._tally.seen or recorded

    @property
    def lost(self) -> int:
        """Launches that could not be recorded, since there was no memory or they nested too deep."""
        self._tally.refresh()
        return self._tally.lost

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON types, with a schema version; the rows as in the tables."""
        return {
            "schema": SCHEMA_VERSION,
            "mode": self.mode,
            "host_only_launches": self._tally.host_only_launches,
            "lost": self.lost,
            "overhead_us": self.overhead_us,
            "added_us": self.added_us,
            "calibration": self.calibration.to_dict(),
            "sample_every": self.sample_every,
            "seen": self.seen,
            "rows": [row_dict(row) for row in self.rows],
            "ops": [row_dict(row) for row in self.ops],
            "ranges": [row_dict(row) for row in self.ranges],
            "by_op": [dataclasses.asdict(row) for row in self.by_op],
            "by_layer": [dataclasses.asdict(row) for row in self.by_layer],
            "threads": [dataclasses.asdict(row) for row in self.threads],
            "processes": [dataclasses.asdict(row) for row in self.processes],
        }

    def to_json(self) -> bytes:
        """Return ``to_dict()`` as JSON, in UTF-8; docs/json.md has its fields."""
        return jsonio.dumps(self.to_dict())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a file that ``load`` and ``launchkit report`` read.

        A name that ends in ``.gz`` is compressed. The file holds what was recorded: counts, the
        first launches and range visits singly, with their times; no argument and no environment.
        Raises OSError where it cannot be written.
        """
        profile_file.write(path, self._document())

    def _document(self) -> dict[str, Any]:
        (facts, *more) = self._processes
        if more:
            raise UsageError("this profile is of several processes. Save each one's own.")
        self._tally.refresh()
        head = {
            "mode": self.mode,
            "sample_every": self.sample_every,
            "calibration": self.calibration.to_dict(),
            "process": dataclasses.asdict(dataclasses.replace(facts, end_ns=clock.now_ns())),
        }
        return head | profile_file.tally_members(self._tally)

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> LaunchProfile:
        """Return the profile of saved files: of several processes or ranks, all of them together.

        Percentiles are of all their launches; ``processes`` tells them apart. Raises
        BadDocumentError for a file that is no profile, UsageError without a file.
        """
        if not paths:
            raise UsageError("there is no profile to load. Name one or more files.")
        documents = [profile_file.read(path) for path in paths]
        tally = tally_of(documents)
        modes = {document.mode for document in documents}
        return cls(
            tally,
            profile_file.mean_calibration(documents),
            modes.pop() if len(modes) == 1 else "mixed",
            sample_every=max(document.sample_every for document in documents),
            processes=[ProcessFacts(**dict(document.process)) for document in documents],
        )

    def table(self) -> Table:
        """Return ``rows`` as a rich table that says what was left out and what was subtracted.

        Below them stand the replays of planned ops, each as a whole; the medians of the phases
        stand beside them where any are known.
        """
        from launchkit.profiling.profile.table import launch_table

        self._tally.refresh()
        return launch_table(self, self._tally.host_only_launches)

    def __repr__(self) -> str:
        kernels = len({row.kernel for row in self.rows})
        return (
            f"<LaunchProfile of {self.seen} launches, {kernels} kernels; print() shows its table>"
        )

    def __str__(self) -> str:
        """The table as text, for ``print(profile)``: as wide as the terminal, at least 80."""
        from launchkit.profiling.profile.table import as_text

        return as_text(self.table())
