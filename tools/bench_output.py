"""What the bench commands share: refusals before measuring, and where results go."""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from launchkit import jsonio, settings
from launchkit.errors import UsageError
from launchkit.tools import extras
from launchkit.tools.output_files import replace_file, write

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")]
Rounds = Annotated[int, typer.Option(help="How often each row is timed, at least 2.")]
Cases = Annotated[
    list[str] | None,
    typer.Option("--case", help="A row of the table; may be given several times. Default: all."),
]
Processes = Annotated[int | None, typer.Option(help="Processes at work. Default: one per core.")]

_WIDTH = 80


def benchmark(module: str) -> Any:
    """Import and return a module of ``launchkit.benchmarks``.

    Late: torch takes seconds, and other commands do not need it. Raises MissingExtraError where
    something that it needs is not installed.
    """
    try:
        return importlib.import_module(f"launchkit.benchmarks.{module}")
    except ModuleNotFoundError as error:
        told = extras.missing(error)
        if told is None:
            raise
        raise told from error


def check_settings() -> None:
    """Refuse to measure launchkit while it is told to be something else."""
    current = settings.current()
    if current.disable or current.verify:
        raise UsageError(
            "LAUNCHKIT_DISABLE or LAUNCHKIT_VERIFY is set, and the figures would be those of plain "
            "Triton or of the checks. Unset it to measure launchkit."
        )
    if current.install:
        raise UsageError(
            "LAUNCHKIT_INSTALL is set, and Triton's own launches would be launchkit's. Unset it to "
            "compare them."
        )


def check_at_least(option: str, value: int, least: int) -> None:
    """Refuse an option's value below ``least``, before anything slow is imported."""
    if value < least:
        raise UsageError(f"{option} must be at least {least}, not {value}. Give more.")


def check_above_zero(option: str, value: float) -> None:
    """Refuse an option's value that is not a number above 0, before anything slow is imported."""
    if not 0 < value < math.inf:
        raise UsageError(f"{option} must be a number above 0, not {value}. Give one.")


def process_count(asked: int | None) -> int:
    """Return how many processes are to work: ``asked``, or one per core that this one may use."""
    processes = len(os.sched_getaffinity(0)) if asked is None else asked
    check_at_least("--processes", processes, 1)
    return processes


def give(
    document: dict[str, Any],
    show: Callable[[dict[str, Any]], None],
    as_json: bool,
    output: Path | None,
) -> None:
    """Print a result as JSON or by ``show``, and write it to its file, if it has one.

    The file is written also where printing fails: what was measured is kept.
    """
    data = jsonio.dumps(document)
    try:
        if as_json:
            typer.echo(data, nl=False)
        else:
            show(document)
    finally:
        if output is not None:
            write(output, data)


def keeper(output: Path | None, what: str) -> Callable[[dict[str, Any]], None]:
    """Return what keeps a result so far: a run that is cut short leaves its finished ``what``."""
    if output is None or (output.exists() and not output.is_file()):
        return lambda _document: None
    failed = False

    def keep(document: dict[str, Any]) -> None:
        nonlocal failed
        if failed:
            return
        try:
            replace_file(output, jsonio.dumps(document))
        except OSError as error:
            failed = True
            logging.getLogger("launchkit").warning(
                "%s are not written as they finish, only the whole result at the end: %s",
                what,
                error,
            )

    return keep


def wide_console() -> Console:
    """Return a console of at least 80 columns.

    A narrower terminal wraps the lines, rich would cut the figures.
    """
    console = Console()
    console.width = max(console.width, _WIDTH)
    return console


def print_title(console: Console, title: str) -> None:
    """Print what a benchmark's figures are, above its tables."""
    console.print(title, style="italic", highlight=False, markup=False)


def plain_table(
    headings: Iterable[str], left: Collection[str] = (), title: str | None = None, padding: int = 1
) -> Table:
    """Return a table without edges and double padding, so that much fits into 80 columns.

    Columns are right-aligned but for those whose headings are in ``left``.
    """
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
        padding=(0, padding),
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right", no_wrap=True)
    return table


def where(document: dict[str, Any]) -> str:
    """Return what a result was measured on, in a few words."""
    facts = document["machine"]
    place = facts["gpu"] or f"{document['mode']}, so without the CUDA driver's own cost"
    return f"{place}; Triton {facts['triton']}"
