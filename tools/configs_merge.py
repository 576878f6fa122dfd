"""``launchkit configs merge``: several stores into one, with a report. Of the tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, cast

import typer

from launchkit.configs import TunedRecord
from launchkit.printing import printable
from launchkit.store import ConfigStore
from launchkit.store.merge import POLICIES, Conflict, Merging, Outcome, Policy, apply, plan
from launchkit.tools.configs_output import (
    DevicePart,
    KernelPart,
    fail,
    finding,
    located,
    open_or_exit,
    short_key,
    show_by_owner,
    target_or_exit,
    wanted,
    won,
    won_cell,
    working,
)
from launchkit.tools.output import AsJson, counted, echo_json, numbered

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
    target, opened = target_or_exit(into, dry_run), [open_or_exit(source) for source in sources]
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
    if not dry_run:
        with counted("writing", len(merging.staged)) as done:
            apply(merging, target, done)
    return merging


def _policy(name: str) -> Policy:
    if name not in POLICIES:
        fail(f"{name!r} is no policy. Choose one of {', '.join(POLICIES)}.")
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
        conflicts = numbered(len(merging.conflicts), "conflict")
        finding(f"{conflicts}: nothing was written. Choose another policy.")
    if merging.unwritten:
        records = numbered(len(merging.unwritten), "record")
        finding(f"{records} could not be stored; see the warning.")
    if merging.undecided:
        conflicts = numbered(len(merging.undecided), "conflict")
        finding(f"{conflicts} left undecided: the target's choice stays.")
    if unreadable:
        finding(f"{numbered(len(unreadable), 'part')} left out, which could not be read.")


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
        typer.echo(f"left out: {printable(place)}: {printable(problem)}")
    count = merging.outcomes
    taken, kept = count["added"] + count["replaced"], count["kept"] + count["extended"]
    idle = f" ({len(merging.unwritten)} of them not stored)" if merging.unwritten else ""
    if dry_run or merging.refused:
        idle = " (nothing was written)"
    typer.echo(
        f"{taken} taken ({count['added']} added, {count['replaced']} replaced), {kept} kept "
        f"({count['extended']} with more results), {count['same']} the same; "
        f"{numbered(len(merging.conflicts), 'conflict')}, policy {merging.policy}{idle}"
    )
    typer.echo(f"into the {printable(target.describe())}")


def _conflict_rows(merging: Merging) -> Iterator[tuple[TunedRecord, list[str]]]:
    for each in merging.conflicts:
        values = [won_cell(each.ours), won_cell(each.theirs), each.stays, each.undecided or ""]
        yield each.ours, [short_key(each.ours), *values]
