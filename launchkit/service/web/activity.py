"""Pages of a namespace's life: misses, leases, who wrote what, snapshots. Of the service's page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from sqlalchemy.engine import Connection

from launchkit.service import audit, protocol, queries_activity, snapshots, spaces
from launchkit.service.api.parameters import Body, Digest, LeaseIdentity, NamespaceName
from launchkit.service.context import service
from launchkit.service.leases import LeaseKey, take_away
from launchkit.service.protocol import SnapshotRequest
from launchkit.service.queries_activity import Entries
from launchkit.service.refused import Refused
from launchkit.service.web import pages, session
from launchkit.service.web.pages import Words, as_file, show

router = pages.router()


@router.get("/web/{namespace}/misses")
def misses(request: Request, namespace: NamespaceName) -> Response:
    """Show which keys are asked for and not found, the most often first."""

    def read(connection: Connection) -> dict[str, Any]:
        counts = queries_activity.counts(connection, namespace)
        return {"counts": counts, "missed": queries_activity.missed_most(connection, namespace)}

    return show(request, namespace, "misses.html", read)


@router.get("/web/{namespace}/leases")
def leases(request: Request, namespace: NamespaceName) -> Response:
    """Show who tunes what at the moment, and whose leases have run out."""
    return show(
        request, namespace, "leases.html",
        lambda connection: {"leases": queries_activity.held_leases(connection, namespace)},
    )  # fmt: skip


@router.post("/web/{namespace}/leases/{identity}/end")
def end_lease(
    request: Request, namespace: NamespaceName, identity: LeaseIdentity, body: Body
) -> Response:
    """End a lease whose holder hangs: another may tune its key at once. Needs scope admin."""
    form = session.fields(request, body)
    caller = session.writer(request, form, "admin", namespace)
    with service(request).database.writing() as connection:
        if take_away(connection, LeaseKey(namespace, identity)):
            audit.log(connection, "end-lease", caller.name, namespace, detail=identity)
    return session.see_other(f"/web/{namespace}/leases")


@router.get("/web/{namespace}/audit")
def who_wrote(
    request: Request,
    namespace: NamespaceName,
    writer: Words = "",
    kernel: Words = "",
    action: Words = "",
    key: Annotated[str, Query(pattern=r"^([0-9a-f]{64})?$")] = "",
    before: Annotated[int, Query(ge=0, lt=2**62)] = 0,
) -> Response:
    """Show who wrote what, the newest first."""
    wanted = Entries(writer, kernel, action, key, before)

    def read(connection: Connection) -> dict[str, Any]:
        rows, more = queries_activity.entries(connection, namespace, wanted)
        return {"rows": rows, "more": more, "wanted": wanted}

    return show(request, namespace, "audit.html", read)


@router.get("/web/{namespace}/snapshots")
def taken(request: Request, namespace: NamespaceName) -> Response:
    """Show the snapshots of a namespace."""
    return show(
        request, namespace, "snapshots.html",
        lambda connection: {"snapshots": queries_activity.taken(connection, namespace)},
    )  # fmt: skip


@router.post("/web/{namespace}/snapshots")
def take(request: Request, namespace: NamespaceName, body: Body) -> Response:
    """Take a snapshot, as the API does. Needs scope write."""
    here = service(request)
    form = session.fields(request, body)
    caller = session.writer(request, form, "write", namespace)
    asked = SnapshotRequest()
    with snapshots.one_of_few():
        snapshots.take(
            here.database, namespace, asked, caller.name, here.settings.bundle_limit_bytes
        )
    return session.see_other(f"/web/{namespace}/snapshots")


@router.get("/web/{namespace}/snapshots/{digest}")
def snapshot_bundle(request: Request, namespace: NamespaceName, digest: Digest) -> Response:
    """Give a snapshot as a file: a bundle."""
    session.reader(request, namespace)
    with service(request).database.reading() as connection:
        data = snapshots.load(connection, namespace, digest)
    return as_file(data, f"{namespace}-{digest[:12]}.bundle", protocol.MEDIA_BUNDLE)


@router.post("/web")
def make_namespace(request: Request, body: Body) -> Response:
    """Make a namespace. Needs scope admin for it."""
    form = session.fields(request, body)
    name = form.get("name", "").strip()
    caller = session.writer(request, form, "admin", name)
    if not spaces.make(service(request).database, name, caller.name):
        raise Refused("exists", f"there is a namespace {name} already. Use it.")
    return session.see_other(f"/web/{name}")
