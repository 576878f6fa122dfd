"""The manifest: kinds of launches, with all that compiling and tuning them needs. Knows no torch.

A JSON file. It never holds the values of tensors. Read whole or not at all; what names code (a
module, a kernel in it) is imported only by whoever warms or tunes, never by reading.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from launchkit import jsonio
from launchkit.errors import BadDocumentError, MissingManifestError, UsageError
from launchkit.validating import check_schema, validated

SCHEMA = 1
LIMIT_BYTES = 32 * 2**20
"""No larger manifest is read or written."""
MAX_ENTRIES = 4096
"""Entries that a manifest holds unless ``record_manifest`` is told otherwise."""
ENTRY_LIMIT_BYTES = 2**16
"""A kind of launch whose description is larger is listed as one that cannot be replayed."""
_MAX_DEPTH = 24  # of a whole file: what describing.py may nest, and five levels around it

_STRICT = ConfigDict(strict=True, extra="forbid")
_Dim = Annotated[int, Field(ge=0, lt=2**63)]
_Dims = Annotated[list[_Dim], Field(max_length=64)]
_Hex16 = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Dotted = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$", max_length=1000)]
# A module's file need not be called as Python writes names: my-kernels, 2d.
_Module = Annotated[str, Field(pattern=r"^[\w\-]+(\.[\w\-]+)*$", max_length=1000)]
_Grid = Annotated[list[_Dim], Field(min_length=1, max_length=3)]


@with_config(_STRICT)
class TensorArgument(TypedDict):
    """A tensor: ``alignment`` is the largest power of two, up to 256, that divides its address."""

    kind: Literal["tensor"]
    dtype: str
    shape: _Dims
    strides: _Dims
    alignment: Literal[1, 2, 4, 8, 16, 32, 64, 128, 256]
    device: Literal["gpu", "cpu"]


@with_config(_STRICT)
class ValueArgument(TypedDict):
    """A number, text, dtype, enum member or None, as ``launchkit.keys`` spells it."""

    kind: Literal["value"]
    type: str
    value: str


@with_config(_STRICT)
class FunctionArgument(TypedDict):
    """A ``@triton.jit`` function that is passed to a kernel, by where it can be imported."""

    kind: Literal["function"]
    module: _Module
    qualname: _Dotted


@with_config(_STRICT)
class DescriptorArgument(TypedDict):
    """A tensor descriptor made on the host."""

    kind: Literal["descriptor"]
    base: TensorArgument
    shape: _Dims
    strides: _Dims
    block_shape: _Dims
    padding: str | None


@with_config(_STRICT)
class TupleArgument(TypedDict):
    """A plain tuple of arguments."""

    kind: Literal["tuple"]
    items: list[Argument]


Argument: TypeAlias = Annotated[
    "TensorArgument | ValueArgument | FunctionArgument | DescriptorArgument | TupleArgument",
    Field(discriminator="kind"),
]
"""One argument of a launch, without the values of tensors."""


@with_config(_STRICT)
class KernelPlace(TypedDict):
    """Where a kernel is imported from, and which it was.

    ``layer`` counts the decorators around what was launched; ``digest`` is its KernelId's, None
    for a kernel that has no stable identity; ``name`` is for people.
    """

    module: _Module
    qualname: _Dotted
    layer: Annotated[int, Field(ge=0, lt=64)]
    name: Annotated[str, Field(min_length=1, max_length=1000)]
    digest: _Hex64 | None


@with_config(_STRICT)
class GridRecord(TypedDict):
    """``dims``: of the recorded launch, None if unknown. ``by_config``: what a grid function
    answered for each config, by the digest of the config's values of ``names``."""

    dims: _Grid | None
    names: list[str]
    by_config: dict[_Hex16, _Grid]


@with_config(_STRICT)
class Entry(TypedDict):
    """One kind of launch; two of one ``kind`` compile and tune alike."""

    kind: _Hex16
    kernel: KernelPlace
    args: list[Argument]
    kwargs: dict[str, Argument]
    grid: GridRecord


@with_config(_STRICT)
class Unreplayable(TypedDict):
    """A kind of launch that nothing can compile ahead of time, and why."""

    kernel: Annotated[str, Field(min_length=1, max_length=1000)]
    reason: Annotated[str, Field(min_length=1, max_length=2000)]


@with_config(_STRICT)
class _Document(TypedDict):
    schema: int
    document: Literal["launchkit manifest"]
    entries: list[Entry]
    unreplayable: list[Unreplayable]
    dropped: Annotated[int, Field(ge=0, lt=2**63)]


_ADAPTER = TypeAdapter(_Document)


