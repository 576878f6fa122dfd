"""PyTorch Inductor's ``.best_config``: the winner of one generated kernel, in one object. Pure.

The tunables lie beside ``num_warps``, ``num_stages`` and Inductor's own fields, all in one object.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from launchkit.configs import TunedRecord
from launchkit.store.foreign.base import (
    Findings,
    ForeignContext,
    Format,
    RefusedError,
    attempt,
    option_for,
)
from launchkit.store.foreign.files import files_at, load
from launchkit.store.foreign.values import (
    FIELDS,
    TRITONS_OWN,
    dtypes_by_name,
    flat_config,
    key_value,
    launch_key,
    record,
    toolchain,
    untimed,
)

NAME = "inductor"
_OWN = (
    "configs_hash",
    "found_by_coordesc",
    "time_taken_ms",
    "triton_cache_hash",
    "extra_options",
    "num_consumer_groups",
    "num_buffers_warp_spec",
)


def read(path: Path, context: ForeignContext) -> Findings:
    """Yield a record per file: of a tree, one whose files agree."""
    for file in files_at(path, ".best_config"):
        yield attempt(str(file), partial(_record, file, context))


def _record(file: Path, context: ForeignContext) -> TunedRecord:
    content = load(file)
    hidden = sorted({*_OWN, *FIELDS} & set(context.parameters or ()))
    if hidden:
        raise RefusedError(f"the kernel's {', '.join(hidden)} has a name that the file uses itself")
    if "configs_hash" not in content:
        raise RefusedError("it has no configs_hash, and is no such file")
    if content.get("extra_options") or _warp_specialized(content):
        raise RefusedError("its config has options beyond those of a Triton config")
    values = {**TRITONS_OWN, **context.config_values, **content}
    own = {name: value for name, value in values.items() if name not in _OWN}
    strange = sorted(own.keys() - {*FIELDS, *(context.parameters or ())})
    if strange:
        raise RefusedError(f"{', '.join(strange)} in it is no parameter of the kernel")
    config = flat_config(own)
    keys = [key_value(name, _key_part(name, context)) for name in context.keys or ()]
    return record(
        context,
        triton=toolchain(context, None),
        key=launch_key(keys, dtypes_by_name(context, context.dtypes or {})),
        configs=[untimed(config, NAME)],
        chosen=config,
    )


def _warp_specialized(content: Mapping[str, object]) -> bool:
    return any(content.get(name) for name in ("num_consumer_groups", "num_buffers_warp_spec"))


def _key_part(name: str, context: ForeignContext) -> object:
    if name not in context.key_values:
        raise RefusedError(f"it does not say {name}: give {option_for('key_values', name)}")
    return context.key_values[name]


FORMAT = Format(
    name=NAME,
    files="<hash>.best_config below TORCHINDUCTOR_CACHE_DIR",
    needs=("kernel", "device", "toolchain", "parameters", "dtypes", "keys"),
    gaps=(
        "every time but how long all tuning took: an imported winner is never compared",
        "which kernel was tuned: the name is a hash of the generated source",
        "the whole key, every dtype, the device and Triton's version",
        "num_ctas, which was Triton's own 1; maxnreg",
        "tunables of the names that it uses itself: it would have overwritten them",
        "whether the winner is one of the kernel's configs: coordinate descent makes others",
    ),
    read=read,
)
