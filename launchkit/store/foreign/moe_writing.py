"""Records as vLLM's or SGLang's fused-MoE files, which they read back. Pure but for the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.keys import KeyValue
from launchkit.store.foreign.base import (
    OPTIONS,
    ForeignContext,
    ForeignExport,
    RefusedError,
    Skipped,
    option_for,
)
from launchkit.store.foreign.files import write_new
from launchkit.store.foreign.moe import COUNT, FOLDER
from launchkit.store.foreign.moe_names import MoeName, checked, served_names
from launchkit.store.foreign.plain import plain_value
from launchkit.store.foreign.values import FIELDS

_BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M")
"""What both servers' code reads by name."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """One file: the configs by number of tokens."""

    triton: str
    configs: dict[int, dict[str, object]]


def write(
    flavour: str, records: Sequence[TunedRecord], place: Path, context: ForeignContext
) -> ForeignExport:
    """Write a file per (E, N, device, dtype, block shape) and, in SGLang's layout, Triton version.

    E, N and M come from the key arguments of those names, or by ``context.key_fields`` and
    ``key_values``; dtype, block_n and block_k likewise, where a file is to have them.
    """
    files: dict[Path, _Counts] = {}
    skipped: list[Skipped] = []
    for each in records:
        try:
            path, count = _placed(flavour, each, place, context)
            _add(files, path, count, each)
        except RefusedError as refusal:
            skipped.append(Skipped(f"{each.kernel.name} {each.key.text}", str(refusal)))
    dumped = {path: _dump(counts, flavour) for path, counts in files.items()}
    return ForeignExport(write_new(dumped), tuple(skipped))


def _add(files: dict[Path, _Counts], path: Path, count: int, made: TunedRecord) -> None:
    config, version = _config(made), made.toolchain.triton
    counts = files.get(path) or _Counts(version, {})
    if counts.triton != version:
        raise RefusedError(f"{path} is of Triton {counts.triton} already")
    if counts.configs.get(count, config) != config:
        raise RefusedError(f"{path} has another config for {count} tokens already")
    files[path] = counts
    counts.configs[count] = config


def _dump(counts: _Counts, flavour: str) -> bytes:
    # A server takes the first of two equally near counts: the order is part of the file.
    document: dict[str, Any] = {"triton_version": counts.triton} if flavour == "vllm" else {}
    document.update((str(count), counts.configs[count]) for count in sorted(counts.configs))
    return jsonio.dumps_in_order(document)


def _placed(
    flavour: str, made: TunedRecord, place: Path, context: ForeignContext
) -> tuple[Path, int]:
    facts = dict(_facts(made, context))
    experts, width, count = (_count(facts, field) for field in ("E", "N", "M"))
    block = None
    if facts.get("block_n") is not None or facts.get("block_k") is not None:
        block = (_count(facts, "block_n"), _count(facts, "block_k"))
    dtype = facts.get("dtype")
    if not isinstance(dtype, str | None):
        raise RefusedError(f"its dtype {dtype!r} is no text")
    device = served_names(made.device)[0 if flavour == "vllm" else -1]
    name = checked(MoeName(experts, width, device, dtype, block))
    folder = place if flavour == "vllm" else place / _folder(made.toolchain.triton)
    return folder / name.text(spaced=flavour == "sglang"), count


def _facts(made: TunedRecord, context: ForeignContext) -> Iterator[tuple[str, object]]:
    yield from context.key_values.items()
    for value in made.key.values:
        yield context.key_fields.get(value.name, value.name), plain_value(value)


def _count(facts: Mapping[str, object], field: str) -> int:
    value = facts.get(field)
    if type(value) is not int or not COUNT.fullmatch(str(value)):
        said = "does not have" if value is None else f"has {value!r} as"
        raise RefusedError(
            f"its key {said} {field}, which must be a count: give "
            f"{OPTIONS['key_fields'].replace('FIELD', field)} or "
            f"{option_for('key_values', field)}"
        )
    return value


def _folder(version: str) -> str:
    folder = f"triton_{version.replace('.', '_')}"
    if not FOLDER.fullmatch(folder):
        raise RefusedError(f"a folder of Triton {version} would not be found")
    return folder


def _config(made: TunedRecord) -> dict[str, object]:
    values = {value.name: _scalar(value) for value in made.chosen}
    if values.pop("num_ctas", 1) != 1:
        raise RefusedError("its config has num_ctas, for which such files have no place")
    missing = [name for name in (*_BLOCKS, "num_warps", "num_stages") if name not in values]
    if missing:
        raise RefusedError(f"its config has no {', '.join(missing)}, which the server needs")
    more = sorted(values.keys() - {*_BLOCKS, *FIELDS})
    last = [name for name in FIELDS if name in values]
    return {name: values[name] for name in (*_BLOCKS, *more, *last)}


def _scalar(value: KeyValue) -> object:
    plain = plain_value(value)
    if isinstance(plain, list):
        raise RefusedError(f"{value.name} is a tuple, which would be read as a list")
    return plain
