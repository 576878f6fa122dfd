"""HTTP: namespaces, bundles up and down, and snapshots. Of the service's server."""

from __future__ import annotations

import hashlib
from typing import Any

from fastapi import APIRouter, Request, Response

from launchkit.errors import BadBundleError
from launchkit.service import protocol, records, snapshots, spaces
from launchkit.service.answers import documented
from launchkit.service.api.parameters import (
    NONE,
    Body,
    DeviceName,
    Digest,
    Etags,
    KernelName,
    NamespaceName,
)
from launchkit.service.context import service
from launchkit.service.protocol import (
    ImportAnswer,
    NamespaceEntry,
    NamespaceRequest,
    Namespaces,
    SnapshotEntry,
    SnapshotRequest,
    Snapshots,
)
from launchkit.service.refused import Refused
from launchkit.store import bundle

router = APIRouter(tags=["namespaces and bundles"])

_SOURCE = "the bundle"
_BUNDLE: dict[str, Any] = {protocol.MEDIA_BUNDLE: {"schema": {"type": "string"}}}


@router.get(
    "/v1/namespaces",
    operation_id="list_namespaces",
    response_model=Namespaces,
    responses=documented(),
)
def list_namespaces(request: Request) -> Namespaces:
    """Return the namespaces that the caller may read."""
    here = service(request)
    caller = here.admit_somewhere(request)
    visible = [
        NamespaceEntry(name=name, records=count)
        for name, count in spaces.counted(here.database)
        if here.auth.reads(caller, name)
    ]
    return Namespaces(namespaces=tuple(visible))


@router.post(
    "/v1/namespaces",
    operation_id="make_namespace",
    status_code=201,
    response_model=NamespaceEntry,
    responses=documented("exists"),
)
def make_namespace(request: Request, asked: NamespaceRequest) -> NamespaceEntry:
    """Make a namespace. Needs a token of scope admin that is for all of them, or for this one."""
    here = service(request)
    caller = here.admit(request, "admin", asked.name)
    if not spaces.make(here.database, asked.name, caller.name):
        raise Refused("exists", f"there is a namespace {asked.name} already. Use it.")
    return NamespaceEntry(name=asked.name, records=0)


@router.get(
    "/v1/namespaces/{namespace}/bundle",
    operation_id="get_bundle",
    response_class=Response,
    responses={**documented(), 200: {"content": _BUNDLE}},
)
def get_bundle(
    request: Request,
    namespace: NamespaceName,
    kernel: KernelName = NONE,
    device: DeviceName = NONE,
    if_none_match: Etags = NONE,
) -> Response:
    """Return the namespace's records as a bundle, of one kernel or device if that is asked for."""
    here = service(request)
    here.admit(request, "read", namespace)
    asked = SnapshotRequest(kernel=kernel or None, device=device or None)
    with snapshots.one_of_few(), here.database.streaming() as connection:
        data, _ = snapshots.packed(connection, namespace, asked, here.settings.bundle_limit_bytes)
    return _bundle(data, hashlib.sha256(data).hexdigest(), if_none_match, lasting=False)


@router.post(
    "/v1/namespaces/{namespace}/bundle",
    operation_id="post_bundle",
    response_model=ImportAnswer,
    responses=documented("storage-full"),
    openapi_extra={"requestBody": {"required": True, "content": _BUNDLE}},
)
def post_bundle(request: Request, namespace: NamespaceName, body: Body) -> ImportAnswer:
    """Merge every record of a bundle; a damaged one is refused as a whole."""
    here = service(request)
    caller = here.admit(request, "write", namespace)
    found = bundle.parse(_unpacked(body, here.settings.bundle_limit_bytes), source=_SOURCE).records
    counts = records.put_many(
        here.database, namespace, found, caller.name, here.settings.document_limit_bytes
    )
    for outcome, count in counts.items():
        here.metrics.wrote(namespace, outcome, count)
    return ImportAnswer(records=len(found), **counts)


@router.get(
    "/v1/namespaces/{namespace}/snapshots",
    operation_id="list_snapshots",
    response_model=Snapshots,
    responses=documented(),
)
def list_snapshots(request: Request, namespace: NamespaceName) -> Snapshots:
    """Return the namespace's snapshots, the newest first."""
    here = service(request)
    here.admit(request, "read", namespace)
    with here.database.reading() as connection:
        return Snapshots(snapshots=tuple(snapshots.entries(connection, namespace)))


@router.post(
    "/v1/namespaces/{namespace}/snapshots",
    operation_id="take_snapshot",
    status_code=201,
    response_model=SnapshotEntry,
    responses={
        **documented("storage-full"),
        200: {"model": SnapshotEntry, "description": "There was one of the same content."},
    },
)
def take_snapshot(
    request: Request, response: Response, namespace: NamespaceName, asked: SnapshotRequest
) -> SnapshotEntry:
    """Keep what the namespace holds now, to be had by its digest for ever."""
    here = service(request)
    caller = here.admit(request, "write", namespace)
    with snapshots.one_of_few():
        entry, new = snapshots.take(
            here.database, namespace, asked, caller.name, here.settings.bundle_limit_bytes
        )
    response.status_code = 201 if new else 200
    return entry


@router.get(
    "/v1/namespaces/{namespace}/snapshots/{digest}",
    operation_id="get_snapshot",
    response_class=Response,
    responses={**documented("no-snapshot"), 200: {"content": _BUNDLE}},
)
def get_snapshot(
    request: Request, namespace: NamespaceName, digest: Digest, if_none_match: Etags = NONE
) -> Response:
    """Return a snapshot: a bundle, whose bytes have this sha256."""
    here = service(request)
    here.admit(request, "read", namespace)
    with here.database.reading() as connection:
        data = snapshots.load(connection, namespace, digest)
    return _bundle(data, digest, if_none_match, lasting=True)


def _unpacked(body: bytes, limit_bytes: int) -> bytes:
    try:
        plain, damage = bundle.unpack(body, source=_SOURCE, limit_bytes=limit_bytes)
    except BadBundleError as error:
        raise Refused("too-large", f"{error.reason}. Send it in parts.") from None
    if damage is not None:
        raise BadBundleError(_SOURCE, damage)
    return plain


def _bundle(data: bytes, digest: str, if_none_match: str, *, lasting: bool) -> Response:
    lasts = "private, max-age=31536000, immutable" if lasting else "no-cache"
    headers = {"ETag": protocol.quoted(digest), "Cache-Control": lasts}
    if digest in {protocol.unquoted(tag) for tag in if_none_match.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=protocol.MEDIA_BUNDLE)
