"""What ``launchkit warm`` and ``launchkit tune`` share: their manifest, their progress."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from launchkit.dispatch.manifest.document import Manifest, read_manifest

ManifestPath = Annotated[
    Path,
    typer.Argument(
        metavar="MANIFEST", help="What launchkit.record_manifest or LAUNCHKIT_MANIFEST recorded."
    ),
]


def read(path: Path) -> Manifest:
    """Read a manifest, and let the modules that it names be found in the current folder, too.

    Raises MissingManifestError, BadDocumentError and OSError.
    """
    if not getattr(sys.flags, "safe_path", False) and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    return read_manifest(path)


@contextlib.contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal's standard error; yield what is called with each kernel done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("{task.description}", markup=False))  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda kernel: bar.update(task, advance=1, description=kernel)
