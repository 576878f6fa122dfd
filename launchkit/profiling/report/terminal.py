"""A report for the terminal, as rich renders it. Reads a document only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from launchkit.printing import printable
from launchkit.profiling.report.advice import caveat_lines, help_lines, reason_lines
from launchkit.profiling.report.lines import (
    device_lines,
    headline,
    latency_line,
    recorder_line,
    row_lines,
)
from launchkit.profiling.report.views import (
    VIEWS,
    Column,
    Document,
    View,
)


def renderables(
    document: Document, *, width: int = 80, limit: int = 20
) -> Iterator[RenderableType]:
    """Yield the parts of a report: a headline, tables of at most ``limit`` rows, warnings, rows read.

    Tables without rows are left out, and columns for which ``width`` has no room.
    """
    yield Text(headline(document), style="bold")
    for line in (*device_lines(document), latency_line(document), recorder_line(document)):
        if line:
            yield Text(line)
    for view in VIEWS:
        rows = view.rows(document)
        if rows:
            yield Text()
            yield _table(view, rows, width, limit)
            yield from _remarks(view, document)
    yield from _list("Warnings", document["warnings"])
    yield Text("\nRows", style="italic")
    yield from (Text(line) for line in row_lines(document))


def _table(view: View, rows: list[Any], width: int, limit: int) -> Table:
    columns = _columns(view, rows[:limit], width)
    table = Table(
        title=view.title, title_justify="left", caption=_note(view, rows, columns, limit),
        caption_justify="left",
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False,
        padding=(0, 2 if width >= 130 else 1, 0, 0),
    )  # fmt: skip
    for column in columns:
        table.add_column(
            column.title, justify="left" if column.kind == "text" else "right", overflow="fold",
            no_wrap=not column.folds, min_width=12 if column.folds else None,
        )  # fmt: skip
    for row in rows[:limit]:
        table.add_row(*(Text(printable(column.text(row))) for column in columns))
    return table


def _note(view: View, rows: list[Any], shown: list[Column], limit: int) -> str:
    """Return what stands below a table: what its figures are, and how to see those it leaves out."""
    note, more = view.note, len(rows) - limit
    if more > 0:
        note += f" {more} more row{'s' * (more > 1)}: --limit, or --json."
    rooms = [column.room for column in _telling(view, rows[:limit]) if column not in shown]
    return note + (f" More columns: COLUMNS={max(rooms)}." if rooms else "")


def _telling(view: View, rows: list[Any]) -> list[Column]:
    """Return the columns that have a figure in some row."""
    return [column for column in view.columns if any(column.value(row) for row in rows)]


def _columns(view: View, rows: list[Any], width: int) -> list[Column]:
    """Return the columns for which there is room.

    One without any figure, such as of a GPU in a capture without one, says nothing: its room is
    the others'.
    """
    telling = _telling(view, rows)
    empty = [column for column in view.columns if column not in telling and column.room <= width]
    left = sum(max(_FIGURE, len(column.title)) + 2 for column in empty)
    return [column for column in telling if column.room <= width + left]


_FIGURE = 7
"""Characters that a usual figure takes."""

_BELOW: dict[str, tuple[tuple[str, Callable[[Document], list[str]]], ...]] = {
    "ranges": (("Why", reason_lines), ("What helps", help_lines)),
    "what_if": (("What these leave out", caveat_lines),),
}
"""What is told below a table, by its key."""


def _remarks(view: View, document: Document) -> Iterator[Text]:
    for title, lines in _BELOW.get(view.key, ()):
        yield from _list(title, lines(document))


def _list(title: str, lines: list[str]) -> Iterator[Text]:
    if lines:
        yield Text(f"\n{title}", style="italic")
    yield from (Text(f"- {printable(line)}") for line in lines)
