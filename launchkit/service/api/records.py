"""HTTP: records of one key, and lookups of many. Of the service's server."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError
from launchkit.service import protocol, records, signing
from launchkit.service.answers import documented
from launchkit.service.api.parameters import (
    NONE,
    Body,
    Digest,
    Etags,
    IfMatch,
    IfNoneMatch,
    NamespaceName,
    Segment,
    Signature,
    Toolchain,
)
from launchkit.service.context import Service, service
from launchkit.service.protocol import (
    LookupAnswers,
    LookupRequest,
    MissedFor,
    PutAnswer,
    WantedRecord,
)
from launchkit.service.records import Put, Stored
from launchkit.service.refused import Refused
from launchkit.store import document

router = APIRouter(tags=["records"])

_PATH = "/v1/namespaces/{namespace}/records/{kernel}/{digest}/{device}/{key_hash}"
_DOCUMENT = {"$ref": "#/components/schemas/ConfigDocument"}
_BODY = {"required": True, "content": {protocol.MEDIA_DOCUMENT: {"schema": _DOCUMENT}}}


@router.get(
    _PATH,
    operation_id="get_record",
    response_class=Response,
    responses={
        **documented("absent", "toolchain"),
        200: {"content": {protocol.MEDIA_DOCUMENT: {"schema": _DOCUMENT}}},
        304: {"description": "It is what If-None-Match says."},
    },
)
def get_record(
    request: Request,
    namespace: NamespaceName,
    kernel: Segment,
    digest: Digest,
    device: Segment,
    key_hash: Digest,
    toolchain: Toolchain = NONE,
    if_none_match: Etags = NONE,
) -> Response:
    """Return the document of one key: of one Triton's record, or of all that are stored."""
    here = service(request)
    here.admit(request, "read", namespace)
    parts = (kernel, digest, device, key_hash)
    if toolchain == NONE:
        with here.database.reading() as connection:
            found = records.find_all_toolchains(connection, namespace, parts)
        if found is None:
            raise _missed("absent")
        return _document(found, signing.etag(found), None, if_none_match)
    wanted = WantedRecord(
        kernel=kernel, digest=digest, device=device, key_hash=key_hash, toolchain=toolchain
    )
    answer = _look_up(here, namespace, (wanted,))[0]
    if not isinstance(answer, Stored):
        raise _missed(answer)
    data = answer.document.encode()
    return _document(data, answer.etag, answer.signature, if_none_match)


@router.put(
    _PATH,
    operation_id="put_record",
    response_model=PutAnswer,
    responses={
        **documented("signed", "not-merged", "changed", "precondition-required", "other-key",
                     "storage-full"),
        201: {"model": PutAnswer, "description": "There was none."},
    },
    openapi_extra={"requestBody": _BODY},
)  # fmt: skip
def put_record(
    request: Request,
    response: Response,
    namespace: NamespaceName,
    kernel: Segment,
    digest: Digest,
    device: Segment,
    key_hash: Digest,
    body: Body,
    toolchain: Toolchain = NONE,
    if_match: IfMatch = NONE,
    if_none_match: IfNoneMatch = NONE,
    launchkit_signature: Signature = NONE,
) -> PutAnswer:
    """Merge one record into what is stored for its key: what is acknowledged is never lost."""
    here = service(request)
    caller = here.admit(request, "write", namespace)
    record = _record(body, (kernel, digest, device, key_hash), toolchain)
    asked = Put(
        namespace, record, caller.name, launchkit_signature or None,
        (protocol.unquoted(if_match), if_none_match != NONE), here.settings.document_limit_bytes,
    )  # fmt: skip
    with here.database.writing() as connection:
        done = records.put(here.database, connection, asked)
    unchanged = "changed" if done.changed else "unchanged"
    here.metrics.wrote(namespace, "created" if done.created else unchanged)
    response.headers["ETag"] = protocol.quoted(done.etag)
    response.status_code = 201 if done.created else 200
    return done


@router.post(
    "/v1/namespaces/{namespace}/lookup",
    operation_id="lookup",
    response_model=LookupAnswers,
    responses=documented(),
)
def lookup(request: Request, namespace: NamespaceName, asked: LookupRequest) -> Response:
    """Return many records at once, in the order in which they are asked for."""
    here = service(request)
    here.admit(request, "read", namespace)
    found = _look_up(here, namespace, asked.wanted)
    # What is stored is JSON already: it is put together, not parsed and written again.
    parts, size = [], 0
    for answer in found:
        part = _answer(answer)
        if size + len(part) > protocol.ANSWER_LIMIT_BYTES:
            part = _answer("omitted")
        parts.append(part)
        size += len(part)
    return Response(b'{"answers":[%b]}' % b",".join(parts), media_type=protocol.MEDIA_DOCUMENT)


def _look_up(
    here: Service, namespace: str, wanted: tuple[WantedRecord, ...]
) -> list[Stored | MissedFor]:
    with here.database.reading() as connection:
        found = records.find(connection, namespace, wanted)
    here.metrics.looked_up(namespace, wanted, found)
    return found


def _answer(answer: Stored | MissedFor) -> bytes:
    if not isinstance(answer, Stored):
        return jsonio.dumps_compact({"missed": answer})
    rest = jsonio.dumps_compact({"etag": answer.etag, "signature": answer.signature})
    return b'{"document":%b,%b' % (answer.document.encode(), rest[1:])


def _missed(reason: MissedFor) -> Refused:
    if reason == "toolchain":
        return Refused(
            "toolchain",
            "there are records of this key for other versions of Triton. "
            "Tune it with this one, or ask without toolchain.",
        )
    return Refused("absent", "there is no record of this key. Tune it, and PUT what was found.")


def _document(data: bytes, etag: str, signature: str | None, if_none_match: str) -> Response:
    headers = {"ETag": protocol.quoted(etag), "Cache-Control": "no-cache"}
    if signature is not None:
        headers[protocol.HEADER_SIGNATURE] = signature
    known = {protocol.unquoted(tag) for tag in if_none_match.split(",")}
    if etag in known or if_none_match.strip() == "*":
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type=protocol.MEDIA_DOCUMENT)


def _record(body: bytes, parts: tuple[str, str, str, str], toolchain: str) -> TunedRecord:
    found = document.parse(body, source="the document").records
    if len(found) != 1:
        raise BadDocumentError("the document", f"it holds {len(found)} records instead of one")
    record = found[0]
    of_record = protocol.record_parts(record.kernel, record.device, record.key)
    if of_record != parts or toolchain not in (NONE, record.toolchain.triton):
        raise Refused(
            "other-key", f"the document is of {'/'.join(of_record)} and {record.toolchain.text}. "
            "PUT it there.",
        )  # fmt: skip
    return record
