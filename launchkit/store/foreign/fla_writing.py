"""Records as flash-linear-attention's config files, which it reads back. Pure but for the files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.store.foreign.base import ForeignContext, ForeignExport, RefusedError, Skipped
from launchkit.store.foreign.files import write_new
from launchkit.store.foreign.fla import key_digest
from launchkit.store.foreign.plain import plain_value
from launchkit.store.foreign.values import FIELDS

_FUNCTION = re.compile(r"[A-Za-z_]\w{0,199}", re.ASCII)


def write(records: Sequence[TunedRecord], place: Path, context: ForeignContext) -> ForeignExport:
    """Write ``<GPU>/<function>.json`` for each kernel; FLA_CONFIG_DIR is then a ``<GPU>`` folder.

    ``context.tensors`` says in which order calls pass their tensors, if not in the signature's.
    """
    owners: dict[Path, object] = {}
    documents: dict[Path, dict[str, Any]] = {}
    skipped: list[Skipped] = []
    for each in records:
        try:
            path = _path(each, place, owners)
            digest, entry = _entry(each, context)
        except RefusedError as refusal:
            skipped.append(Skipped(f"{each.kernel.name} {each.key.text}", str(refusal)))
            continue
        document = documents.setdefault(path, _empty(each))
        document["autotune_entries"][digest] = entry
    dumped = {path: jsonio.dumps_in_order(document) for path, document in documents.items()}
    return ForeignExport(write_new(dumped), tuple(skipped))


def _path(made: TunedRecord, place: Path, owners: dict[Path, object]) -> Path:
    """Return the record's file; RefusedError where one of another kind has that file already."""
    path = place / _gpu(made.device.name) / f"{_function(made)}.json"
    owner = (made.kernel, made.device, made.toolchain)
    if owners.setdefault(path, owner) != owner:
        raise RefusedError(f"{path} already holds another kernel, device or Triton version")
    return path


def _empty(made: TunedRecord) -> dict[str, Any]:
    version = made.toolchain.triton
    return {"kernel_name": _function(made), "triton_version": version, "autotune_entries": {}}


def _entry(made: TunedRecord, context: ForeignContext) -> tuple[str, dict[str, object]]:
    dtypes = {name: dtype for name, dtype in made.key.dtypes if dtype is not None}
    order: Iterable[str] = dtypes if context.tensors is None else context.tensors
    if set(order) != set(dtypes):
        raise RefusedError("its arguments with a dtype are others than were given")
    values = [plain_value(value) for value in made.key.values]
    parts = [*values, *(dtypes[name] for name in order)]
    named = {value.name: plain_value(value) for value in made.chosen}
    missing = [name for name in FIELDS[:3] if name not in named]
    if missing:
        raise RefusedError(f"its config has no {', '.join(missing)}")
    kwargs = {name: value for name, value in named.items() if name not in FIELDS}
    if any(isinstance(value, list) for value in kwargs.values()):
        raise RefusedError("a tuple in its config would be read as a list, which Triton cannot use")
    fields = {name: named.get(name) for name in FIELDS}
    return key_digest(parts), {"autotune_key": parts, "config": {"kwargs": kwargs} | fields}


def _function(made: TunedRecord) -> str:
    function = made.kernel.function
    if not _FUNCTION.fullmatch(function):
        raise RefusedError(f"{function!r} is no function's name, and would be no file's")
    return function


def _gpu(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_") or "unknown_gpu"
