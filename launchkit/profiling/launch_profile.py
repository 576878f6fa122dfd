"""The result of ``profile_launches``: figures per range and kernel. A leaf.

Every time is host µs of one launch call, from before the call to its return, less the
recorder's own share in it.
"""

from __future__ import annotations

import dataclasses
import io
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from launchkit.profiling.percentiles import percentile
from launchkit.profiling.tally import Series, Tally

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class _Range:
    path: tuple[str, ...]
    layer: int | None


@dataclass(frozen=True)
class _KernelInRange(_Range):
    kernel: str


@dataclass(frozen=True)
class _Figures:
    launches: int
    failed: int
    dropped: int
    total_us: float
    median_us: float | None
    p10_us: float | None
    p90_us: float | None


# A dataclass takes the fields of its last base first.
@dataclass(frozen=True)
class LaunchRow(_Figures, _KernelInRange):
    """The launches of ``kernel`` made directly in the range ``path``.

    ``path`` holds the names of the open ranges, outermost first, empty outside any range;
    ``layer`` is that of the innermost range that has one. ``launches`` and ``total_us``
    count every launch that returned, ``failed`` those that raised (they have no time). The
    percentiles (linear interpolation) are of the first launches; ``dropped`` is how many
    later ones they leave out. They are None where no launch returned.
    """


@dataclass(frozen=True)
class RangeRow(_Figures, _Range):
    """All launches inside the range ``path``, those in ranges nested in it included.

    The fields are those of ``LaunchRow``, over all kernels.
    """


class LaunchProfile:
    """Host time per launch, by range and kernel; may be read while it is being recorded.

    ``overhead_us`` is the recorder's share in the time of a launch (an empty start and stop
    of the clock), measured before the recording; it is subtracted from every figure, none
    below 0. ``added_us`` is all that recording adds to a launch, most of it outside the
    figures: what the recorded program ran slower by. Not subtracted, as it depends on the
    call: handing on many positional arguments (about 0.5 µs for 46).
    """

    def __init__(self, tally: Tally, overhead_ns: float, added_ns: float) -> None:
        self._tally = tally
        self._overhead_ns = overhead_ns
        self.overhead_us = overhead_ns / 1000
        self.added_us = added_ns / 1000

    @property
    def host_only(self) -> bool:
        """Whether some launches ran in host-only mode, where no driver is called."""
        return self._tally.host_only_launches > 0

    @property
    def rows(self) -> tuple[LaunchRow, ...]:
        """One row per range path, layer and kernel; most time first. Each launch is in one."""
        series = self._tally.by_launch()
        rows = (LaunchRow(*key, **self._figures(found)) for key, found in series.items())
        return tuple(sorted(rows, key=lambda row: (*_order(row), row.kernel)))

    @property
    def ranges(self) -> tuple[RangeRow, ...]:
        """One row per range path and layer; most time first. A launch is in all around it."""
        series = self._tally.by_range()
        rows = (RangeRow(*key, **self._figures(found)) for key, found in series.items())
        return tuple(sorted(rows, key=_order))

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as JSON types, with a schema version; the rows as in the tables."""
        return {
            "schema": SCHEMA_VERSION,
            "mode": "host-only" if self.host_only else "cuda",
            "host_only_launches": self._tally.host_only_launches,
            "overhead_us": self.overhead_us,
            "added_us": self.added_us,
            "rows": [_row_dict(row) for row in self.rows],
            "ranges": [_row_dict(row) for row in self.ranges],
        }

    def table(self) -> Table:
        """Return ``rows`` as a rich table that says what was left out and what was subtracted."""
        rows = self.rows
        label = " (host-only: no driver was called)" if self.host_only else ""
        table = Table(title=f"Host µs per launch{label}", caption=self._caption(rows))
        table.add_column("range", overflow="fold")
        table.add_column("layer", justify="right", no_wrap=True)
        table.add_column("kernel", overflow="fold")
        for name in ("launches", "total", "median", "p10", "p90"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            cells = ("/".join(row.path) or "(no range)", _shown(row.layer), row.kernel)
            figures = (row.total_us, row.median_us, row.p10_us, row.p90_us)
            # Text, for a name may hold what rich would read as markup.
            table.add_row(*map(Text, (*cells, str(row.launches), *map(_shown_us, figures))))
        return table

    def __str__(self) -> str:
        """The table as text, for ``print(profile)``."""
        console = Console(file=io.StringIO(), width=100, color_system=None)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get().rstrip()

    def _caption(self, rows: tuple[LaunchRow, ...]) -> str:
        parts = [f"{self.overhead_us:.2f} µs of the recorder subtracted from each launch"]
        dropped = sum(row.dropped for row in rows)
        failed = sum(row.failed for row in rows)
        if failed:
            parts.append(f"{failed} launches failed and are not counted")
        if dropped:
            parts.append(f"{dropped} launches beyond the sample limit are not in the percentiles")
        if self.host_only:
            parts.append(f"{self._tally.host_only_launches} launches were host-only")
        return "; ".join(parts)

    def _figures(self, series: Series) -> dict[str, Any]:
        ordered = sorted(series.samples)
        total_ns = series.total_ns - series.launches * self._overhead_ns

        def quantile_us(fraction: float) -> float | None:
            if not ordered:
                return None
            return max(0.0, percentile(ordered, fraction) - self._overhead_ns) / 1000

        return {
            "launches": series.launches,
            "failed": series.failed,
            "dropped": series.dropped,
            "total_us": max(0.0, total_ns) / 1000,
            "median_us": quantile_us(0.5),
            "p10_us": quantile_us(0.1),
            "p90_us": quantile_us(0.9),
        }


def _order(row: LaunchRow | RangeRow) -> tuple[float, tuple[str, ...], bool, int]:
    return -row.total_us, row.path, row.layer is not None, row.layer or 0


def _row_dict(row: LaunchRow | RangeRow) -> dict[str, Any]:
    return {**dataclasses.asdict(row), "path": list(row.path)}


def _shown(value: int | None) -> str:
    return "" if value is None else str(value)


def _shown_us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
