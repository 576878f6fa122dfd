"""Manifests for ``launchkit bench fuzz``: changed ones, and the rules for what is read of one.

Reading one must import nothing and make nothing: the worker's watch sees that.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from launchkit.benchmarks.fuzz.mutations import some_json
from launchkit.dispatch.manifest.document import Manifest, dump, entry_text, parse, read_manifest
from launchkit.errors import BadDocumentError

_KINDS = {
    "tensor": {"kind", "dtype", "shape", "strides", "alignment", "device"},
    "value": {"kind", "type", "value"},
    "function": {"kind", "module", "qualname"},
    "descriptor": {"kind", "base", "shape", "strides", "block_shape", "padding"},
    "tuple": {"kind", "items"},
}
_SIZES = ("shape", "strides", "block_shape")
_DEEPEST = 12


@functools.cache
def manifest() -> Any:
    """Return a small manifest with an argument of every kind."""
    tensor = {"kind": "tensor", "dtype": "torch.float16", "shape": [3, 5], "strides": [5, 1],
              "alignment": 16, "device": "gpu"}  # fmt: skip
    value = {"kind": "value", "type": "int", "value": "1024"}
    function = {"kind": "function", "module": "model.layers", "qualname": "gelu"}
    tiles = {"kind": "descriptor", "base": tensor, "shape": [3, 5], "strides": [5, 1],
             "block_shape": [1, 8], "padding": None}  # fmt: skip
    entry = {
        "kind": "0123456789abcdef",
        "kernel": {"module": "model.layers", "qualname": "scale_rows", "layer": 1,
                   "name": "model.layers.scale_rows", "digest": "ab" * 32},
        "args": [tensor, value, {"kind": "tuple", "items": [tensor, value]}],
        "kwargs": {"tiles": tiles, "activation": function},
        "grid": {"dims": None, "names": ["BLOCK"], "by_config": {"0" * 16: [1, 2, 3]}},
    }  # fmt: skip
    plain = {**entry, "kind": "f" * 16, "grid": {"dims": [7], "names": [], "by_config": {}}}
    return {
        "schema": 1, "document": "launchkit manifest", "entries": [entry, plain],
        "unreplayable": [{"kernel": "k", "reason": "made inside a function"}], "dropped": 2,
    }  # fmt: skip


def make(rng: Random) -> dict[str, bytes]:
    """Return a changed manifest's file."""
    return {"manifest.json": some_json(rng, manifest())}


def take(folder: Path) -> tuple[Sequence[Manifest], Sequence[str]]:
    """Read a manifest as ``warm`` and ``tune`` do."""
    try:
        return [read_manifest(folder / "manifest.json")], ()
    except BadDocumentError as error:
        return (), (error.reason,)


def check(found: Sequence[Manifest]) -> None:
    """Raise AssertionError for what no manifest may hold: rules written apart from the reader.

    It is the same when it is written and read again, and when it is merged with itself, and every
    entry can be told to people.
    """
    for each in found:
        assert parse(dump(each), source="again") == each, "it is another when read"
        kinds = {(*entry["kernel"].values(), entry["kind"]) for entry in each.entries}
        merged = each.merged(each, limit=10_000)
        assert len(merged.entries) <= len(kinds), "a kind stands twice after merging"
        assert type(each.dropped) is int
        assert each.dropped >= 0
        for entry in each.entries:
            _check_entry(entry)
            assert entry_text(entry)
        assert all(listed["kernel"] and listed["reason"] for listed in each.unreplayable)


def _check_entry(entry: Any) -> None:
    assert entry.keys() == {"kind", "kernel", "args", "kwargs", "grid"}, "fields"
    assert re.fullmatch(r"[0-9a-f]{16}", entry["kind"]), "a kind"
    kernel = entry["kernel"]
    _check_place(kernel["module"], kernel["qualname"])
    assert kernel["name"]
    assert type(kernel["layer"]) is int
    assert 0 <= kernel["layer"] < 64
    assert kernel["digest"] is None or re.fullmatch(r"[0-9a-f]{64}", kernel["digest"]), "a digest"
    for argument in (*entry["args"], *entry["kwargs"].values()):
        _check_argument(argument, 0)
    grid = entry["grid"]
    grids = [*grid["by_config"].values()] + ([] if grid["dims"] is None else [grid["dims"]])
    for dims in grids:
        assert 1 <= len(dims) <= 3, "a grid"
        _check_sizes(dims)


def _check_place(module: str, qualname: str) -> None:
    """What is imported is a module's name, and no path; what is taken from it are names."""
    assert all(part and not set(part) & set("/\\:;\0 ") for part in module.split(".")), module
    assert all(part.replace("_", "a").isalnum() for part in qualname.split(".")), qualname


def _check_argument(argument: Any, depth: int) -> None:
    assert depth < _DEEPEST, "nested beyond what is written"
    assert argument.keys() == _KINDS[argument["kind"]], "fields of an argument"
    for name in _SIZES:
        _check_sizes(argument.get(name, ()))
    if argument["kind"] == "tensor":
        assert argument["alignment"] in [2**power for power in range(9)], "an alignment"
        assert argument["device"] in ("gpu", "cpu"), "a device"
    if argument["kind"] == "function":
        _check_place(argument["module"], argument["qualname"])
    inner = [argument["base"]] if argument["kind"] == "descriptor" else argument.get("items", ())
    for each in inner:
        _check_argument(each, depth + 1)


def _check_sizes(sizes: Sequence[Any]) -> None:
    assert all(type(size) is int and 0 <= size < 2**63 for size in sizes), "sizes"
