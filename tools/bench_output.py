"""What the bench commands share: refusals before measuring, and where results go."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from launchkit import settings
from launchkit.errors import UsageError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Also write the JSON here.")]

_WIDTH = 80


def benchmark(module: str) -> Any:
    """Import and return a module of ``launchkit.benchmarks``.

    Late: torch takes seconds, and other commands do not need it. Raises UsageError where
    something that it needs is not installed.
    """
    try:
        return importlib.import_module(f"launchkit.benchmarks.{module}")
    except ModuleNotFoundError as error:
        if error.name == "einops":
            raise UsageError(
                "the benchmark compares with wrappers that use einops, which is not installed. "
                "Install launchkit-triton[torch,bench]."
            ) from error
        raise UsageError(
            f"the benchmark needs torch and Triton: {error}. Install launchkit-triton[torch]."
        ) from error


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


def check_output(output: Path | None) -> None:
    """Refuse before measuring what cannot be written after it."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise UsageError(f"{output} cannot be written. Give a file in a directory that exists.")


def write(output: Path, data: bytes) -> None:
    """Write a result to its file, or raise UsageError."""
    try:
        output.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"the JSON was not written: {error}. Give another file, or print it with --json."
        ) from error


def wide_console() -> Console:
    """Return a console of at least 80 columns.

    A narrower terminal wraps the lines, rich would cut the figures.
    """
    console = Console()
    console.width = max(console.width, _WIDTH)
    return console


def plain_table(title: str, padding: int = 1) -> Table:
    """Return a table without edges and double padding, so that much fits into 80 columns."""
    return Table(
        title=title,
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
        padding=(0, padding),
    )


def where(document: dict[str, Any]) -> str:
    """Return what a result was measured on, in a few words."""
    facts = document["machine"]
    place = facts["gpu"] or f"{document['mode']}, so without the CUDA driver's own cost"
    return f"{place}; Triton {facts['triton']}"
