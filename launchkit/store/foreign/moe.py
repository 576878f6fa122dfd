"""vLLM's and SGLang's tuned fused-MoE configs: token counts to configs, without times. Pure.

One object per file: ``{"<M>": {"BLOCK_SIZE_M": …, "num_warps": …, …}, …}``, in vLLM's with
``triton_version`` beside, in SGLang's below a folder ``triton_<version with _>``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from launchkit.configs import ConfigIdentity, TunedRecord
from launchkit.store.foreign.base import (
    Findings,
    ForeignContext,
    Format,
    Opened,
    RefusedError,
    each_entry,
    option_for,
)
from launchkit.store.foreign.files import files_at, load, mapping
from launchkit.store.foreign.moe_names import MoeName, served_names
from launchkit.store.foreign.values import (
    TRITONS_OWN,
    dtypes_by_name,
    flat_config,
    key_value,
    launch_key,
    record,
    toolchain,
    untimed,
)

COUNT = re.compile(r"0|[1-9][0-9]{0,11}", re.ASCII)
"""A number of tokens, experts or columns."""
FOLDER = re.compile(r"triton_(\d+)_(\d+)_(\d+)", re.ASCII)
"""Where SGLang keeps the files of one Triton version."""


def read(flavour: str, path: Path, context: ForeignContext) -> Findings:
    """Yield a record per token count of one file, or of a tree's files of one name."""
    opened = partial(_opened, flavour, context, single=not path.is_dir())
    return each_entry(files_at(path, ".json"), opened)


def _opened(flavour: str, context: ForeignContext, file: Path, *, single: bool) -> Opened:
    name, content = _name(file, context, single), load(file)
    triton = content.pop("triton_version", _folder_version(file))
    return Opened(content, partial(_record, flavour, name, triton, context))


def _name(file: Path, context: ForeignContext, single: bool) -> MoeName:
    assert context.device is not None
    name = MoeName.parse(file.name)
    known = served_names(context.device)
    if name.device not in known:
        raise RefusedError(f"it is of the GPU {name.device}, not of {' or '.join(known)}")
    if name.down and not single:
        raise RefusedError("it is of the second projection: give the file itself")
    return name


def _folder_version(file: Path) -> str | None:
    found = FOLDER.fullmatch(file.absolute().parent.name)
    return None if found is None else ".".join(found.groups())


def _record(
    flavour: str,
    name: MoeName,
    triton: object,
    context: ForeignContext,
    count: str,
    config: object,
) -> TunedRecord:
    if not COUNT.fullmatch(count):
        raise RefusedError(f"{count!r} is no number of tokens")
    facts = {**name.facts, "M": int(count)}
    identity = _identity(mapping(config, "its config"), context)
    key = launch_key(
        [key_value(each, _key_part(each, facts, context)) for each in context.keys or ()],
        dtypes_by_name(context, context.dtypes or {}),
    )
    return record(
        context,
        triton=toolchain(context, triton),
        key=key,
        configs=[untimed(identity, flavour)],
        chosen=identity,
    )


def _key_part(name: str, facts: Mapping[str, object], context: ForeignContext) -> object:
    if name in context.key_values:
        return context.key_values[name]
    field = context.key_fields.get(name, name)
    if field not in facts:
        raise RefusedError(
            f"it does not say {name}: give {option_for('key_values', name)}, or "
            f"{option_for('key_fields', name)} of {', '.join(sorted(facts))}"
        )
    return facts[field]


def _identity(config: Mapping[str, object], context: ForeignContext) -> ConfigIdentity:
    values = {**TRITONS_OWN, **context.config_values, **config}
    missing = [name for name in ("num_warps", "num_stages") if name not in values]
    if missing:
        option = option_for("config_values", missing[0])
        raise RefusedError(f"its config has no {' and no '.join(missing)}: give {option}")
    return flat_config(values)


_GAPS = (
    "every time: an imported winner is taken as it is, never compared",
    "which kernel, and which code of it, was tuned",
    "the dtypes of the arguments: a file is for a kind of quantization, or for fp16 and bf16 alike",
    "K, top_k and all of the key but M, E and N",
    "num_ctas, which was Triton's own 1; and num_warps and num_stages in some files",
    "the device beyond its name, which vLLM makes NVIDIA_H200 for all of that family",
)


def _format(name: str, where: str, *gaps: str) -> Format:
    return Format(
        name=name,
        files=f"E=…,N=…,device_name=….json, {where}",
        needs=("kernel", "device", "parameters", "dtypes", "keys"),
        gaps=(*_GAPS, *gaps),
        read=partial(read, name),
    )


VLLM = _format("vllm", "VLLM_TUNED_CONFIG_FOLDER", "Triton's version, in files without it")
SGLANG = _format("sglang", "configs/triton_X_Y_Z", "Triton's version, outside such a folder")
