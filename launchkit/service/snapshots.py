"""Snapshots: what a namespace held at a moment, never changed, named by digest. Of the server."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import threading
from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.engine import Connection

from launchkit.errors import UsageError
from launchkit.service import audit, spaces
from launchkit.service.db import Database, NowMs, utc_text
from launchkit.service.protocol import SnapshotEntry, SnapshotRequest
from launchkit.service.records import count, walk
from launchkit.service.refused import Refused
from launchkit.service.tables import snapshots
from launchkit.store import bundle

_LEAST_BYTES = 400
"""No record takes less of a bundle."""
_MAKING = threading.BoundedSemaphore(2)
"""Making a bundle takes some times its size of memory."""
_PATIENCE_S = 2.0


@contextlib.contextmanager
def one_of_few() -> Iterator[None]:
    """Let two large bundles be made at a time. Raises Refused where others are at it for long."""
    if not _MAKING.acquire(timeout=_PATIENCE_S):
        raise Refused(
            "too-many", "other bundles are being made. Ask again later.", retry_after_s=5.0
        )
    try:
        yield
    finally:
        _MAKING.release()


def packed(
    connection: Connection, namespace: str, asked: SnapshotRequest, limit_bytes: int
) -> tuple[bytes, int]:
    """Return records as a bundle, and how many they are. Raises Refused for too many."""
    # Told by the index where a bundle cannot hold so many, whatever is in them.
    if count(connection, namespace, asked.kernel, asked.device) * _LEAST_BYTES > limit_bytes:
        raise _too_large(limit_bytes)
    found, size = [], 0
    for record, size_bytes in walk(connection, namespace, asked.kernel, asked.device):
        found.append(record)
        size += size_bytes
        if size > limit_bytes:
            raise _too_large(limit_bytes)
    try:
        data = bundle.dump(found)
    except UsageError:
        raise _too_large(limit_bytes) from None
    if len(data) > limit_bytes:
        raise _too_large(limit_bytes)
    return data, len(found)


def take(
    database: Database, namespace: str, asked: SnapshotRequest, writer: str, limit_bytes: int
) -> tuple[SnapshotEntry, bool]:
    """Keep what a namespace holds now; the same content is one snapshot. True: it is new."""
    with database.streaming() as connection:
        data, stored = packed(connection, namespace, asked, limit_bytes)
    digest = hashlib.sha256(data).hexdigest()
    row = {
        "namespace": namespace,
        "digest": digest,
        "records": stored,
        "size_bytes": len(data),
        "writer": audit.plain(writer, 120),
        "created_ms": NowMs(),
        "bundle": gzip.compress(data, compresslevel=6, mtime=0),
    }
    with database.writing() as connection:
        made = database.insert(snapshots).values(**row).on_conflict_do_nothing()
        new = bool(connection.execute(made).rowcount)
        if new:
            audit.log(connection, "snapshot", writer, namespace, after=digest)
        found = [each for each in entries(connection, namespace) if each.digest == digest]
    if not found:
        raise Refused(
            "unavailable", "the same snapshot was deleted at this moment. Take it again.",
            retry_after_s=1.0,
        )  # fmt: skip
    return found[0], new


def entries(connection: Connection, namespace: str) -> list[SnapshotEntry]:
    """Return a namespace's snapshots, the newest first. Raises Refused where there is none such."""
    spaces.require(connection, namespace)
    columns = (snapshots.c.digest, snapshots.c.records, snapshots.c.size_bytes)
    query = select(*columns, snapshots.c.created_ms).where(snapshots.c.namespace == namespace)
    return [
        SnapshotEntry(
            digest=row.digest,
            records=row.records,
            size_bytes=row.size_bytes,
            created=utc_text(row.created_ms),
        )
        for row in connection.execute(query.order_by(snapshots.c.created_ms.desc()))
    ]


def load(connection: Connection, namespace: str, digest: str) -> bytes:
    """Return a snapshot's bundle. Raises Refused where there is none."""
    where = (snapshots.c.namespace == namespace, snapshots.c.digest == digest)
    packed_bundle = connection.execute(select(snapshots.c.bundle).where(*where)).scalar()
    if packed_bundle is None:
        spaces.require(connection, namespace)
        raise Refused("no-snapshot", f"there is no snapshot {digest}. GET snapshots lists them.")
    return gzip.decompress(packed_bundle)


def _too_large(limit_bytes: int) -> Refused:
    return Refused(
        "too-large",
        f"it would have more than {limit_bytes} bytes. Ask by kernel or by device.",
    )
