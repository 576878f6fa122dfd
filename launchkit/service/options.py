"""What a server is told when it starts. Of the service; imports leaves only."""

from __future__ import annotations

from dataclasses import dataclass

from launchkit.service import protocol


@dataclass(frozen=True)
class ServiceSettings:
    """How one server process works; every replica over one database has the same.

    Rates are per token (without one: per address), sizes in bytes, durations in seconds.
    """

    database_url: str
    """As SQLAlchemy has it: ``sqlite:////path/to/file`` or ``postgresql+psycopg://…``."""
    open_reads: bool = False
    """Whether reading needs no token."""
    open_writes: bool = False
    """Whether writing needs none either: for a machine of one's own, and for tests."""
    migrate: bool = True
    """Whether an older database is brought up to this version at the start."""
    rate_per_s: float = 2000.0
    """Requests that are let through; twice as many at once."""
    writes_per_s: float = 500.0
    """Writes that are let through; twice as many at once."""
    guesses_per_s: float = 20.0
    """Tokens that are not in force, per address."""
    document_limit_bytes: int = protocol.DOCUMENT_LIMIT_BYTES
    bundle_limit_bytes: int = protocol.BUNDLE_LIMIT_BYTES // 4
    body_timeout_s: float = 30.0
    """How long a request may take to arrive; a bundle ten times as long."""
    database_timeout_s: float = 5.0
    """How long a request waits for a connection, a lock or the server of the database."""
    threads: int = 24
    """Requests that are worked on at once; each has a connection to the database."""
    flush_s: float = 2.0
    """How often counted hits and misses are written to the database."""
    audit_days: int = 365
    """How long the audit log is kept; 0: for ever."""
    secure_cookies: bool = False
    """Whether the web page's cookie is for https only: behind a proxy that has a certificate."""
