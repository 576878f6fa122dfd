"""The database's tables. Of the service; needs SQLAlchemy, and nothing else of launchkit.

Times are milliseconds since 1970 by the database's own clock, so that replicas need not agree on
theirs. The migrations make what stands here; a test holds both to be the same.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

# SQLite numbers rows by itself for INTEGER alone.
_ROW_NUMBER = BigInteger().with_variant(Integer, "sqlite")


def _namespace(*, primary_key: bool = False) -> Column[str]:
    owner = ForeignKey("namespaces.name")
    return Column("namespace", String(63), owner, primary_key=primary_key, nullable=False)


namespaces = Table(
    "namespaces",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

records = Table(
    "records",
    metadata,
    # 32 hex digits that stand for namespace, kernel, digest, device and key: a short primary key.
    Column("place", String(32), nullable=False),
    Column("toolchain", String(120), nullable=False),
    _namespace(),
    Column("kernel_name", String(200), nullable=False),
    Column("kernel", String(160), nullable=False),  # as in paths
    Column("digest", String(64), nullable=False),
    Column("device", String(160), nullable=False),  # as in paths
    Column("device_name", String(200), nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("key_text", String(1000), nullable=False),
    Column("document", Text, nullable=False),
    Column("etag", String(64), nullable=False),
    Column("signature", String(80)),
    Column("chosen_text", String(1000), nullable=False),
    Column("median_us", Float),
    Column("tuning_s", Float),
    Column("writer", String(120), nullable=False),
    Column("updated_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("place", "toolchain"),
    Index(None, "namespace", "kernel_name", "device"),
    Index(None, "namespace", "device"),
    Index(None, "namespace", "updated_ms"),
)

leases = Table(
    "leases",
    metadata,
    _namespace(primary_key=True),
    Column("identity", String(32), primary_key=True),
    Column("holder", String(200), nullable=False),
    Column("token_hash", String(64), nullable=False),
    Column("kernel", String(200), nullable=False),
    Column("key_text", String(1000), nullable=False),
    Column("writer", String(120), nullable=False),
    Column("acquired_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index(None, "expires_ms"),
)

snapshots = Table(
    "snapshots",
    metadata,
    _namespace(primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("records", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("writer", String(120), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("bundle", LargeBinary, nullable=False),  # in gzip
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("hash", String(64), nullable=False),
    Column("name", String(100), nullable=False),
    Column("scope", String(8), nullable=False),
    Column("namespaces", Text, nullable=False),  # with commas between them; * is all of them
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _ROW_NUMBER, primary_key=True, autoincrement=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("namespace", String(63), nullable=False),  # empty: of the whole server
    Column("action", String(40), nullable=False),
    Column("writer", String(120), nullable=False),
    Column("kernel_name", String(200), nullable=False),
    Column("device", String(160), nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("key_text", String(1000), nullable=False),
    Column("toolchain", String(120), nullable=False),
    Column("etag_before", String(64)),
    Column("etag_after", String(64)),
    Column("detail", String(1000), nullable=False),
    Index(None, "namespace", "id"),
    Index(None, "at_ms"),
)

counters = Table(
    "counters",
    metadata,
    _namespace(primary_key=True),
    Column("name", String(40), primary_key=True),  # hits, misses, saved_s
    Column("label", String(40), primary_key=True),  # of misses: the reason
    Column("value", Float, nullable=False),
)

misses = Table(
    "misses",
    metadata,
    Column("place", String(32), nullable=False),
    Column("toolchain", String(120), nullable=False),
    _namespace(),
    Column("kernel", String(160), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("device", String(160), nullable=False),
    Column("key_hash", String(64), nullable=False),
    Column("reason", String(20), nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("place", "toolchain"),
    Index(None, "namespace", "count"),
    Index(None, "namespace", "last_ms"),
)
