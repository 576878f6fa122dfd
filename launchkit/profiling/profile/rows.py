"""The rows of a ``LaunchProfile``, made of a tally's series. Above the tally."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchkit.profiling.profile.percentiles import percentile
from launchkit.profiling.recording.series import Series, Times
from launchkit.profiling.recording.tally import RangeTotal


@dataclass(frozen=True)
class _Range:
    path: tuple[str, ...]
    layer: int | None


@dataclass(frozen=True)
class _KernelInRange(_Range):
    kernel: str
    op: str | None


@dataclass(frozen=True)
class _OpInRange(_Range):
    op: str


@dataclass(frozen=True)
class PhaseFigures:
    """One phase of the launches whose phases are known, ``launches`` in number."""

    launches: int
    total_us: float
    median_us: float | None


@dataclass(frozen=True)
class _Figures:
    launches: int
    failed: int
    dropped: int
    total_us: float
    median_us: float | None
    p10_us: float | None
    p90_us: float | None
    p99_us: float | None


@dataclass(frozen=True)
class _PhasedFigures(_Figures):
    phases: Mapping[str, PhaseFigures | None]

    @property
    def driver_us(self) -> float | None:
        """Time in the driver's calls, of the launches whose phases are known; None: of none."""
        found = self.phases.get("driver") or self.phases.get("launches")
        return None if found is None else found.total_us

    @property
    def python_us(self) -> float | None:
        """Time of the same launches outside the driver."""
        if self.driver_us is None:
            return None
        others = [each for name, each in self.phases.items() if name not in ("driver", "launches")]
        return sum(each.total_us for each in others if each is not None)


# A dataclass takes the fields of its last base first.
@dataclass(frozen=True)
class LaunchRow(_PhasedFigures, _KernelInRange):
    """The launches of ``kernel`` made directly in the range ``path``.

    ``path`` holds the names of the open ranges, outermost first, empty outside any range;
    ``layer`` is that of the innermost range that has one. ``op`` is the planned op in whose
    replays they were launched, where each is timed from the one before to its own end; None:
    they were launched by themselves. ``launches`` and ``total_us`` count every launch that
    returned, ``failed`` those that raised (they have no time). The percentiles (linear
    interpolation) are of the first launches; ``dropped`` is how many later ones they leave
    out. They are None where no launch returned.

    ``phases``: ``find`` (binding, guard and lookup), ``grid`` (stream, grid and parameters) and
    ``driver``, of the launches from a plan of the C core; None where there was none.
    """


@dataclass(frozen=True)
class OpRow(_PhasedFigures, _OpInRange):
    """The replays of a planned op made directly in the range ``path``: ``launches`` in number.

    Each is timed as a whole. ``phases``: ``find`` (comparing the arguments with the plan's),
    ``prepare`` (allocating), ``launches`` (the driver, for all of its launches).
    """


@dataclass(frozen=True)
class RangeRow(_Figures, _Range):
    """All launches inside the range ``path``, those in ranges nested in it included.

    The fields up to ``p99_us`` are those of ``LaunchRow``, over all kernels; what replays of ops
    took besides their launches is in ``total_us`` and in no percentile.

    ``op`` is that of the innermost range that has one. ``calls``: how often the range was open and
    was left. ``wall_us``: how long in all; ``exclusive_us``: of it, outside ranges inside. Of the
    wall time, ``driver_us`` went into the driver's calls, ``unsplit_us`` into launches of which
    only the whole is known, and ``python_us`` is the rest. ``wall_p50_us`` to ``wall_p99_us``: of
    one call. A recording that samples launches takes no times of ranges: ``calls`` is 0, the rest
    None.
    """

    op: str | None = None
    calls: int = 0
    wall_us: float | None = None
    exclusive_us: float | None = None
    driver_us: float | None = None
    unsplit_us: float | None = None
    python_us: float | None = None
    wall_p50_us: float | None = None
    wall_p90_us: float | None = None
    wall_p99_us: float | None = None


