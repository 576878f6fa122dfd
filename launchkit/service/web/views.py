"""Pages of records: namespaces, kernels, devices, keys, timings. Of the service's page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from sqlalchemy.engine import Connection

from launchkit.service import protocol, queries, queries_activity, records, spaces
from launchkit.service.api.parameters import Digest, NamespaceName, Segment
from launchkit.service.context import service
from launchkit.service.queries import Order, StoredRow, Wanted
from launchkit.service.refused import Refused
from launchkit.service.web import pages, plots, session
from launchkit.service.web.pages import Device, Words, as_file, show
from launchkit.service.web.rendering import page
from launchkit.store import document

router = pages.router()

Page = Annotated[int, Query(ge=1, le=queries.PAGES)]
RECORD = "/web/{namespace}/records/{kernel}/{digest}/{device}/{key_hash}"


@router.get("/")
def index(request: Request) -> Response:
    """Show the namespaces that the visitor may read."""
    here, visitor = service(request), session.visitor(request)
    if not visitor.logged_in and not here.settings.open_reads and not here.settings.open_writes:
        raise Refused("unauthenticated", "this needs a token. Log in with one.")
    visible = [(name, n) for name, n in spaces.counted(here.database) if visitor.may("read", name)]
    with here.database.reading() as connection:
        counts = {name: queries_activity.counts(connection, name) for name, _ in visible[:50]}
    return page("index.html", visitor, namespaces=visible, counts=counts)


@router.get("/web/{namespace}")
def overview(request: Request, namespace: NamespaceName) -> Response:
    """Show what a namespace holds, what is missed most and what came last."""

    def read(connection: Connection) -> dict[str, Any]:
        return {
            "counts": queries_activity.counts(connection, namespace),
            "kernels": queries.kernels(connection, namespace),
            "devices": queries.devices(connection, namespace),
            "missed": queries_activity.missed_most(connection, namespace)[:5],
            "latest": queries.listed(connection, namespace, Wanted())[0][:10],
        }

    return show(request, namespace, "overview.html", read)


@router.get("/web/{namespace}/kernels")
def kernels(request: Request, namespace: NamespaceName, q: Words = "") -> Response:
    """Show the kernels whose names have these words."""

    def read(connection: Connection) -> dict[str, Any]:
        return {"q": q, "kernels": queries.kernels(connection, namespace, q)}

    return show(request, namespace, "kernels.html", read)


@router.get("/web/{namespace}/kernel")
def kernel(request: Request, namespace: NamespaceName, name: Words, p: Page = 1) -> Response:
    """Show one kernel: its versions, devices and keys."""

    def read(connection: Connection) -> dict[str, Any]:
        wanted = Wanted(kernel=name)
        rows, more = queries.listed(connection, namespace, wanted, "name", p)
        versions = queries.versions(connection, namespace, name)
        return {"name": name, "versions": versions, "rows": rows, "more": more, "p": p}

    return show(request, namespace, "kernel.html", read)


@router.get("/web/{namespace}/devices")
def devices(request: Request, namespace: NamespaceName) -> Response:
    """Show the devices that anything is stored for."""
    return show(
        request, namespace, "devices.html",
        lambda connection: {"devices": queries.devices(connection, namespace)},
    )  # fmt: skip


@router.get("/web/{namespace}/records")
def keys(
    request: Request,
    namespace: NamespaceName,
    q: Words = "",
    kernel: Words = "",
    device: Device = "",
    toolchain: Words = "",
    writer: Words = "",
    order: Order = "newest",
    p: Page = 1,
) -> Response:
    """Show the keys that have these words, of one kernel, device, Triton or writer if asked for."""
    wanted = Wanted(q, kernel, device, toolchain, writer)

    def read(connection: Connection) -> dict[str, Any]:
        rows, more = queries.listed(connection, namespace, wanted, order, p)
        found = {"rows": rows, "more": more, "devices": queries.devices(connection, namespace)}
        return {**found, "wanted": wanted, "order": order, "p": p}

    return show(request, namespace, "records.html", read)


@router.get(RECORD)
def record(
    request: Request,
    namespace: NamespaceName,
    kernel: Segment,
    digest: Digest,
    device: Segment,
    key_hash: Digest,
    toolchain: Words = "",
) -> Response:
    """Show one key: what each config took, as a plot and as a table."""
    place = records.place(namespace, kernel, digest, device, key_hash)

    def read(connection: Connection) -> dict[str, Any]:
        stored, several = pick(connection, namespace, place, toolchain)
        found = document.parse(stored.document.encode(), source="the database").records[0]
        return {
            "stored": stored,
            "several": several,
            "record": found,
            "plots": plots.plots(found),
            "configs": plots.by_speed(found.configs),
        }

    return show(request, namespace, "record.html", read)


@router.get(f"{RECORD}/document")
def record_document(
    request: Request,
    namespace: NamespaceName,
    kernel: Segment,
    digest: Digest,
    device: Segment,
    key_hash: Digest,
    toolchain: Words = "",
) -> Response:
    """Give one record's config document as a file."""
    session.reader(request, namespace)
    place = records.place(namespace, kernel, digest, device, key_hash)
    with service(request).database.reading() as connection:
        stored, _ = pick(connection, namespace, place, toolchain)
    return as_file(stored.document.encode(), f"{key_hash[:12]}.json", protocol.MEDIA_DOCUMENT)


def pick(
    connection: Connection, namespace: str, place: str, toolchain: str
) -> tuple[StoredRow, list[StoredRow]]:
    """Return a key's record by one Triton (by default the newest), and all. Raises Refused."""
    several = queries.record(connection, namespace, place)
    for stored in several:
        if toolchain in ("", stored.row.toolchain):
            return stored, several
    raise Refused("absent", "there is no such record. Search for its kernel or its key.")
