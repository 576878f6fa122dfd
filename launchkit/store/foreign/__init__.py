"""Tuned configs of other programs: read into records, and written in their layouts. For the tools.

``read`` never runs code, never guesses a type, and takes an entry whole or leaves it out with a
reason. What is taken is a hint like every stored config: a launch uses it only if its key is
the live key and its config one of the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path

from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.store.foreign import (
    dejavu,
    fla,
    fla_writing,
    inductor,
    moe,
    moe_writing,
    triton_autotune,
)
from launchkit.store.foreign.base import (
    OPTIONS,
    ForeignContext,
    ForeignExport,
    ForeignImport,
    Format,
    Found,
    Skipped,
)

__all__ = [
    "FORMATS",
    "OPTIONS",
    "ForeignContext",
    "ForeignExport",
    "ForeignImport",
    "Format",
    "Skipped",
    "read",
    "write",
]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        triton_autotune.FORMAT,
        dejavu.FORMAT,
        replace(fla.FORMAT, write=fla_writing.write),
        replace(moe.VLLM, write=partial(moe_writing.write, "vllm")),
        replace(moe.SGLANG, write=partial(moe_writing.write, "sglang")),
        inductor.FORMAT,
    )
}
"""Every format by its name."""


def read(name: str, path: str | PathLike[str], context: ForeignContext) -> ForeignImport:
    """Return the records in a file, or in a tree of files, of another program.

    Two entries of one key that differ are both left out. Raises UsageError for an unknown
    format, a path that does not exist, and a context that lacks what the format does not say;
    never for what is in a file.
    """
    chosen = _format(name)
    context.require(chosen.needs, name)
    found: dict[object, Found] = {}
    disputed: dict[object, str] = {}
    skipped: list[Skipped] = []
    for each in chosen.read(Path(path), context):
        if isinstance(each, Skipped):
            skipped.append(each)
            continue
        first = found.setdefault(each.record.identity, each)
        if first.record != each.record:
            disputed[each.record.identity] = each.source
    for identity, source in disputed.items():
        first = found.pop(identity)
        reason = f"{source} has another result for the same key: give one of them alone"
        skipped.append(Skipped(first.source, reason))
    return ForeignImport(tuple(each.record for each in found.values()), tuple(skipped), chosen.gaps)


def write(
    name: str,
    records: Sequence[TunedRecord],
    place: str | PathLike[str],
    context: ForeignContext | None = None,
) -> ForeignExport:
    """Write records below the directory ``place`` as another program reads them.

    Raises UsageError for a format that is only read, or where a file is in the way; OSError.
    """
    chosen = _format(name)
    if chosen.write is None:
        can = ", ".join(each.name for each in FORMATS.values() if each.write is not None)
        raise UsageError(f"the format {name} is only read. Give one that is written: {can}.")
    return chosen.write(records, Path(place), context or ForeignContext())


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}. Give one of: {', '.join(FORMATS)}.")
    return FORMATS[name]