@dataclass(frozen=True)
class GroupRow(_Figures):
    """All launches of one ``group``: an op of ``annotate``, a layer, or a step.

    The fields are those of ``LaunchRow``. Launches outside any are in the group None.
    ``driver_us``: time in the driver's calls, of launches where that is known (None: of none).
    ``wall_us``: of a step, how long its range was open.
    """

    group: str | int | None = None
    driver_us: float | None = None
    wall_us: float | None = None


@dataclass(frozen=True)
class ProcessRow:
    """What one process has launched; ``rank`` as its launcher said, None where it said none."""

    pid: int
    rank: int | None
    launches: int
    failed: int
    total_us: float


@dataclass(frozen=True)
class ThreadRow:
    """What one thread has launched."""

    thread: str
    launches: int
    failed: int
    total_us: float


def figures(series: Series) -> dict[str, Any]:
    """Return the fields of a row that are made of its launches' times."""
    ordered = sorted(series.total.samples)
    return {
        "launches": series.launches,
        "failed": series.failed,
        "dropped": series.dropped,
        "total_us": max(0.0, series.total.ns) / 1000,
        "median_us": _quantile_us(ordered, 0.5),
        "p10_us": _quantile_us(ordered, 0.1),
        "p90_us": _quantile_us(ordered, 0.9),
        "p99_us": _quantile_us(ordered, 0.99),
    }


def range_figures(total: RangeTotal, launch_added_ns: float) -> dict[str, Any]:
    """Return the fields of a ``RangeRow`` but for its names.

    ``launch_added_ns``: what recording adds to each launch, which no visit's time has taken off.
    """
    visits, series = total.visits, total.series
    made = figures(series)
    if not visits.count:
        return made
    added_ns = series.launches * launch_added_ns
    wall_ns = max(0.0, visits.ns - added_ns)
    driver_ns, unsplit_ns = driver_split(series)
    ordered, each_ns = sorted(visits.length_ns), added_ns / visits.count
    return made | {
        "calls": visits.count,
        "wall_us": wall_ns / 1000,
        "exclusive_us": _us(visits.ns - visits.within_ns - total.direct * launch_added_ns),
        "driver_us": driver_ns / 1000,
        "unsplit_us": unsplit_ns / 1000,
        "python_us": _us(wall_ns - driver_ns - unsplit_ns),
        "wall_p50_us": _quantile_us(ordered, 0.5, each_ns),
        "wall_p90_us": _quantile_us(ordered, 0.9, each_ns),
        "wall_p99_us": _quantile_us(ordered, 0.99, each_ns),
    }


def driver_split(series: Series) -> tuple[float, float]:
    """Return the ns in the driver's calls, and those of launches of which only the whole is known."""
    driver = series.phases.get("driver", Times())
    if driver.launches >= series.launches:
        return max(0.0, driver.ns), 0.0
    known_ns = sum(times.ns for times in series.phases.values())
    return max(0.0, driver.ns), max(0.0, series.total.ns - known_ns)


def _us(ns: float) -> float:
    return max(0.0, ns) / 1000


def phased(series: Series, names: Sequence[str]) -> dict[str, Any]:
    """Return ``figures`` and the phases of these names, None for those that nothing is known of."""
    found = series.phases
    phases = {name: _phase(found[name]) if name in found else None for name in names}
    return {**figures(series), "phases": phases}


def _phase(times: Times) -> PhaseFigures:
    median_us = _quantile_us(sorted(times.samples), 0.5)
    return PhaseFigures(times.launches, max(0.0, times.ns) / 1000, median_us)


def _quantile_us(ordered: Sequence[int], fraction: float, less_ns: float = 0) -> float | None:
    return max(0.0, percentile(ordered, fraction) - less_ns) / 1000 if ordered else None


def order(row: LaunchRow | OpRow | RangeRow) -> tuple[float, tuple[str, ...], bool, int]:
    """Return what rows are sorted by: most time first, then the range."""
    return -row.total_us, row.path, row.layer is not None, row.layer or 0


def row_dict(row: LaunchRow | OpRow | RangeRow) -> dict[str, Any]:
    """Return a row as JSON types."""
    made = {**dataclasses.asdict(row), "path": list(row.path)}
    if not isinstance(row, RangeRow):
        made |= {"driver_us": row.driver_us, "python_us": row.python_us}
    return made
