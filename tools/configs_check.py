"""``launchkit configs check``: whether stored and pinned configs are as they should be. Of the tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from launchkit.errors import BadDocumentError, LaunchkitError
from launchkit.printing import printable
from launchkit.store import pins
from launchkit.store.base import ConfigStore
from launchkit.store.checking import Finding, check_pins, check_store
from launchkit.store.staleness import STALE_POLICIES, StalePolicy
from launchkit.tools.configs_output import StorePlace, fail, open_or_exit, show, table, working
from launchkit.tools.output import AsJson, echo_json, numbered


def check(
    store: StorePlace = None,
    lock: Annotated[
        Path | None, typer.Option("--lock", help="A lock file that should be up to date.")
    ] = None,
    stale: Annotated[
        str,
        typer.Option(
            "--stale",
            help="Which records of older Triton versions count, where a kernel was tuned on a "
            "device with a newer one as well: exact (all), minor (of an older minor release), any "
            "(none).",
        ),
    ] = "minor",
    as_json: AsJson = False,
) -> None:
    """Check that every document can be read and stands where its keys lead, and what is stale.

    With --lock also that the lock file is whole and pins what the store chooses. Exit code 1:
    there are findings.
    """
    opened, policy = open_or_exit(store), stale_policy(stale)
    with working("checking"):
        health = opened.examine()
        found = list(check_store(opened, health, policy))
        if lock is not None:
            found += _check_lock(lock, opened, policy)
    if as_json:
        rows = [asdict(each) for each in found]
        echo_json({"store": opened.describe(), "records": health.records, "findings": rows})
    else:
        rows_of = [[each.kind, each.place, each.text] for each in found]
        if found:
            show(table("", ["finding", "place", "text"], rows_of))
        typer.echo(
            f"{printable(opened.describe())}: {numbered(health.records, 'record')}, "
            f"{numbered(len(found), 'finding')}"
        )
    if found:
        raise typer.Exit(1)


def stale_policy(name: str) -> StalePolicy:
    """Return the policy of this name; exit code 2 where there is none."""
    if name not in STALE_POLICIES:
        fail(f"{name!r} is no policy. Choose one of {', '.join(STALE_POLICIES)}.")
    return cast(StalePolicy, name)


def _check_lock(lock: Path, store: ConfigStore, policy: StalePolicy) -> list[Finding]:
    try:
        _, pinned = pins.read(lock)
    except BadDocumentError as error:
        return [Finding("lock", str(lock), str(error))]
    except LaunchkitError as error:
        fail(str(error))
    return list(check_pins(pinned, store.records(), policy))
