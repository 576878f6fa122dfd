"""Reports as one HTML file that needs no network: tables, plots and their library. Reads documents.

Names in a capture come from other programs. Jinja escapes them in the page, and no ``<`` stands in
the data of the scripts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launchkit import jsonio
from launchkit.errors import MissingExtraError
from launchkit.profiling.report.advice import help_lines
from launchkit.profiling.report.lines import (
    device_lines,
    headline,
    latency_line,
    recorder_line,
    row_lines,
)
from launchkit.profiling.report.plots import figures
from launchkit.profiling.report.views import (
    VIEWS,
    Column,
    Document,
    Row,
    View,
)

_TEMPLATE = "report.html.j2"
_MOST = 500
"""Rows of a table in the page; JSON has all."""


def html_report(documents: Sequence[Document]) -> str:
    """Return reports of captures as one HTML page, a section for each.

    Raises MissingExtraError without the extra ``profile``.
    """
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise MissingExtraError("profile", error.name or "plotly") from None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    sections = [_section(number, document) for number, document in enumerate(documents)]
    plots = {figure["id"]: figure for section in sections for figure in section["figures"]}
    return environment.get_template(_TEMPLATE).render(
        title=", ".join(document["source"]["path"] for document in documents),
        sections=sections,
        plots=_script_data(plots),
        plotly=get_plotlyjs(),
    )


def _section(number: int, document: Document) -> dict[str, Any]:
    made = [{**figure, "id": f"{figure['id']}-{number}"} for figure in figures(document)]
    told = (*device_lines(document), latency_line(document), recorder_line(document))
    lines = [line for line in told if line]
    return {
        "headline": headline(document),
        "lines": lines,
        "figures": made,
        "tables": [
            {**_table(view, rows), "helps": help_lines(document) if view.key == "ranges" else []}
            for view in VIEWS
            if (rows := view.rows(document))
        ],
        "warnings": document["warnings"],
        "rows": row_lines(document),
    }


def _table(view: View, rows: Sequence[Row]) -> dict[str, Any]:
    columns = [column for column in view.columns if any(column.value(row) for row in rows)]
    left_out = len(rows) - _MOST
    return {
        "title": view.title,
        "note": view.note + (f" {left_out} more rows are in the JSON." if left_out > 0 else ""),
        "columns": [{"title": each.title, "words": each.kind == "text"} for each in columns],
        "rows": [[_cell(column, row) for column in columns] for row in rows[:_MOST]],
    }


def _cell(column: Column, row: Row) -> dict[str, Any]:
    value = column.value(row)
    # What a click on the head sorts by.
    sort = "" if value is None or column.kind == "text" else f"{float(value):.17g}"
    style = ("words folds" if column.folds else "words") if column.kind == "text" else ""
    return {"text": column.text(row), "style": style, "sort": sort}


def _script_data(data: dict[str, Any]) -> str:
    text = jsonio.dumps_compact(data).decode()
    escaped = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
    for sign, spelled in {**escaped, "\u2028": "\\u2028", "\u2029": "\\u2029"}.items():
        text = text.replace(sign, spelled)
    return text
