"""``launchkit configs explain``: why a launch finds no stored config. A command; public names only.

Exit codes: 0 a record differs in nothing that was asked, 1 every one differs or there is none, 2 bad use.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from launchkit.errors import LaunchkitError
from launchkit.keys import encode_value
from launchkit.store import ConfigStore, Explanation
from launchkit.store.explaining import explain_fields, value_text
from launchkit.tools.configs_output import StorePlace, fail, open_or_exit
from launchkit.tools.output import AsJson, echo_json

Kernel = Annotated[str, typer.Argument(help="The kernel's declared name, or a part of it.")]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="NAME=VALUE of a key argument, as Python writes it; repeatable."),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option("--dtype", help="NAME=DTYPE of an argument, such as x_ptr=float16; repeatable."),
]
Device = Annotated[str | None, typer.Option("--device", help="The GPU's name.")]
Arch = Annotated[str | None, typer.Option("--arch", help="Its architecture, such as sm_90.")]
Triton = Annotated[
    str | None, typer.Option("--triton", help="Triton's version; left out: the installed one.")
]
Digest = Annotated[
    str | None, typer.Option("--digest", help="The first 12 digits of the kernel's digest.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many of the nearest to show.")]


def explain(
    kernel: Kernel,
    key: Keys = None,
    dtype: Dtypes = None,
    device: Device = None,
    arch: Arch = None,
    triton: Triton = None,
    digest: Digest = None,
    limit: Limit = 3,
    store: StorePlace = None,
    as_json: AsJson = False,
) -> None:
    """Show the stored records that are nearest to a launch, and the fields in which they differ.

    What is not given is not compared.
    """
    fields = {
        "kernel.digest": None if digest is None else digest[:12],
        "device.name": device,
        "device.arch": arch,
        "toolchain.triton": triton or _installed_triton(),
    }
    given = {name: text for name, text in fields.items() if text is not None}
    given |= _key_fields(key or ()) | _dtype_fields(dtype or ())
    found = _explained(open_or_exit(store), kernel, given, limit)
    if as_json:
        echo_json(found.as_dict())
    else:
        typer.echo(found.text)
    raise typer.Exit(0 if found.found else 1)


def _explained(store: ConfigStore, kernel: str, fields: dict[str, str], limit: int) -> Explanation:
    found = explain_fields(store, kernel, fields, limit)
    parts = [name for name in found.similar if kernel in name]
    if found.records or len(parts) != 1:
        return found
    return explain_fields(store, parts[0], fields, limit)


def _installed_triton() -> str | None:
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return None


def _key_fields(given: Sequence[str]) -> dict[str, str]:
    fields = {}
    for name, text in map(_split, given):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = text  # plain text needs no quotes
        try:
            fields[f"key {name}"] = value_text(encode_value(name, value))
        except LaunchkitError as error:
            fail(str(error))
    return fields


def _dtype_fields(given: Sequence[str]) -> dict[str, str]:
    fields = {}
    for name, text in map(_split, given):
        plain_name = text in ("none", "None") or "." in text
        fields[f"dtype {name}"] = text.lower() if text == "None" else text
        if not plain_name:
            fields[f"dtype {name}"] = f"torch.{text}"
    return fields


def _split(given: str) -> tuple[str, str]:
    name, equals, text = given.partition("=")
    if not name or not equals:
        fail(f"{given!r} is no NAME=VALUE. Write, for example, n=64.")
    return name, text
