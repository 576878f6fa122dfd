"""The first schema: namespaces, records, leases, snapshots, tokens, audit and counts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table in an empty database."""
    _make_namespaces()
    _make_audit()
    _make_counters()
    _make_leases()
    _make_misses()
    _make_records()
    _make_snapshots()
    _make_tokens()


def downgrade() -> None:
    """Remove every table, and all that is stored."""
    for name in (
        "tokens",
        "snapshots",
        "records",
        "misses",
        "leases",
        "counters",
        "audit",
        "namespaces",
    ):
        op.drop_table(name)


def _make_namespaces() -> None:
    op.create_table(
        "namespaces",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_namespaces")),
    )


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("writer", sa.String(length=120), nullable=False),
        sa.Column("kernel_name", sa.String(length=200), nullable=False),
        sa.Column("device", sa.String(length=160), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("key_text", sa.String(length=1000), nullable=False),
        sa.Column("toolchain", sa.String(length=120), nullable=False),
        sa.Column("etag_before", sa.String(length=64), nullable=True),
        sa.Column("etag_after", sa.String(length=64), nullable=True),
        sa.Column("detail", sa.String(length=1000), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_at_ms"), "audit", ["at_ms"], unique=False)
    op.create_index(op.f("ix_audit_namespace_id"), "audit", ["namespace", "id"], unique=False)


def _make_counters() -> None:
    op.create_table(
        "counters",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("label", sa.String(length=40), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace"], ["namespaces.name"], name=op.f("fk_counters_namespace")
        ),
        sa.PrimaryKeyConstraint("namespace", "name", "label", name=op.f("pk_counters")),
    )


def _make_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("identity", sa.String(length=32), nullable=False),
        sa.Column("holder", sa.String(length=200), nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("kernel", sa.String(length=200), nullable=False),
        sa.Column("key_text", sa.String(length=1000), nullable=False),
        sa.Column("writer", sa.String(length=120), nullable=False),
        sa.Column("acquired_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace"], ["namespaces.name"], name=op.f("fk_leases_namespace")
        ),
        sa.PrimaryKeyConstraint("namespace", "identity", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_expires_ms"), "leases", ["expires_ms"], unique=False)


def _make_misses() -> None:
    op.create_table(
        "misses",
        sa.Column("place", sa.String(length=32), nullable=False),
        sa.Column("toolchain", sa.String(length=120), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("kernel", sa.String(length=160), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("device", sa.String(length=160), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.String(length=20), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace"], ["namespaces.name"], name=op.f("fk_misses_namespace")
        ),
        sa.PrimaryKeyConstraint("place", "toolchain", name=op.f("pk_misses")),
    )
    op.create_index(
        op.f("ix_misses_namespace_count"), "misses", ["namespace", "count"], unique=False
    )
    op.create_index(
        op.f("ix_misses_namespace_last_ms"), "misses", ["namespace", "last_ms"], unique=False
    )


def _make_records() -> None:
    op.create_table(
        "records",
        sa.Column("place", sa.String(length=32), nullable=False),
        sa.Column("toolchain", sa.String(length=120), nullable=False),
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("kernel_name", sa.String(length=200), nullable=False),
        sa.Column("kernel", sa.String(length=160), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("device", sa.String(length=160), nullable=False),
        sa.Column("device_name", sa.String(length=200), nullable=False),
        sa.Column("key_hash", sa.String(length=64), nullable=False),
        sa.Column("key_text", sa.String(length=1000), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("etag", sa.String(length=64), nullable=False),
        sa.Column("signature", sa.String(length=80), nullable=True),
        sa.Column("chosen_text", sa.String(length=1000), nullable=False),
        sa.Column("median_us", sa.Float(), nullable=True),
        sa.Column("tuning_s", sa.Float(), nullable=True),
        sa.Column("writer", sa.String(length=120), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace"], ["namespaces.name"], name=op.f("fk_records_namespace")
        ),
        sa.PrimaryKeyConstraint("place", "toolchain", name=op.f("pk_records")),
    )
    op.create_index(
        op.f("ix_records_namespace_device"), "records", ["namespace", "device"], unique=False
    )
    op.create_index(
        op.f("ix_records_namespace_kernel_name_device"),
        "records",
        ["namespace", "kernel_name", "device"],
        unique=False,
    )
    op.create_index(
        op.f("ix_records_namespace_updated_ms"),
        "records",
        ["namespace", "updated_ms"],
        unique=False,
    )


def _make_snapshots() -> None:
    op.create_table(
        "snapshots",
        sa.Column("namespace", sa.String(length=63), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("records", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.String(length=120), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("bundle", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["namespace"], ["namespaces.name"], name=op.f("fk_snapshots_namespace")
        ),
        sa.PrimaryKeyConstraint("namespace", "digest", name=op.f("pk_snapshots")),
    )


def _make_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("namespaces", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
    )
