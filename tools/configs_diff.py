"""``launchkit configs diff``: what two stores, or a store and a lock file, have unlike. Of the tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from launchkit.configs import TunedRecord
from launchkit.store import PinnedStore, pins
from launchkit.store.comparing import ChangedWinner, StoreDiff, compare
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    located,
    open_or_exit,
    short_key,
    show_by_owner,
    wanted,
    won,
    won_cell,
    working,
)
from launchkit.tools.output import AsJson, echo_json


def diff(
    before: Annotated[str, typer.Argument(help="A store or a lock file.")],
    after: Annotated[str, typer.Argument(help="Another one.")],
    kernel: KernelPart = None,
    device: DevicePart = None,
    as_json: AsJson = False,
) -> None:
    """Say what the second store has otherwise: records added, removed, and won by another config.

    Beside a lock file, a store counts with what it would be pinned as. Exit code 1: they differ.
    """
    stores = [open_or_exit(before), open_or_exit(after)]
    pinned = any(isinstance(store, PinnedStore) for store in stores)
    with working("reading"):
        sides = [list(wanted(store.records(), kernel, device)) for store in stores]
    found = compare(*(pins.selected(side) if pinned else side for side in sides))
    if as_json:
        echo_json({"before": stores[0].describe(), "after": stores[1].describe()}
                  | diff_object(found))  # fmt: skip
    else:
        print_diff(found)
    if found.differs:
        raise typer.Exit(1)


def diff_object(found: StoreDiff) -> dict[str, Any]:
    """Return a difference as JSON has it."""
    return {
        "added": [located(record) | {"after": won(record)} for record in found.added],
        "removed": [located(record) | {"before": won(record)} for record in found.removed],
        "changed": [_changed_object(each) for each in found.changed],
        "same": found.same,
    }


def _changed_object(changed: ChangedWinner) -> dict[str, Any]:
    return located(changed.after) | {
        "before": won(changed.before),
        "after": won(changed.after),
        "ratio": changed.ratio,
        "measured_together": changed.together,
        "incomparable": changed.incomparable,
    }


def print_diff(found: StoreDiff) -> None:
    """Print a difference for people."""
    show_by_owner(["", "key", "before", "after", "ratio", "why"], _diff_rows(found))
    typer.echo(
        f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} with "
        f"another winner, {found.same} the same"
    )


def _diff_rows(found: StoreDiff) -> Iterator[tuple[TunedRecord, list[str]]]:
    for each in found.added:
        yield each, ["added", short_key(each), "", won_cell(each), "", ""]
    for each in found.removed:
        yield each, ["removed", short_key(each), won_cell(each), "", "", ""]
    for changed in found.changed:
        yield changed.after, _changed_row(changed)


def _changed_row(each: ChangedWinner) -> list[str]:
    ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
    why = each.incomparable or ("" if each.together else "not measured together")
    return [
        "winner",
        short_key(each.after),
        won_cell(each.before),
        won_cell(each.after),
        ratio,
        why,
    ]
