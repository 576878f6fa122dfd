"""``launchkit warm``: compiles every launch of a manifest before a program serves. A command.

Exit codes: 0 nothing would compile or tune, 1 something would, 2 bad use.
"""

from __future__ import annotations

from typing import Annotated

import typer

import launchkit
from launchkit.printing import printable_lines
from launchkit.tools import manifests
from launchkit.tools.configs_output import StorePlace
from launchkit.tools.output import AsJson, echo_json

Workers = Annotated[
    int | None,
    typer.Option(help="Processes that compile; 0 for none. Default: up to 8, by the CPUs."),
]


def command(
    manifest: manifests.ManifestPath,
    workers: Workers = None,
    store: StorePlace = None,
    as_json: AsJson = False,
) -> None:
    """Compile every launch of a manifest into Triton's disk cache, with its stored config.

    Launches nothing and tunes nothing. A program that calls launchkit.warm() on the same manifest
    then finds everything compiled, and loads it before its first request. The modules that the
    manifest names are imported.
    """
    found = manifests.read(manifest)
    if store is not None:
        launchkit.use_store(store)
    with manifests.progress(len(found.entries), "warm") as done:
        report = launchkit.warm(found, workers=workers, progress=lambda entry: done(entry.kernel))
    if as_json:
        echo_json(report.as_dict())
    else:
        typer.echo(printable_lines(str(report)))
    raise typer.Exit(0 if report.ready else 1)
