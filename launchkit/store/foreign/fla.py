"""flash-linear-attention's config files: one per kernel and GPU, the winner per key. Pure.

``<GPU>/<function>.json`` with ``kernel_name``, ``triton_version`` and ``autotune_entries``: md5 of
the key as JSON, to ``autotune_key`` (as Triton's) and ``config`` (Triton's attributes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.errors import UsageError
from launchkit.store.foreign.base import (
    Findings,
    ForeignContext,
    Format,
    Opened,
    RefusedError,
    each_entry,
)
from launchkit.store.foreign.files import files_at, load, mapping, sequence
from launchkit.store.foreign.values import (
    dtypes_in_order,
    key_value,
    launch_key,
    named_config,
    record,
    split_key,
    toolchain,
    untimed,
)

NAME = "fla"
_FOR_ANY = "default_config"


def read(path: Path, context: ForeignContext) -> Findings:
    """Yield a record per entry of the context's kernel."""
    return each_entry(files_at(path, ".json"), partial(_opened, context))


def _opened(context: ForeignContext, file: Path) -> Opened:
    assert context.kernel is not None
    function = context.kernel.function
    content = load(file)
    named = content.get("kernel_name", file.stem)
    if named != function:
        raise RefusedError(f"it is of the function {named!r}, not of {function}")
    if "autotune_entries" not in content:
        raise RefusedError("it has no entries with a key, but a config for any key alone")
    entries = mapping(content["autotune_entries"], "its list of entries")
    if content.get(_FOR_ANY) is not None:
        entries = {_FOR_ANY: content[_FOR_ANY], **entries}
    return Opened(entries, partial(_record, content, context))


def _record(
    content: Mapping[str, object],
    context: ForeignContext,
    digest: str,
    entry: object,
) -> TunedRecord:
    if digest == _FOR_ANY:
        raise RefusedError("it is for any key, and a record is for one")
    fields = mapping(entry, "the entry")
    parts = sequence(fields.get("autotune_key"), "its key")
    if key_digest(parts) != digest:
        raise RefusedError("its md5 is not that of its key")
    names = context.keys or ()
    values, dtypes = split_key(names, parts)
    config = named_config(mapping(fields.get("config"), "its config"))
    return record(
        context,
        triton=toolchain(context, content.get("triton_version")),
        key=launch_key(map(key_value, names, values), dtypes_in_order(context, dtypes)),
        configs=[untimed(config, NAME)],
        chosen=config,
    )


def key_digest(parts: Sequence[object]) -> str:
    """Return the md5, as hex, by which these files are looked up."""
    try:
        spelled = jsonio.dumps_python_compact(parts)
    except UsageError as error:
        raise RefusedError(str(error)) from None
    return hashlib.md5(spelled, usedforsecurity=False).hexdigest()


FORMAT = Format(
    name=NAME,
    files="<GPU>/<function>.json, FLA_CONFIG_DIR",
    needs=("kernel", "device", "parameters", "tensors", "keys"),
    gaps=(
        "every time: an imported winner is taken as it is, never compared",
        "which code of the kernel was tuned, and of which module its function is",
        "the names of the key's parts, and of the arguments whose dtypes it lists",
        "the device: a folder's name, with all but letters and digits made alike",
        "a default_config is for any key, and is left out",
    ),
    read=read,
)
