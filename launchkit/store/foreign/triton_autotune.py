"""Triton's own ``<kernel>.autotune.json``: every config's times for one key. Pure.

An object of ``key``, a list of the key arguments' values and then of the arguments' dtypes in the
order of the call, and ``configs_timings``, pairs of a config's attributes and its times in ms.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from launchkit.configs import TunedConfig, TunedRecord
from launchkit.store.foreign.base import (
    Findings,
    ForeignContext,
    Format,
    RefusedError,
    attempt,
)
from launchkit.store.foreign.files import files_at, load, mapping, sequence
from launchkit.store.foreign.values import (
    dtypes_in_order,
    key_value,
    launch_key,
    measured,
    method_of,
    named_config,
    record,
    split_key,
    toolchain,
)

NAME = "triton"
_SUFFIX = ".autotune.json"


def read(path: Path, context: ForeignContext) -> Findings:
    """Yield a record per file of the context's kernel."""
    for file in files_at(path, _SUFFIX):
        yield attempt(str(file), partial(_record, file, context))


def _check_kernel(file: Path, context: ForeignContext) -> None:
    assert context.kernel is not None
    function = context.kernel.function
    # Triton cuts the function's name; what is left must still be the kernel's.
    if file.name.endswith(_SUFFIX) and file.name != f"{function[:150]}{_SUFFIX}":
        raise RefusedError(f"it is of another function than {function}")


def _record(file: Path, context: ForeignContext) -> TunedRecord:
    _check_kernel(file, context)
    content = load(file)
    names = context.keys or ()
    parts, given = split_key(names, sequence(content.get("key"), "its key"))
    dtypes = dtypes_in_order(context, given)
    values = [key_value(name, part) for name, part in zip(names, parts, strict=True)]
    method = method_of(context, NAME)
    timings = sequence(content.get("configs_timings"), "its list of timings")
    return record(
        context,
        triton=toolchain(context, None),
        key=launch_key(values, dtypes),
        configs=[_tuned(pair, method) for pair in timings],
    )


def _tuned(pair: object, method: str) -> TunedConfig:
    if not isinstance(pair, list) or len(pair) != 2:
        raise RefusedError("an entry of its timings is no pair of a config and its times")
    config = named_config(mapping(pair[0], "a config"))
    times_ms = pair[1] if isinstance(pair[1], list) else [pair[1]]
    return measured(config, times_ms, quantiles=True, method=method)


FORMAT = Format(
    name=NAME,
    files="<kernel>.autotune.json below TRITON_CACHE_DIR",
    needs=("kernel", "device", "toolchain", "parameters", "tensors", "keys"),
    gaps=(
        "which code of the kernel was tuned: the directory's hash cannot be turned back",
        "the device and Triton's version",
        "the names of the key's parts, and of the arguments whose dtypes it lists",
        "key arguments that the call left to their defaults: an entry without them is refused",
        "how configs were measured, and how often",
        "whether 1 was an int or an IntEnum, and an array a tuple or a named tuple",
        "kernels with a pre_hook: Triton does not store them",
    ),
    read=read,
)
