"""What commands of several kinds share: ``--json``, plain text, and progress. Of the tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from launchkit import jsonio

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def echo_json(found: dict[str, Any]) -> None:
    """Print plain data as JSON. A path that is no UTF-8 has its odd bytes spelled out."""
    typer.echo(jsonio.dumps(_encodable(found)), nl=False)


def _encodable(found: Any) -> Any:
    if isinstance(found, str):
        return found.encode("utf-8", "backslashreplace").decode()
    if isinstance(found, dict):
        return {_encodable(name): _encodable(value) for name, value in found.items()}
    return [_encodable(each) for each in found] if isinstance(found, (list, tuple)) else found


def print_text(console: Console, text: str) -> None:
    """Print a sentence as it is, with nothing in it marked up."""
    console.print(text, highlight=False, markup=False)


def numbered(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 record``, ``2 records``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def counts() -> Progress:
    """Return progress bars on standard error, if it is a terminal, of how many are done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


@contextmanager
def counted(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show how many of ``total`` are done, None if it is not known; yield what says that more are.

    That is called with how many more, or with nothing for one.
    """
    with counts() as progress:
        task = progress.add_task(what, total=total)
        yield lambda done=1: progress.advance(task, done)
