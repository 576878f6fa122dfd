"""triton-dejavu's trees: the winner per key of one kernel and config list. Pure.

``…/dejavu_X/triton_Y/cuda_Z/gpu_NAME/<function>/…/cache.json`` with ``keys``, ``cache`` (printed
tuple of strings to printed config) and ``timings`` (milliseconds of the winner, by the same key).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from launchkit.configs import IMPORTED, ConfigIdentity, TunedConfig, TunedRecord
from launchkit.store.foreign.base import (
    OPTIONS,
    Findings,
    ForeignContext,
    Format,
    Opened,
    RefusedError,
    each_entry,
    option_for,
)
from launchkit.store.foreign.files import files_at, load, mapping
from launchkit.store.foreign.text import printed_values, strings_of, typed
from launchkit.store.foreign.values import (
    FIELDS,
    dtypes_in_order,
    flat_config,
    key_value,
    launch_key,
    measured,
    record,
    split_key,
    toolchain,
    untimed,
)

NAME = "dejavu"
_FIELD_TYPES = dict.fromkeys(FIELDS, "int") | {"maxnreg": "int|none", "ir_override": "none"}
_PLACES = {name: re.compile(rf"{name}_(.+)") for name in ("triton", "gpu", "cuda", "rocm")}


def read(path: Path, context: ForeignContext) -> Findings:
    """Yield a record per entry of the context's kernel."""
    return each_entry(files_at(path, "cache.json"), partial(_opened, context))


def _opened(context: ForeignContext, file: Path) -> Opened:
    place, content = _place(file, context), load(file)
    entries = mapping(content.get("cache"), "its cache")
    return Opened(entries, partial(_record, content, place, context))


def _place(file: Path, context: ForeignContext) -> Mapping[str, str]:
    """Return what the directories say, if that is of the context's kernel and device."""
    assert context.device is not None
    assert context.kernel is not None
    folders = _folders(file)
    said: dict[str, str] = {}
    for folder in folders:
        said.update((name, m[1]) for name, form in _PLACES.items() if (m := form.fullmatch(folder)))
    gpu = context.device.name.replace(" ", "_").replace("/", "_")
    if said.get("gpu", gpu) != gpu:
        raise RefusedError(f"it is of the GPU {said['gpu']}, not of {gpu}")
    other = "rocm" if context.device.backend == "cuda" else "cuda"
    if other in said:
        raise RefusedError(f"it is of {other}, not of {context.device.backend}")
    function = context.kernel.function
    if folders and not any(
        folder == function or folder.startswith(f"{function}-") for folder in folders
    ):
        raise RefusedError(f"it is of another function than {function}")
    return said


def _folders(file: Path) -> tuple[str, ...]:
    """Return the folders from that of dejavu's version on: what lies above them says nothing."""
    parts = file.absolute().parent.parts
    starts = [at for at, part in enumerate(parts) if re.match(r"dejavu_\d", part)]
    return parts[starts[-1] :] if starts else ()


def _record(
    content: Mapping[str, object],
    place: Mapping[str, str],
    context: ForeignContext,
    key: str,
    config: object,
) -> TunedRecord:
    names = _key_names(content, context)
    parts, dtypes = split_key(names, strings_of(key))
    typed_parts = [
        key_value(name, typed(name, _key_type(name, context), part))
        for name, part in zip(names, parts, strict=True)
    ]
    tuned = _tuned(content, key, _identity(config, context), context)
    return record(
        context,
        triton=toolchain(context, place.get("triton")),
        key=launch_key(typed_parts, dtypes_in_order(context, dtypes)),
        configs=[tuned],
        chosen=tuned.config,
    )


def _key_names(content: Mapping[str, object], context: ForeignContext) -> tuple[str, ...]:
    said = content.get("keys")
    if said is None and context.keys is not None:
        return context.keys
    if not isinstance(said, list) or not all(isinstance(name, str) for name in said):
        raise RefusedError(f"it has no list of key names: give {OPTIONS['keys']}")
    names = tuple(str(name) for name in said)
    if context.keys not in (None, names):
        raise RefusedError(f"its key arguments are {names}, not {context.keys}")
    return names


def _key_type(name: str, context: ForeignContext) -> str:
    if name not in context.key_types:
        raise RefusedError(f"it keeps {name} as text alone: give {option_for('key_types', name)}")
    return context.key_types[name]


def _identity(config: object, context: ForeignContext) -> ConfigIdentity:
    types = context.config_types or {}
    printed = printed_values(config if isinstance(config, str) else "")
    unknown = sorted(printed.keys() - types.keys() - set(FIELDS))
    if unknown:
        option = option_for("config_types", unknown[0])
        raise RefusedError(f"it keeps {', '.join(unknown)} as text alone: give {option}")
    missing = sorted(types.keys() - printed.keys())
    if missing:
        raise RefusedError(f"a config does not have {', '.join(missing)}")
    values = {n: typed(n, _FIELD_TYPES.get(n) or types[n], text) for n, text in printed.items()}
    return flat_config(values)


def _tuned(
    content: Mapping[str, object], key: str, config: ConfigIdentity, context: ForeignContext
) -> TunedConfig:
    timings = mapping(content.get("timings", {}), "its timings")
    times = timings.get(key)
    if isinstance(times, dict):  # older versions keep how they measured with each time
        times = times.get("values")
    if times is None:
        return untimed(config, NAME)
    times_ms = times if isinstance(times, list) else [times]
    # What stands behind the first is labelled a least and a greatest time, not p20 and p80.
    tuned = measured(config, times_ms, quantiles=False, method=_method(content, context))
    if not tuned.ok:
        raise RefusedError(f"its config failed: {tuned.error}")
    return tuned


def _method(content: Mapping[str, object], context: ForeignContext) -> str:
    if context.method is not None:
        return context.method
    how = content.get("timings_data")
    graphs = how.get("cuda_graphs") if isinstance(how, dict) else None
    known = {True: ":graph", False: ":eager"} if isinstance(graphs, bool) else {}
    return f"{IMPORTED}{NAME}{known.get(bool(graphs), '')}"


FORMAT = Format(
    name=NAME,
    files="cache.json below TRITON_DEJAVU_STORAGE",
    needs=("kernel", "device", "parameters", "tensors", "key_types", "config_types"),
    gaps=(
        "which code of the kernel was tuned, beyond a hash of its own source without helpers",
        "every type: key values and tunables are printed, so that 1 and '1' are one",
        "values with ', ' or ': ' in them: their entries are refused",
        "the names of the arguments whose dtypes a key lists",
        "any config but the winner, and quantiles: it keeps a least and a greatest time",
        "hooks of the configs",
        "the device beyond its name",
    ),
    read=read,
)
