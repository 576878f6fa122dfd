"""``launchkit configs merge`` and ``diff``: several stores into one, and what two have unlike. Of the tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import typer

from launchkit.configs import TunedRecord
from launchkit.store import ConfigStore, PinnedStore, pins
from launchkit.store.comparing import ChangedWinner, StoreDiff, compare
from launchkit.store.merge import POLICIES, Conflict, Merging, Outcome, Policy, apply, plan
from launchkit.tools.configs_output import (
    AsJson,
    DevicePart,
    KernelPart,
    echo_json,
    fail,
    finding,
    located,
    open_or_exit,
    plain,
    progress,
    short_key,
    show_by_owner,
    wanted,
    won,
    won_cell,
    working,
)

PolicyName = Annotated[
    str,
    typer.Option(
        "--policy",
        help="Whose choice stays where two differ: faster, newer, ours (the target's), theirs, or "
        "error (then nothing is written).",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report; write nothing.")]


def merge(
    sources: Annotated[list[str], typer.Argument(help="Stores to take records from.")],
    into: Annotated[
        str | None,
        typer.Option("--into", help="The store to merge into; left out: LAUNCHKIT_STORE."),
    ] = None,
    policy: PolicyName = "faster",
    kernel: KernelPart = None,
    device: DevicePart = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Merge stores into one by a policy, and report what was taken, kept and in conflict.

    Results that were measured in unlike ways (single launches, a CUDA graph, a cold cache) are
    never compared: there the target's choice stays, the report says so, and the exit code is 1.
    """
    target, opened = open_or_exit(into), [open_or_exit(source) for source in sources]
    with working("looking at the sources"):
        unreadable = [each for store in opened for each in store.examine().broken]
    records = (record for store in opened for record in store.records())
    merging = merge_records_into(target, wanted(records, kernel, device), policy, dry_run)
    report(merging, target, unreadable, dry_run, as_json)


def merge_records_into(
    target: ConfigStore, records: Iterator[TunedRecord], policy: str, dry_run: bool
) -> Merging:
    """Plan, and unless it is a dry run do it, with progress; exit code 2 for what cannot be."""
    with working("comparing"):
        merging = plan(target, records, _policy(policy))
    if not dry_run and target.read_only:
        fail(f"the {target.describe()} is read-only. Give another store to write to.")
    if not dry_run:
        with progress("writing", len(merging.staged)) as done:
            apply(merging, target, done)
    return merging


def _policy(name: str) -> Policy:
    if name not in POLICIES:
        fail(f"{plain(name)!r} is no policy. Choose one of {', '.join(POLICIES)}.")
    return cast(Policy, name)


def report(
    merging: Merging,
    target: ConfigStore,
    unreadable: list[tuple[str, str]],
    dry_run: bool,
    as_json: bool,
    gaps: Sequence[str] = (),
) -> None:
    """Print what a merge did; exit code 1 where something is left to look at.

    ``gaps``: what the files that were read could not tell.
    """
    if as_json:
        echo_json(_as_json(merging, target, unreadable, dry_run) | {"gaps": list(gaps)})
    else:
        _print_report(merging, target, unreadable, dry_run)
    for gap in gaps:
        typer.echo(f"such files do not tell: {gap}", err=True)
    if merging.refused:
        finding(f"{len(merging.conflicts)} conflicts: nothing was written. Choose another policy.")
    if merging.unwritten:
        finding(f"{len(merging.unwritten)} records could not be stored; see the warning.")
    if merging.undecided:
        finding(f"{len(merging.undecided)} conflicts were not decided: the target's choice stays.")
    if unreadable:
        finding(f"{len(unreadable)} parts could not be read, and were left out.")


def _as_json(
    merging: Merging, target: ConfigStore, unreadable: list[tuple[str, str]], dry_run: bool
) -> dict[str, Any]:
    outcomes: tuple[Outcome, ...] = ("added", "replaced", "extended", "kept", "same")
    return {
        "target": target.describe(),
        "policy": merging.policy,
        "written": not dry_run and not merging.refused,
        **{outcome: merging.outcomes[outcome] for outcome in outcomes},
        "conflicts": [_conflict_object(each) for each in merging.conflicts],
        "unwritten": [located(record) for record in merging.unwritten],
        "unreadable": [{"place": place, "problem": why} for place, why in unreadable],
    }


def _conflict_object(conflict: Conflict) -> dict[str, Any]:
    return located(conflict.ours) | {
        "ours": won(conflict.ours),
        "theirs": won(conflict.theirs),
        "stays": conflict.stays,
        "undecided": conflict.undecided,
    }


def _print_report(
    merging: Merging, target: ConfigStore, unreadable: list[tuple[str, str]], dry_run: bool
) -> None:
    show_by_owner(["key", "ours", "theirs", "stays", "why"], _conflict_rows(merging))
    for place, problem in unreadable:
        typer.echo(f"left out: {plain(place)}: {plain(problem)}")
    count = merging.outcomes
    taken, kept = count["added"] + count["replaced"], count["kept"] + count["extended"]
    idle = " (nothing was written)" if dry_run or merging.refused else ""
    typer.echo(
        f"{taken} taken ({count['added']} added, {count['replaced']} replaced), {kept} kept "
        f"({count['extended']} with more results), {count['same']} the same; "
        f"{len(merging.conflicts)} conflicts, policy {merging.policy}{idle}"
    )
    typer.echo(f"into the {plain(target.describe())}")


def _conflict_rows(merging: Merging) -> Iterator[tuple[TunedRecord, list[str]]]:
    for each in merging.conflicts:
        values = [won_cell(each.ours), won_cell(each.theirs), each.stays, each.undecided or ""]
        yield each.ours, [short_key(each.ours), *values]


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
