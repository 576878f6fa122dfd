"""What client and server of the config service agree on. Above the store; both ends import it.

Paths, headers, limits, error codes and the JSON of requests and answers. docs/http-api.md tells
the same to people. Every part of a path is of ``A-Za-z0-9_.~-``, so that no proxy and no framework
has anything to decode. Times are durations in seconds: clocks of two machines are never compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from launchkit.configs import TunedRecord
from launchkit.keys import DeviceId, KernelId, LaunchKey
from launchkit.store.flights import Identity

API = "/v1"
"""Every path of this version begins with it; what is not compatible gets another."""
DEFAULT_NAMESPACE = "default"
"""The namespace that every server has."""

HEADER_SIGNATURE = "Launchkit-Signature"
"""Of a PUT and of a GET that names a toolchain: ``signing.sign`` of the record; absent: unsigned."""
HEADER_LEASE = "Launchkit-Lease"
"""The secret of a lease, in requests of its holder."""
HEADER_REQUEST = "Launchkit-Request"
"""A request's number, which stands in the server's log too."""
MEDIA_DOCUMENT = "application/json"
MEDIA_BUNDLE = "application/x-ndjson"
"""A bundle as store/bundle.py has it, plain; packed by gzip it says so in Content-Encoding."""

DOCUMENT_LIMIT_BYTES = 2 * 2**20
"""No larger document is taken or given for one record."""
REQUEST_LIMIT_BYTES = 512 * 1024
"""No larger JSON request is taken."""
BUNDLE_LIMIT_BYTES = 256 * 2**20
"""No larger bundle is taken or given, packed or unpacked."""
LOOKUP_LIMIT = 256
"""No more records in one lookup."""
ANSWER_LIMIT_BYTES = 32 * 2**20
"""No larger answer to a lookup is given: what no longer fits is a miss for the reason ``omitted``."""
LEASE_SECONDS = (1.0, 3600.0)
"""The shortest and the longest time that a lease may be asked for."""

SEGMENT_PATTERN = r"^[A-Za-z0-9_.~\-]{1,160}$"
SHA256_PATTERN = r"^[0-9a-f]{64}$"
PLAIN_PATTERN = r"^[^\x00-\x1f\x7f]+$"
PLAIN_OR_EMPTY_PATTERN = r"^[^\x00-\x1f\x7f]*$"
NAMESPACE_PATTERN = r"^[a-z0-9][a-z0-9._\-]{0,62}$"
IDENTITY_PATTERN = r"^[0-9a-f]{32}$"
LEASE_SECRET_PATTERN = r"^[A-Za-z0-9_\-]{16,128}$"
IF_MATCH_PATTERN = r'^"[0-9a-f]{64}"$'

Namespace: TypeAlias = Annotated[str, Field(pattern=NAMESPACE_PATTERN)]
Segment: TypeAlias = Annotated[str, Field(pattern=SEGMENT_PATTERN)]
Digest: TypeAlias = Annotated[str, Field(pattern=SHA256_PATTERN)]
LeaseIdentity: TypeAlias = Annotated[str, Field(pattern=IDENTITY_PATTERN)]
"""``store.flights.identity_digest`` of the record that is to be tuned."""
ToolchainText: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=120, pattern=PLAIN_PATTERN)
]
"""Triton's version, as in a record."""
LeaseSeconds: TypeAlias = Annotated[float, Field(ge=LEASE_SECONDS[0], le=LEASE_SECONDS[1])]
Scope: TypeAlias = Literal["read", "write", "admin"]
"""Each allows what those before it allow."""

