"""The database behind a server: connections, transactions and its clock. Of the service.

SQLite and PostgreSQL arbitrate writes themselves: a transaction that writes takes SQLite's one
write lock at its start, or locks PostgreSQL's rows as it reads them.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import os
import threading
from collections.abc import Iterator
from typing import Any, Literal

from sqlalchemy import BigInteger, Table, create_engine, event, make_url, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import ArgumentError, InvalidatePoolError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool
from sqlalchemy.sql.functions import FunctionElement

from launchkit import clock
from launchkit.errors import StoreError, UsageError
from launchkit.service.options import ServiceSettings

DAY_MS = 86_400_000

_WRITES = "launchkit_writes"
_IDLE_NS = 1_000_000_000


class NowMs(FunctionElement[int]):
    """The database's time in ms since 1970, in the middle of a statement."""

    type = BigInteger()
    inherit_cache = True


@compiles(NowMs, "sqlite")
def _sqlite_now(element: NowMs, compiler: Any, **options: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


@compiles(NowMs, "postgresql")
def _postgresql_now(element: NowMs, compiler: Any, **options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"


def utc_text(time_ms: int) -> str:
    """Return a time of the database as documents have it: ``2026-01-31T23:59:59Z``."""
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


class Database:
    """One process's connections to the database; every method may be called from any thread."""

    def __init__(self, engine: Engine, patience_s: float) -> None:
        self.engine = engine
        self._patience_s = patience_s
        self._turn = threading.Lock()
        self.kind: Literal["sqlite", "postgresql"] = (
            "sqlite" if engine.dialect.name == "sqlite" else "postgresql"
        )

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from: each statement sees what is committed when it begins."""
        with self.engine.connect() as connection:
            if self.kind == "postgresql":
                # Beginning and ending a transaction costs as much as the question itself.
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextlib.contextmanager
    def streaming(self) -> Iterator[Connection]:
        """A transaction that only reads: for what is read row by row while others write."""
        with self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes; committed at the end of the block, or not at all."""
        with self._in_turn(), self.engine.connect() as connection:
            # Of an INSERT too: with ON CONFLICT it tells who came first.
            connection = connection.execution_options(**{_WRITES: True, "preserve_rowcount": True})
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Let a process's writers to SQLite queue: its own lock is polled, at longer and longer
        intervals. Whoever waits too long asks SQLite all the same.
        """
        if self.kind != "sqlite" or not self._turn.acquire(timeout=self._patience_s):
            yield
            return
        try:
            yield
        finally:
            self._turn.release()

    def insert(self, table: Table) -> Any:
        """Return an INSERT that knows ON CONFLICT; both dialects spell it alike."""
        return sqlite.insert(table) if self.kind == "sqlite" else postgresql.insert(table)

    def now_ms(self, connection: Connection) -> int:
        """Return the database's time in ms since 1970."""
        return int(connection.execute(select(NowMs())).scalar_one())

    def size_bytes(self, connection: Connection) -> int:
        """Return what the database takes on disk, indexes and free pages included."""
        texts = {
            "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
            "postgresql": "SELECT pg_database_size(current_database())",
        }
        return int(connection.execute(text(texts[self.kind])).scalar_one())

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()


def connect(settings: ServiceSettings) -> Database:
    """Return the database at a URL; nothing is opened yet.

    Raises UsageError for a URL that is none, or of another kind of database.
    """
    url = _url(settings.database_url)
    if url.get_backend_name() == "sqlite":
        return Database(_sqlite(url, settings), settings.database_timeout_s)
    return Database(_postgresql(url, settings), settings.database_timeout_s)


@contextlib.contextmanager
def usable(database: Database) -> Iterator[Database]:
    """Give a database, and close it after the block.

    Raises StoreError for what the database refuses inside: with its reason, without the URL.
    """
    try:
        yield database
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).strip().rstrip(".")
        raise StoreError(
            f"the database cannot be used: {reason}. Start it, or give another one with --database."
        ) from None
    finally:
        database.close()


def _url(place: str) -> URL:
    try:
        url = make_url(place)
    except ArgumentError:
        raise UsageError(
            "the database's URL cannot be understood. Write sqlite:////path/to/file.db or "
            "postgresql://user:password@host/name."
        ) from None
    name = url.get_backend_name()
    if name not in ("sqlite", "postgresql"):
        raise UsageError(
            f"{name} is no kind of database that the service knows. Give a SQLite or a PostgreSQL "
            "URL."
        )
    # One driver each: the one that the extra installs.
    return url.set(drivername="sqlite" if name == "sqlite" else "postgresql+psycopg")


def _sqlite(url: URL, settings: ServiceSettings) -> Engine:
    if url.database in (None, "", ":memory:"):
        raise UsageError("a database in memory has one connection. Give SQLite a file.")
    engine = create_engine(
        url, **_pool(settings), connect_args={"timeout": settings.database_timeout_s}
    )

    @event.listens_for(engine, "connect")
    def opened(connection: Any, record: Any) -> None:
        # Python's own transactions would begin late, and without the lock.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

        record.info["file"] = _file(url)

    @event.listens_for(engine, "checkout")
    def taken(connection: Any, record: Any, proxy: Any) -> None:
        # What is written to a file that was deleted or replaced is lost, and acknowledged.
        if record.info.get("file") != _file(url):
            raise InvalidatePoolError

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _file(url: URL) -> tuple[int, int] | None:
    """Return which file stands at the URL's path; None: there is none."""
    try:
        found = os.stat(url.database or "")
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _postgresql(url: URL, settings: ServiceSettings) -> Engine:
    timeout_ms = math.ceil(settings.database_timeout_s * 1000)
    # A dead server is noticed by the deadlines of connecting, of statements and of TCP.
    arguments = {
        "connect_timeout": max(2, math.ceil(settings.database_timeout_s)),
        "options": f"-c statement_timeout={timeout_ms * 4} -c lock_timeout={timeout_ms} "
        f"-c idle_in_transaction_session_timeout={timeout_ms * 4}",
        "tcp_user_timeout": timeout_ms * 2,
        "application_name": "launchkit",
    }
    try:
        engine = create_engine(url, **_pool(settings), connect_args=arguments)
    except (NoSuchModuleError, ModuleNotFoundError):
        raise UsageError(
            "PostgreSQL's driver is not installed. Install it: pip install "
            "'launchkit-triton[service]'."
        ) from None
    _ping_the_idle(engine)
    return engine


def _ping_the_idle(engine: Engine) -> None:
    """Ask a connection that was idle whether it works: asking all would double what a read costs."""

    @event.listens_for(engine, "checkin")
    def returned(connection: Any, record: Any) -> None:
        record.info["idle_since_ns"] = clock.now_ns()

    @event.listens_for(engine, "checkout")
    def taken(connection: Any, record: Any, proxy: Any) -> None:
        since_ns = record.info.pop("idle_since_ns", None)
        if since_ns is None or clock.now_ns() - since_ns < _IDLE_NS:
            return
        try:
            works = engine.dialect.do_ping(connection)
        except engine.dialect.dbapi.Error:  # type: ignore[union-attr]
            works = False
        if not works:
            # The others were opened before it broke, too.
            raise InvalidatePoolError


class _Pool(QueuePool):
    """Closes what comes back after its end: a connection in use then would stay open for ever."""

    _ended = False

    def dispose(self) -> None:
        self._ended = True
        super().dispose()

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        super()._do_return_conn(record)
        if self._ended:
            super().dispose()


def _pool(settings: ServiceSettings) -> dict[str, Any]:
    # One connection a thread, and a few for what runs beside the requests.
    return {
        "poolclass": _Pool,
        "pool_size": settings.threads,
        "max_overflow": 4,
        "pool_timeout": settings.database_timeout_s,
        # An error's text, which is logged, would have what a statement was given.
        "hide_parameters": True,
    }
