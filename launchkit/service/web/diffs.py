"""Pages that compare two devices or two snapshots, and pin files. Of the service's page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from sqlalchemy.engine import Connection

from launchkit.configs import TunedRecord
from launchkit.service import queries, queries_activity, records, snapshots
from launchkit.service.api.parameters import NamespaceName
from launchkit.service.context import service
from launchkit.service.refused import Refused
from launchkit.service.web import pages, session
from launchkit.service.web.pages import Device, Words, as_file, show
from launchkit.store import bundle, pins
from launchkit.store.comparing import StoreDiff, compare

router = pages.router()

COMPARED = 5000
"""No more records a side are compared in a page: reading them takes a second."""
SHOWN = 200
"""So many rows of a table are shown; its head says how many there are."""
NOW = "now"
"""Stands for what the namespace holds at the moment, beside snapshots' digests."""

Side = Annotated[str, Query(pattern=r"^(now|[0-9a-f]{64})?$")]


@router.get("/web/{namespace}/diff")
def between(
    request: Request,
    namespace: NamespaceName,
    a: Device = "",
    b: Device = "",
    kernel: Words = "",
    old: Side = "",
    new: Side = NOW,
) -> Response:
    """Compare two devices ``a`` and ``b``, of one kernel if asked, or snapshots ``old``, ``new``."""

    def read(connection: Connection) -> dict[str, Any]:
        found: StoreDiff | None = None
        if a and b:
            with snapshots.one_of_few():
                found = _of_devices(connection, namespace, (a, b), kernel)
        elif old:
            with snapshots.one_of_few():
                found = compare(*(_side(connection, namespace, each) for each in (old, new)))
        return {
            "found": found,
            "devices": queries.devices(connection, namespace),
            "snapshots": queries_activity.taken(connection, namespace),
        }

    asked = {"a": a, "b": b, "kernel": kernel, "old": old, "new": new}
    return show(request, namespace, "diff.html", read, asked=asked, shown=SHOWN)


@router.get("/web/{namespace}/pins")
def pin_file(
    request: Request,
    namespace: NamespaceName,
    kernel: Words = "",
    device: Device = "",
    toolchain: Words = "",
    snapshot: Side = NOW,
) -> Response:
    """Give a lock file of the chosen configs: of one kernel, device or Triton if asked."""
    session.reader(request, namespace)
    here = service(request)
    with snapshots.one_of_few(), here.database.streaming() as connection:
        if snapshot in ("", NOW):
            limit_bytes = here.settings.bundle_limit_bytes
            found = _within(connection, namespace, kernel, device, limit_bytes)
        else:
            data = snapshots.load(connection, namespace, snapshot)
            found = _fitting(bundle.parse(data, source="the snapshot").records, kernel, device)
    pinned = pins.select(found, toolchain or None)
    if not pinned:
        raise Refused("absent", "there is nothing to pin. Ask for another kernel or device.")
    return as_file(pins.dump(pinned), f"{namespace}{pins.SUFFIX}", "application/json")


def _of_devices(
    connection: Connection, namespace: str, devices: tuple[str, str], kernel: str
) -> StoreDiff:
    """Compare as if both were one device: only so have two records the same identity."""
    before, after = (_some(connection, namespace, kernel, device) for device in devices)
    if after:
        before = [replace(record, device=after[0].device) for record in before]
    return compare(before, after)


def _side(connection: Connection, namespace: str, side: str) -> Iterable[TunedRecord]:
    if side in ("", NOW):
        return _some(connection, namespace, "", "")
    known = {each.digest: each.records for each in snapshots.entries(connection, namespace)}
    _refuse_many(known.get(side, 0))
    data = snapshots.load(connection, namespace, side)
    return bundle.parse(data, source="the snapshot").records


def _some(connection: Connection, namespace: str, kernel: str, device: str) -> list[TunedRecord]:
    _refuse_many(records.count(connection, namespace, kernel or None, device or None))
    several = records.walk(connection, namespace, kernel or None, device or None)
    return [record for record, _ in several]


def _refuse_many(count: int) -> None:
    if count > COMPARED:
        raise Refused(
            "too-large",
            f"{count:,} records are too many to compare in a page. Choose a kernel, or get bundles "
            "and use: launchkit configs diff.",
        )


def _within(
    connection: Connection, namespace: str, kernel: str, device: str, limit_bytes: int
) -> list[TunedRecord]:
    found, total_bytes = [], 0
    for record, size_bytes in records.walk(connection, namespace, kernel or None, device or None):
        found.append(record)
        total_bytes += size_bytes
        if total_bytes > limit_bytes:
            raise Refused("too-large", "that is too much for one file. Choose a kernel or device.")
    return found


def _fitting(several: Iterable[TunedRecord], kernel: str, device: str) -> list[TunedRecord]:
    return [
        record
        for record in several
        if kernel in ("", record.kernel.name) and device in ("", record.device.slug)
    ]