MissedFor: TypeAlias = Literal["absent", "toolchain", "omitted"]
"""absent: nothing stored; toolchain: only for other versions of Triton; omitted: it is there, and
the answer was full: ask again for less."""
ErrorCode: TypeAlias = Literal[
    "bad-request",  # 400: not HTTP or JSON as it should be
    "unauthenticated",  # 401: no token, or one that is not (or no longer) known
    "forbidden",  # 403: the token does not allow this
    "absent",  # 404: no record of this key
    "toolchain",  # 404: records of this key, of other versions of Triton only
    "no-namespace",  # 404
    "no-snapshot",  # 404
    "no-path",  # 404: nothing is served there
    "no-method",  # 405
    "too-slow",  # 408: the request did not arrive in time
    "lease-held",  # 409: another holder has it; `lease` says for how long
    "lease-lost",  # 409: it is not, or no longer, this holder's
    "signed",  # 409: a signed record takes no unsigned result
    "not-merged",  # 409: a signed result leaves out what is stored; merge, sign, try again
    "exists",  # 409: there is one of this name
    "changed",  # 412: If-Match or If-None-Match does not hold any more
    "too-large",  # 413
    "no-media",  # 415: another Content-Encoding than gzip
    "invalid",  # 422: understood, and not a valid record, bundle or request
    "other-key",  # 422: a valid record, of another key than the path says
    "precondition-required",  # 428: a signed result for a stored record needs If-Match
    "too-many",  # 429: Retry-After says when
    "internal",  # 500
    "unavailable",  # 503: the database does not answer; Retry-After says when
    "storage-full",  # 507: nothing was stored
]


class Message(BaseModel):
    """Base of every request and answer: strict about what it is given, silent on what it adds."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Request(Message):
    """Base of what clients send: an unknown field is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ErrorAnswer(Message):
    """The body of every answer above 399."""

    code: ErrorCode
    message: str
    """What is wrong, and what to do."""
    request: str = ""
    """The request's number in the server's log."""
    etag: str | None = None
    """Of ``changed``, ``signed`` and ``not-merged``: what is stored, without quotes."""
    lease: LeaseState | None = None
    """Of ``lease-held``: who has it."""


class WantedRecord(Request):
    """Which record is wanted: the parts of its path, and Triton's version."""

    kernel: Segment
    digest: Digest
    device: Segment
    key_hash: Digest
    toolchain: ToolchainText


class LookupRequest(Request):
    """POST lookup: many records at once."""

    wanted: Annotated[tuple[WantedRecord, ...], Field(min_length=1, max_length=LOOKUP_LIMIT)]


class LookupAnswer(Message):
    """One wanted record: a document of this record alone, or why there is none."""

    document: dict[str, Any] | None = None
    etag: str | None = None
    signature: str | None = None
    missed: MissedFor | None = None


class LookupAnswers(Message):
    """Answers in the order in which the records were asked for."""

    answers: tuple[LookupAnswer, ...]


class PutAnswer(Message):
    """What a PUT did; it is stored when this arrives."""

    etag: str
    """sha256 of what is stored now, without quotes; the ETag header has it within quotes."""
    created: bool
    changed: bool
    """False: all of it was known already."""


class AcquireRequest(Request):
    """POST a lease: ask to be the only one who tunes a key."""

    holder: Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN_PATTERN)]
    """For people: host and process."""
    ttl_s: LeaseSeconds
    kernel: Annotated[str, Field(max_length=200, pattern=PLAIN_OR_EMPTY_PATTERN)] = ""
    """For people: which kernel."""
    key: Annotated[str, Field(max_length=1000, pattern=PLAIN_OR_EMPTY_PATTERN)] = ""
    """For people: which key."""


class RenewRequest(Request):
    """PUT a lease: keep it for so long from now."""

    ttl_s: LeaseSeconds


class LeaseGranted(Message):
    """The lease is the asker's, for so long."""

    token: Annotated[str, Field(pattern=LEASE_SECRET_PATTERN)]
    """The lease's secret: the holder sends it in ``Launchkit-Lease``."""
    expires_in_s: float


class LeaseState(Message):
    """A lease that somebody else holds."""

    holder: str
    expires_in_s: float
    retry_after_s: float
    """When it is worth asking again."""


class NamespaceRequest(Request):
    """POST namespaces."""

    name: Namespace


class NamespaceEntry(Message):
    """One namespace that the token may read."""

    name: str
    records: int


