"""``launchkit configs pin``: chosen configs into a lock file. Of the tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launchkit.configs import TunedRecord
from launchkit.errors import LaunchkitError
from launchkit.printing import printable
from launchkit.store import pins
from launchkit.store.comparing import compare
from launchkit.tools.configs_diff import diff_object, print_diff
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    StorePlace,
    fail,
    finding,
    open_or_exit,
    wanted,
    working,
)
from launchkit.tools.output import AsJson, echo_json, numbered


def pin(
    lock: Annotated[Path, typer.Argument(help="The lock file, such as launchkit.lock.")],
    store: StorePlace = None,
    kernel: KernelPart = None,
    device: DevicePart = None,
    toolchain: Annotated[
        str | None,
        typer.Option("--triton", help="Pin this Triton version's records; left out: the newest."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one chosen config per kernel, device and key into a lock file that can be diffed.

    With --kernel or --device the other pins of the file stay as they are. Exit code 1: nothing
    to pin.
    """
    opened = open_or_exit(store)
    before = _present(lock)
    with working("reading"):
        found = pins.selected(wanted(opened.records(), kernel, device), toolchain)
    if not found:
        finding(f"No such configs are stored in the {opened.describe()}: nothing was pinned.")
    filtered = kernel is not None or device is not None
    replaced = {old.identity for old in wanted(before, kernel, device)}
    stay = [old for old in before if filtered and old.identity not in replaced]
    _write(lock, [*stay, *found], before, as_json)


def _present(lock: Path) -> list[TunedRecord]:
    """Return the pins that are in the file; what is there and is no lock file is not replaced."""
    if not lock.exists():
        return []
    try:
        return pins.read(lock)[1]
    except LaunchkitError as error:
        fail(f"{error} Or delete it first.")


def _write(lock: Path, pinned: list[TunedRecord], before: list[TunedRecord], as_json: bool) -> None:
    try:
        with working("writing"):
            changed = pins.write(lock, pins.select(pinned))
    except LaunchkitError as error:
        fail(str(error))
    digest = pins.read(lock)[0]
    difference = compare(before, pinned)
    if as_json:
        echo_json({"lock": str(lock), "sha256": digest, "pins": len(pinned), "written": changed}
                  | diff_object(difference))  # fmt: skip
        return
    print_diff(difference)
    state = "written" if changed else "up to date"
    typer.echo(
        f"{printable(str(lock))}: {numbered(len(pinned), 'pin')}, sha256 {digest[:12]}…, {state}"
    )
