"""A profile's rows for the terminal, as rich renders them. Below launch_profile, whose table it is."""

from __future__ import annotations

import io
import shutil
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from launchkit.profiling.profile.rows import LaunchRow, OpRow
from launchkit.profiling.recording.series import PHASES

if TYPE_CHECKING:
    from launchkit.profiling.profile.launch_profile import LaunchProfile

_WIDTH = 100
"""Columns of the printed table where there is no terminal to ask."""
_LABELS = {
    "host-only": " (host-only: no driver was called)",
    "interpreter": " (interpreted in Python)",
}


def launch_table(profile: LaunchProfile, host_only_launches: int) -> Table:
    """Return what ``LaunchProfile.table`` does; some launches may have called no driver."""
    rows = profile.rows
    lines: tuple[LaunchRow | OpRow, ...] = (*rows, *profile.ops)
    table = Table(
        title=f"Host µs per launch{_LABELS.get(profile.mode, '')}", title_justify="left",
        caption=_caption(profile, rows, host_only_launches), caption_justify="left",
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0,
    )  # fmt: skip
    table.add_column("range", overflow="fold")
    table.add_column("layer", justify="right", no_wrap=True)
    table.add_column("kernel", overflow="fold")
    with_phases = any(any(line.phases.values()) for line in lines)
    for name in ("launches", "total", "median", "p10", "p90", *(PHASES if with_phases else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*_cells(line, with_phases))
    return table


def as_text(table: Table) -> str:
    """Return a table as plain text: as wide as the terminal, at least 80."""
    width = max(80, shutil.get_terminal_size((_WIDTH, 24)).columns)
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def _caption(profile: LaunchProfile, rows: tuple[LaunchRow, ...], host_only_launches: int) -> str:
    parts = [f"{profile.overhead_us:.2f} µs of the recorder subtracted from each launch"]
    dropped = sum(row.dropped for row in rows)
    failed = sum(row.failed for row in rows)
    if failed:
        parts.append(f"{failed} launches failed and are not counted")
    if dropped:
        parts.append(f"{dropped} launches beyond the sample limit are not in the percentiles")
    if profile.sample_every > 1:
        parts.append(f"a sample: one of {profile.sample_every} launches, on average")
    if profile.lost:
        parts.append(f"{profile.lost} launches could not be recorded")
    if host_only_launches:
        parts.append(f"{host_only_launches} launches were host-only")
    return "; ".join(parts)


def _cells(row: LaunchRow | OpRow, with_phases: bool) -> list[Text]:
    if isinstance(row, OpRow):
        what = f"{row.op}, replayed"
    else:
        what = row.kernel if row.op is None else f"{row.kernel} in {row.op}"
    cells = ["/".join(row.path) or "(no range)", _shown(row.layer), what, str(row.launches)]
    cells += map(_shown_us, (row.total_us, row.median_us, row.p10_us, row.p90_us))
    if with_phases:
        cells += [_shown_us(phase.median_us if phase else None) for phase in row.phases.values()]
    # Text, for a name may hold what rich would read as markup.
    return [Text(cell) for cell in cells]


def _shown(value: int | None) -> str:
    return "" if value is None else str(value)


def _shown_us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
