"""``launchkit configs gc``: removes what a store can do without. Of the tools."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any

import typer

from launchkit import clock
from launchkit.errors import LaunchkitError
from launchkit.printing import printable
from launchkit.store import ConfigStore, DirectoryStore, LayeredStore
from launchkit.store.collect import Removal, Rules, Survey, Waste, remove, survey
from launchkit.tools.configs_check import stale_policy
from launchkit.tools.configs_output import (
    StorePlace,
    fail,
    finding,
    located,
    open_or_exit,
    owner,
    short_key,
    show,
    table,
    working,
)
from launchkit.tools.output import AsJson, counted, echo_json, numbered

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"": 1, "k": 1000, "ki": 2**10, "m": 10**6, "mi": 2**20, "g": 10**9, "gi": 2**30}
_SHOWN = 50


def collect_garbage(
    store: StorePlace = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", help="Records tuned longer ago: 90d, 12h, 2w.")
    ] = None,
    stale: Annotated[
        str,
        typer.Option(
            "--stale",
            help="Records of older Triton versions, where a kernel was tuned on a device with a "
            "newer one as well: exact (all), minor (of an older minor release), any (none).",
        ),
    ] = "any",
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            help="Until no more is left: 500MB, 2GiB; superseded toolchains go first, then the "
            "oldest.",
        ),
    ] = None,
    grace: Annotated[
        str, typer.Option("--grace", help="Nothing that was written since then is removed.")
    ] = "1h",
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; left out: only say what would be.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what a store can do without, and with --yes remove it, beside running processes too.

    Broken documents that were set aside and what killed writers left are always among it. Exit
    code 1: something could not be removed, or --max-size cannot be reached.
    """
    directory = _directory(open_or_exit(store), yes)
    rules = _rules(older_than, stale, max_size, grace)
    now_s = clock.utc_now().timestamp()
    with working("looking"):
        found = survey(directory, rules, now_s)
    removal = Removal((), ())
    if yes:
        with counted("removing", len(found.waste)) as done:
            removal = remove(found.waste, rules, now_s, done)
    _report(directory, found, removal if yes else None, as_json)
    if removal.stayed:
        finding(f"{len(removal.stayed)} could not be removed, or changed meanwhile.")
    left = found.total_bytes - sum(each.size_bytes for each in found.waste)
    if rules.max_bytes is not None and left > rules.max_bytes:
        finding(f"{left} bytes are left: the rest was written within the grace time.")


def _directory(store: ConfigStore, writes: bool) -> DirectoryStore:
    """Return what can be collected: a directory, or the one that a layered store writes to."""
    target = store.writable if isinstance(store, LayeredStore) else store
    if not isinstance(target, DirectoryStore):
        fail(f"the {store.describe()} is no directory that could be cleaned. Give one.")
    if writes and target.read_only:
        fail(f"the {target.describe()} is not to be written. Give its own path.")
    return target


def _rules(older_than: str | None, stale: str, max_size: str | None, grace: str) -> Rules:
    try:
        return Rules(
            older_than_s=None if older_than is None else seconds(older_than),
            stale=stale_policy(stale),
            max_bytes=None if max_size is None else size_bytes(max_size),
            grace_s=seconds(grace),
        )
    except LaunchkitError as error:
        fail(str(error))


def seconds(text: str) -> float:
    """Return a time such as 90d, 12h, 30m or 45s in seconds; exit code 2 for other text."""
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text.strip())
    if match is None:
        fail(f"{text!r} is no time. Write it as 90d, 12h, 30m, 45s or 2w.")
    return float(match[1]) * _SECONDS[match[2]]


def size_bytes(text: str) -> int:
    """Return a size such as 500MB or 2GiB in bytes; exit code 2 for other text."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(|[kmg]i?)b?", text.strip().lower())
    if match is None:
        fail(f"{text!r} is no size. Write it as 500MB, 2GiB or a number of bytes.")
    return int(float(match[1]) * _BYTES[match[2]])


def _report(
    directory: DirectoryStore, found: Survey, removal: Removal | None, as_json: bool
) -> None:
    if as_json:
        echo_json(_as_json(directory, found, removal))
        return
    if found.waste:
        show(
            table("", ["what", "key", "why", "KiB"], [_row(each) for each in found.waste[:_SHOWN]])
        )
    if len(found.waste) > _SHOWN:
        typer.echo(f"… and {len(found.waste) - _SHOWN} more (--json has all)")
    reasons = Counter(each.reason for each in found.waste if each.record is None)
    freed = sum(each.size_bytes for each in found.waste) if removal is None else removal.freed_bytes
    count = len(found.waste) if removal is None else len(removal.removed)
    verb = "would be removed (--yes removes)" if removal is None else "removed"
    files = "".join(f", {numbered(number, 'file')} {reason}" for reason, number in reasons.items())
    typer.echo(
        f"{printable(directory.describe())}: {numbered(found.records, 'record')}, "
        f"{found.total_bytes} bytes; "
        f"{count} {verb}, {freed} bytes{files}"
    )


def _row(waste: Waste) -> list[str]:
    size = f"{waste.size_bytes / 1024:.1f}"
    if waste.record is None:
        return [waste.path.name, "", waste.reason, size]
    return [owner(waste.record), short_key(waste.record), waste.reason, size]


def _as_json(directory: DirectoryStore, found: Survey, removal: Removal | None) -> dict[str, Any]:
    stayed = [] if removal is None else removal.stayed
    return {
        "store": directory.describe(),
        "records": found.records,
        "total_bytes": found.total_bytes,
        "removed": removal is not None,
        "freed_bytes": 0 if removal is None else removal.freed_bytes,
        "waste": [_waste_object(each) for each in found.waste],
        "stayed": [_waste_object(each) | {"problem": why} for each, why in stayed],
    }


def _waste_object(waste: Waste) -> dict[str, Any]:
    record = {} if waste.record is None else located(waste.record)
    return record | {
        "file": str(waste.path),
        "reason": waste.reason,
        "age_s": waste.age_s,
        "size_bytes": waste.size_bytes,
    }