@dataclass(frozen=True)
class Manifest:
    """What was recorded: entries, what cannot be replayed, and how many did not fit."""

    entries: tuple[Entry, ...] = ()
    unreplayable: tuple[Unreplayable, ...] = ()
    dropped: int = 0

    def merged(self, later: Manifest, limit: int) -> Manifest:
        """Return both, each kind once, at most ``limit`` of each list; the rest is counted.

        Entries of a kernel whose digest has changed since give way to the later ones.
        """
        changed = {_place(entry): entry["kernel"]["digest"] for entry in later.entries}
        kept = {
            _identity(entry): entry
            for entry in self.entries
            if changed.get(_place(entry), entry["kernel"]["digest"]) == entry["kernel"]["digest"]
        }
        for entry in later.entries:
            kept.setdefault(_identity(entry), entry)
        listed = {
            (each["kernel"], each["reason"]): each
            for each in (*self.unreplayable, *later.unreplayable)
        }
        entries, unreplayable = tuple(kept.values()), tuple(listed.values())
        beyond = max(len(entries) - limit, 0) + max(len(unreplayable) - limit, 0)
        dropped = self.dropped + later.dropped + beyond
        return Manifest(entries[:limit], unreplayable[:limit], dropped)


def parse(data: bytes, *, source: str) -> Manifest:
    """Return the manifest in ``data``; ``source`` names it in errors.

    Raises BadDocumentError for anything that is not a whole, valid manifest of this schema,
    with ``newer`` set where a later schema is the only reason.
    """
    raw = jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES)
    what = "a launchkit manifest"
    if not isinstance(raw, dict) or "document" not in raw:
        raise BadDocumentError(source, f"it is not {what}")
    check_schema(raw, source=source, field="schema", newest=SCHEMA, what=what)
    jsonio.refuse_depth(raw, source=source, depth=_MAX_DEPTH)
    document = validated(_ADAPTER, raw, source=source)
    return Manifest(
        tuple(document["entries"]), tuple(document["unreplayable"]), document["dropped"]
    )


def dump(manifest: Manifest) -> bytes:
    """Return the manifest as JSON for people and diffs."""
    return jsonio.dumps(
        {
            "schema": SCHEMA,
            "document": "launchkit manifest",
            "entries": list(manifest.entries),
            "unreplayable": list(manifest.unreplayable),
            "dropped": manifest.dropped,
        }
    )


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """Return the manifest in a file.

    Raises MissingManifestError where there is none, BadDocumentError for a file that is not a valid
    manifest, OSError where the system refuses to read it.
    """
    try:
        data = jsonio.read_limited(path, LIMIT_BYTES)
    except FileNotFoundError as error:
        raise MissingManifestError(str(Path(path))) from error
    return parse(data, source=str(Path(path)))


def why_refused(entry: Entry) -> str | None:
    """Return why no manifest may hold an entry; None: it may.

    The reader itself is asked, as one entry that it refuses would make it refuse the whole file.
    """
    try:
        data = dump(Manifest((entry,)))
        if len(jsonio.dumps_compact(entry)) > ENTRY_LIMIT_BYTES:
            return "its description is too large for a manifest"
        parse(data, source="it")
    except BadDocumentError as error:
        return error.reason
    except UsageError as error:
        return str(error)
    return None


def entry_text(entry: Entry) -> str:
    """Return an entry for people: the arguments by position or name, in a line."""
    given = [argument_text(each) for each in entry["args"]]
    given += [f"{name}={argument_text(each)}" for name, each in entry["kwargs"].items()]
    return f"{entry['kernel']['name']}({', '.join(given)})"


def argument_text(argument: Argument) -> str:
    """Return an argument for people: ``float16[4, 64]``, ``128``, ``(1, 2)``."""
    kind: str = argument["kind"]
    raw: Mapping[str, Any] = argument
    if kind == "tensor":
        skewed = "" if raw["alignment"] >= 16 else f" at {raw['alignment']} bytes"
        return f"{raw['dtype'].removeprefix('torch.')}{raw['shape']}{skewed}"
    if kind == "tuple":
        return f"({', '.join(argument_text(each) for each in raw['items'])})"
    if kind == "descriptor":
        return f"descriptor of {argument_text(raw['base'])} by {raw['block_shape']}"
    return str(raw["value"] if kind == "value" else raw["qualname"])


def _place(entry: Entry) -> tuple[str, str, int]:
    kernel = entry["kernel"]
    return kernel["module"], kernel["qualname"], kernel["layer"]


def _identity(entry: Entry) -> tuple[Any, ...]:
    return (*_place(entry), entry["kernel"]["digest"], entry["kind"])
