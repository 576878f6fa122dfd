"""The rows of a ``LaunchProfile``, and how their figures come from a tally's series. A leaf."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchkit.profiling.percentiles import percentile
from launchkit.profiling.series import Series, Times


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


@dataclass(frozen=True)
class _PhasedFigures(_Figures):
    phases: Mapping[str, PhaseFigures | None]


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

    The fields are those of ``LaunchRow``, over all kernels. What replays of ops took besides
    their launches is in ``total_us`` and in no percentile.
    """


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
    }


def phased(series: Series, names: Sequence[str]) -> dict[str, Any]:
    """Return ``figures`` and the phases of these names, None for those that nothing is known of."""
    found = series.phases
    phases = {name: _phase(found[name]) if name in found else None for name in names}
    return {**figures(series), "phases": phases}


def _phase(times: Times) -> PhaseFigures:
    median_us = _quantile_us(sorted(times.samples), 0.5)
    return PhaseFigures(times.launches, max(0.0, times.ns) / 1000, median_us)


def _quantile_us(ordered: Sequence[int], fraction: float) -> float | None:
    return max(0.0, percentile(ordered, fraction)) / 1000 if ordered else None


def order(row: LaunchRow | OpRow | RangeRow) -> tuple[float, tuple[str, ...], bool, int]:
    """Return what rows are sorted by: most time first, then the range."""
    return -row.total_us, row.path, row.layer is not None, row.layer or 0


def row_dict(row: LaunchRow | OpRow | RangeRow) -> dict[str, Any]:
    """Return a row as JSON types."""
    return {**dataclasses.asdict(row), "path": list(row.path)}
