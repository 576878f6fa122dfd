"""The audit log: who wrote what, in the transaction that wrote it. Of the service's server."""

from __future__ import annotations

from sqlalchemy import delete, insert
from sqlalchemy.engine import Connection

from launchkit.configs import TunedRecord
from launchkit.service import protocol
from launchkit.service.db import DAY_MS, Database, NowMs
from launchkit.service.tables import audit


def log(
    connection: Connection,
    action: str,
    writer: str,
    namespace: str = "",
    *,
    record: TunedRecord | None = None,
    before: str | None = None,
    after: str | None = None,
    detail: str = "",
) -> None:
    """Add one entry: of a record (its entity tags before and after), or of something else."""
    of_record = {"kernel_name": "", "device": "", "key_hash": "", "key_text": "", "toolchain": ""}
    if record is not None:
        of_record = record_columns(record)
    values = {"namespace": namespace, "action": action, "writer": plain(writer, 120)}
    etags = {"etag_before": before, "etag_after": after, "detail": plain(detail, 1000)}
    connection.execute(insert(audit).values(at_ms=NowMs(), **values, **of_record, **etags))


def record_columns(record: TunedRecord) -> dict[str, str]:
    """Return what tables tell people about a record."""
    return {
        "kernel_name": plain(record.kernel.name, 200),
        "device": protocol.record_parts(record.kernel, record.device, record.key)[2],
        "key_hash": record.key.digest,
        "key_text": plain(record.key.text, 1000),
        "toolchain": record.toolchain.triton,
    }


def plain(text: str, limit: int) -> str:
    """Return text as a column takes it: PostgreSQL has no NUL, and no more than ``limit``."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")[:limit]


def forget(database: Database, days: int) -> int:
    """Delete entries older than so many days; return how many."""
    oldest = NowMs() - days * DAY_MS
    with database.writing() as connection:
        return connection.execute(delete(audit).where(audit.c.at_ms < oldest)).rowcount
