"""``launchkit configs export`` and ``import``: records as one file, and from files. Of the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from launchkit.configs import TunedRecord
from launchkit.errors import LaunchkitError
from launchkit.printing import printable
from launchkit.store import MemoryStore, bundle, foreign
from launchkit.tools import configs_foreign as told
from launchkit.tools.configs_foreign import Told, read_foreign
from launchkit.tools.configs_merge import DryRun, PolicyName, merge_records_into, report
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    StorePlace,
    fail,
    finding,
    open_or_exit,
    target_or_exit,
    wanted,
    working,
)
from launchkit.tools.output import AsJson, echo_json, numbered


def export_configs(
    path: Annotated[Path, typer.Argument(help="The file to write; packed if it ends in .gz.")],
    store: StorePlace = None,
    kernel: KernelPart = None,
    device: DevicePart = None,
    format_name: told.FormatName = None,
    tensors: told.Tensors = None,
    key_value: told.KeyValues = None,
    key_field: told.KeyFields = None,
    as_json: AsJson = False,
) -> None:
    """Write records as a bundle: one file with checksums, the same bytes for the same records.

    With --format they are written below the directory PATH as another program reads them; what its
    files cannot hold is left out and listed. Exit code 1: nothing to export, or something was left
    out.
    """
    opened = open_or_exit(store)
    with working("reading"):
        records = list(wanted(opened.records(), kernel, device))
    if not records:
        finding(f"No such configs are stored in the {opened.describe()}: nothing was written.")
    options = Told(tensors=tensors, key_values=key_value, key_fields=key_field)
    if format_name is not None:
        _export_foreign(format_name, records, path, options, as_json)
        return
    options.refuse_without_format()
    try:
        with working("writing"):
            digest = bundle.write(path, records)
    except LaunchkitError as error:
        fail(str(error))
    if as_json:
        echo_json({"bundle": str(path), "records": len(records), "sha256": digest})
    else:
        typer.echo(
            f"{printable(str(path))}: {numbered(len(records), 'record')}, sha256 {digest[:12]}…"
        )


def _export_foreign(
    name: str, records: list[TunedRecord], path: Path, options: Told, as_json: bool
) -> None:
    try:
        written = foreign.write(name, records, path, options.context(MemoryStore()))
    except (LaunchkitError, OSError) as error:
        fail(str(error))
    skipped = [(each.source, each.reason) for each in written.skipped]
    if as_json:
        echo_json({"format": name, "files": [str(each) for each in written.paths],
                   "skipped": _problems(skipped)})  # fmt: skip
    else:
        _print_skipped(skipped)
        typer.echo(
            f"{printable(str(path))}: {numbered(len(written.paths), 'file')} of the format {name}"
        )
    if skipped:
        finding(f"{len(skipped)} were left out.")


def import_configs(
    path: Annotated[Path, typer.Argument(help="A bundle, or with --format a file or a directory.")],
    store: StorePlace = None,
    policy: PolicyName = "faster",
    partial: Annotated[
        bool, typer.Option("--partial", help="Take the intact entries of a damaged bundle.")
    ] = False,
    kernel: KernelPart = None,
    device: DevicePart = None,
    dry_run: DryRun = False,
    format_name: told.FormatName = None,
    digest: told.Digest = None,
    triton: told.Triton = None,
    parameters: told.Parameters = None,
    tensors: told.Tensors = None,
    dtype: told.Dtypes = None,
    keys: told.Keys = None,
    key_value: told.KeyValues = None,
    key_field: told.KeyFields = None,
    key_type: told.KeyTypes = None,
    config_type: told.ConfigTypes = None,
    config_value: told.ConfigValues = None,
    method: told.Method = None,
    as_json: AsJson = False,
) -> None:
    """Merge a bundle into the store, by a policy where both have a record, and report.

    A bundle is checked before anything is written, and refused as a whole if anything in it is
    damaged. With --format the files are another program's; --kernel NAME and --device then say of
    which kernel and GPU they are, as the other options say what such files leave out.
    """
    target = target_or_exit(store, dry_run)
    options = Told(kernel, digest, device, triton, parameters, tensors, dtype, keys, key_value,
                   key_field, key_type, config_type, config_value, method)  # fmt: skip
    if format_name is not None:
        found = read_foreign(format_name, path, options, target)
        records, gaps = iter(found.records), found.gaps
        broken = [(each.source, each.reason) for each in found.skipped]
    else:
        options.refuse_without_format()
        with working("checking the bundle"):
            taken, broken = _from_bundle(path, partial)
        records, gaps = wanted(taken, kernel, device), ()
    merging = merge_records_into(target, records, policy, dry_run)
    report(merging, target, broken, dry_run, as_json, gaps)


def _from_bundle(
    path: Path, partial: bool
) -> tuple[tuple[TunedRecord, ...], list[tuple[str, str]]]:
    """Return a bundle's records, and what was left out of it."""
    try:
        found = bundle.read(path, partial=partial)
    except (LaunchkitError, OSError, ValueError) as error:
        fail(str(error))
    broken = [(f"{path}, line {line}", why) for line, why in found.broken]
    if found.damage is not None:
        broken.append((str(path), found.damage))
    return found.records, broken


def _problems(skipped: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"place": place, "problem": why} for place, why in skipped]


def _print_skipped(skipped: list[tuple[str, str]]) -> None:
    for place, why in skipped:
        typer.echo(f"left out: {printable(place)}: {printable(why)}")
