"""``launchkit tune``: tunes what a manifest lists, before a program serves. A command.

Exit codes: 0 the store has a config for all of it, 1 not for all, 2 bad use.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from types import ModuleType
from typing import Annotated

import typer

from launchkit.dispatch.manifest.document import Manifest
from launchkit.errors import UsageError
from launchkit.printing import printable_lines
from launchkit.tools import manifests
from launchkit.tools.configs_output import StorePlace
from launchkit.tools.output import AsJson, echo_json

Gpus = Annotated[
    str | None,
    typer.Option(help="GPUs, as CUDA_VISIBLE_DEVICES names them: 0,1. Default: all visible ones."),
]
Make = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:FUNCTION",
        help="Called with a kernel's name and its disposable arguments by name: fills in index "
        "tensors, which hold zeros, and returns a dict of arguments to replace, or nothing.",
    ),
]
Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", help="Pattern over the names of kernels; may be repeated."),
]


def command(
    manifest: manifests.ManifestPath,
    store: StorePlace = None,
    gpus: Gpus = None,
    make: Make = None,
    kernel: Kernels = None,
    as_json: AsJson = False,
) -> None:
    """Tune every launch of a manifest on this machine's GPUs, and store the configs.

    Arguments are disposable: tensors of the recorded shape, strides, dtype and alignment, floats
    random, all else zeros. What indexes other tensors should be filled in by --make: with zeros
    alone a kernel may do less than in use. One process per GPU; what the store has is passed over,
    so a run that was ended goes on when it is started again.
    """
    if make is not None and ":" not in make:
        raise UsageError(f"--make {make} names no function. Give it as module:function.")
    found = _only(manifests.read(manifest), kernel)
    tuning = _tuning()
    names = None if gpus is None else [each.strip() for each in gpus.split(",")]
    with manifests.progress(len(found.entries), "tune") as done:
        report = tuning.tune_manifest(
            found, store=store, gpus=names, make=make, progress=lambda entry: done(entry.kernel)
        )
    if as_json:
        echo_json(report.as_dict())
    else:
        typer.echo(printable_lines(str(report)))
    raise typer.Exit(0 if report.complete else 1)


def _only(manifest: Manifest, patterns: list[str] | None) -> Manifest:
    """Return what a manifest has of kernels whose names fit; what it lists besides is left out."""
    if not patterns:
        return manifest
    entries = [entry for entry in manifest.entries
               if any(fnmatchcase(entry["kernel"]["name"], each) for each in patterns)]  # fmt: skip
    return Manifest(tuple(entries))


def _tuning() -> ModuleType:
    try:
        from launchkit.dispatch.manifest import offline_tuning
    except ModuleNotFoundError as error:
        raise UsageError(
            f"tuning needs torch and Triton: {error}. Install launchkit-triton[torch]."
        ) from error
    return offline_tuning
