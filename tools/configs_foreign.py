"""What ``configs import`` and ``export`` are told about files of other programs. Of the tools.

Such files lack much of a key; each option fills one gap. ``launchkit.store.foreign`` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit import jsonio
from launchkit.errors import LaunchkitError
from launchkit.keys import DeviceId, KernelId, Toolchain
from launchkit.store import ConfigStore
from launchkit.store.foreign import FORMATS, ForeignContext, ForeignImport, read
from launchkit.tools.configs_output import fail

FormatName = Annotated[
    str | None,
    typer.Option("--format", help=f"Files of another program: {', '.join(sorted(FORMATS))}."),
]
Digest = Annotated[
    str | None,
    typer.Option("--digest", help="With --format: the kernel's digest, or how it begins."),
]
Triton = Annotated[
    str | None, typer.Option("--triton", help="With --format: the Triton version that tuned.")
]
Parameters = Annotated[
    str | None, typer.Option("--parameters", help="With --format: the kernel's parameters: a,b,c.")
]
Tensors = Annotated[
    str | None,
    typer.Option("--tensors", help="With --format: the parameters with a dtype, as called: a,b."),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="With --format: NAME=DTYPE of a parameter; may be repeated."),
]
Keys = Annotated[
    str | None, typer.Option("--keys", help="With --format: the kernel's autotune key: m,n,k.")
]
KeyValues = Annotated[
    list[str] | None,
    typer.Option("--key-value", help="With --format: NAME=TYPE:VALUE of a key; may be repeated."),
]
KeyFields = Annotated[
    list[str] | None,
    typer.Option("--key-field", help="With --format: NAME=FIELD of a key; may be repeated."),
]
KeyTypes = Annotated[
    list[str] | None,
    typer.Option("--key-type", help="With --format: NAME=TYPE of a key; may be repeated."),
]
ConfigTypes = Annotated[
    list[str] | None,
    typer.Option("--config-type", help="With --format: NAME=TYPE of a tunable; may be repeated."),
]
ConfigValues = Annotated[
    list[str] | None,
    typer.Option(
        "--config-value",
        help="With --format: NAME=TYPE:VALUE that all configs have; may be repeated.",
    ),
]
Method = Annotated[
    str | None,
    typer.Option("--method", help="With --format: how that program measured: eager, graph+cold."),
]

_LITERALS = {"bool:True": True, "bool:False": False, "none": None}


@dataclass(frozen=True)
class Told:
    """The options as given; None and empty where nothing was."""

    kernel: str | None = None
    digest: str | None = None
    device: str | None = None
    triton: str | None = None
    parameters: str | None = None
    tensors: str | None = None
    dtypes: list[str] | None = None
    keys: str | None = None
    key_values: list[str] | None = None
    key_fields: list[str] | None = None
    key_types: list[str] | None = None
    config_types: list[str] | None = None
    config_values: list[str] | None = None
    method: str | None = None

    def refuse_without_format(self) -> None:
        """End with exit code 2 where an option is given that only another program's files need."""
        shared = ("kernel", "device")
        if any(getattr(self, each.name) for each in fields(self) if each.name not in shared):
            fail("such options are for files of other programs. Give --format too.")

    def context(self, store: ConfigStore) -> ForeignContext:
        """Return what was told; names of kernels and devices that ``store`` knows are completed."""
        return ForeignContext(
            kernel=None if self.kernel is None else _kernel(self.kernel, self.digest, store),
            device=None if self.device is None else _device(self.device, store),
            toolchain=None if self.triton is None else Toolchain(self.triton),
            parameters=_names(self.parameters),
            tensors=_names(self.tensors),
            dtypes=None if self.dtypes is None else _pairs(self.dtypes),
            keys=_names(self.keys),
            key_values=_typed(self.key_values),
            key_fields=_pairs(self.key_fields),
            key_types=_pairs(self.key_types),
            config_types=None if self.config_types is None else _pairs(self.config_types),
            config_values=_typed(self.config_values),
            method=self.method,
        )


def read_foreign(name: str, path: Path, told: Told, store: ConfigStore) -> ForeignImport:
    """Return what another program's file or tree holds; exit code 2 where it cannot be read."""
    try:
        return read(name, path, told.context(store))
    except (LaunchkitError, OSError) as error:
        fail(str(error))


def _kernel(name: str, digest: str | None, store: ConfigStore) -> KernelId:
    """Return the kernel of this name: by its whole digest, or the one that the store knows."""
    if digest is not None and re.fullmatch(r"[0-9a-f]{64}", digest):
        return KernelId(name, digest)
    known = {record.kernel for record in store.records_of(name)}
    found = [each for each in known if each.digest.startswith(digest or "")]
    if len(found) != 1:
        fail(
            f"the store knows {len(found)} kernels {name!r} of such a digest. Give --digest "
            "with all 64 digits (launchkit configs show --json has them where it was tuned)."
        )
    return found[0]


def _device(text: str, store: ConfigStore) -> DeviceId:
    """Return a device from its JSON object, or the one whose name has this part in the store."""
    if text.lstrip().startswith("{"):
        return _device_of(text)
    found = {record.device for record in store.records() if text in record.device.name}
    if len(found) != 1:
        fail(
            f"the store knows {len(found)} devices {text!r}. Give --device as the JSON "
            "object that launchkit configs show --json has for records of that device."
        )
    return found.pop()


def _device_of(text: str) -> DeviceId:
    kinds = {each.name: {"str": str, "int": int}[str(each.type)] for each in fields(DeviceId)}
    try:
        raw = jsonio.loads(text.encode("utf-8", "replace"), source="--device", limit_bytes=10_000)
        if not isinstance(raw, dict) or {n: type(v) for n, v in raw.items()} != kinds:
            fail(f"--device has not the fields {', '.join(kinds)}, as text and ints. Give them.")
        return DeviceId(**raw)
    except LaunchkitError as error:
        fail(str(error))


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(given: Iterable[str] | None) -> dict[str, str]:
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            fail(f"{text!r} is not NAME=VALUE. Write it so.")
        found[name] = value
    return found


def _typed(given: Iterable[str] | None) -> dict[str, Any]:
    return {name: typed_value(text) for name, text in _pairs(given).items()}


def typed_value(text: str) -> object:
    """Return the value of TYPE:VALUE, of the types int, float, bool, str and none; else exit 2."""
    kind, _, value = text.partition(":")
    if kind == "str":
        return value
    if text in _LITERALS:
        return _LITERALS[text]
    try:
        return {"int": int, "float": float}[kind](value)
    except (KeyError, ValueError):
        fail(f"{text!r} is no typed value: int:64, float:0.5, bool:True, str:x or none.")