class Namespaces(Message):
    """GET namespaces."""

    namespaces: tuple[NamespaceEntry, ...]


class SnapshotRequest(Request):
    """POST snapshots: what to keep; without patterns all of the namespace."""

    kernel: Annotated[str, Field(min_length=1, max_length=200, pattern=PLAIN_PATTERN)] | None = None
    """Only kernels of this declared name."""
    device: Segment | None = None
    """Only this device, as in paths."""


class SnapshotEntry(Message):
    """A snapshot: a bundle that never changes."""

    digest: str
    """sha256 of the bundle's bytes."""
    records: int
    size_bytes: int
    created: str
    """When, as ``2026-01-31T23:59:59Z``."""


class Snapshots(Message):
    """GET snapshots, the newest first."""

    snapshots: tuple[SnapshotEntry, ...]


class ImportAnswer(Message):
    """POST bundle: how many records it held, and what became of them."""

    records: int
    created: int
    changed: int
    unchanged: int
    refused: int
    """Signed ones: a bundle is not signed."""


class StatusAnswer(Message):
    """GET /status."""

    version: str
    schema_version: str
    database: Literal["sqlite", "postgresql"]
    uptime_s: float
    namespaces: int
    records: int
    leases: int
    snapshots: int


def kernel_segment(kernel: KernelId) -> str:
    """Return how a kernel's declared name stands in paths: itself, if it is plain."""
    return kernel.slug[: -len(kernel.digest[:12]) - 1]


def record_parts(kernel: KernelId, device: DeviceId, key: LaunchKey) -> tuple[str, str, str, str]:
    """Return the parts of a record's path: kernel, digest, device, hash of the key."""
    return (kernel_segment(kernel), kernel.digest, device.slug, key.digest)


def wanted_record(identity: Identity) -> WantedRecord:
    """Return how a lookup asks for the record of this identity."""
    kernel, device, toolchain, key = identity
    name, digest, slug, key_hash = record_parts(kernel, device, key)
    return WantedRecord(
        kernel=name, digest=digest, device=slug, key_hash=key_hash, toolchain=toolchain.triton
    )


def namespace_path(namespace: str, rest: str = "") -> str:
    """Return ``/v1/namespaces/{namespace}`` and what stands below it."""
    return f"{API}/namespaces/{namespace}{rest}"


def record_path(namespace: str, record: TunedRecord) -> str:
    """Return the path of a record; the query ``toolchain=`` picks one version of Triton."""
    parts = "/".join(record_parts(record.kernel, record.device, record.key))
    return namespace_path(namespace, f"/records/{parts}")


def wanted_path(namespace: str, wanted: WantedRecord) -> str:
    """Return the path of a wanted record, without its toolchain."""
    parts = "/".join((wanted.kernel, wanted.digest, wanted.device, wanted.key_hash))
    return namespace_path(namespace, f"/records/{parts}")


def of_toolchain(path: str, triton: str) -> str:
    """Return a record's path with the query that picks its version of Triton."""
    return f"{path}?toolchain={quote(triton, safe='')}"


def lookup_path(namespace: str) -> str:
    """Return where many records are asked for at once."""
    return namespace_path(namespace, "/lookup")


def lease_path(namespace: str, identity: str) -> str:
    """Return the path of a lease; ``identity``: ``store.flights.identity_digest``."""
    return namespace_path(namespace, f"/leases/{identity}")


def quoted(etag: str) -> str:
    """Return an entity tag as headers have it."""
    return f'"{etag}"'


def unquoted(header: str) -> str | None:
    """Return the digest in an ETag header, strong or weak; None for anything else."""
    found = re.fullmatch(r'(?:W/)?"([0-9a-f]{64})"', header.strip())
    return None if found is None else found[1]


def is_namespace(name: str) -> bool:
    """Tell whether ``name`` can be a namespace."""
    return re.fullmatch(NAMESPACE_PATTERN, name) is not None


def bearer(token: str) -> Mapping[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


ErrorAnswer.model_rebuild()
