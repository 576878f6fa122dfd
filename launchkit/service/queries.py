"""What people ask about the records of a namespace: kernels, devices, keys. Of the server.

Reads only. Lists come from indexes, and every list has an end. Times are ms since 1970 by the
database's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.engine import Connection

from launchkit.service.tables import records

LISTED = 500
"""No list of kernels or devices has more rows."""
PAGE_ROWS = 50
PAGES = 100
"""Of a long list so many pages can be turned: then it is time to search."""

Order = Literal["newest", "name"]


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel by its declared name, and how much is stored of it."""

    name: str
    records: int
    devices: int


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device; ``device`` is how paths have it, ``name`` is the vendor's."""

    device: str
    name: str
    records: int
    kernels: int


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version of a kernel (its digest) on one device by one version of Triton."""

    digest: str
    device: str
    device_name: str
    toolchain: str
    records: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record as lists show it; the fields are the columns of the table."""

    kernel_name: str
    kernel: str
    digest: str
    device: str
    device_name: str
    key_hash: str
    key_text: str
    toolchain: str
    chosen_text: str
    median_us: float | None
    writer: str
    updated_ms: int


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One record with its document."""

    row: RecordRow
    document: str
    etag: str
    signature: str | None
    tuning_s: float | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records a list shows: all that fit what is not empty. ``words`` must all be found."""

    words: str = ""
    kernel: str = ""
    device: str = ""
    toolchain: str = ""
    writer: str = ""


_ROW = tuple(records.c[name] for name in RecordRow.__dataclass_fields__)
_SEARCHED = (records.c.kernel_name, records.c.key_text, records.c.device_name, records.c.device)


def kernels(connection: Connection, namespace: str, words: str = "") -> list[KernelRow]:
    """Return the namespace's kernels by name, ``LISTED`` at most."""
    devices = func.count(records.c.device.distinct())
    query = (
        select(records.c.kernel_name, func.count(), devices)
        .where(records.c.namespace == namespace, *_all_words(words, (records.c.kernel_name,)))
        .group_by(records.c.kernel_name)
        .order_by(records.c.kernel_name)
        .limit(LISTED)
    )
    return [KernelRow(*row) for row in connection.execute(query)]


def devices(connection: Connection, namespace: str) -> list[DeviceRow]:
    """Return the namespace's devices, ``LISTED`` at most."""
    # In the index's own order first: to count distinct names by device would sort every record.
    pairs = (
        select(records.c.kernel_name, records.c.device, func.count().label("stored"))
        .where(records.c.namespace == namespace)
        .group_by(records.c.kernel_name, records.c.device)
        .subquery()
    )
    query = (
        select(pairs.c.device, func.sum(pairs.c.stored), func.count())
        .group_by(pairs.c.device)
        .order_by(pairs.c.device)
        .limit(LISTED)
    )
    rows = connection.execute(query).all()
    # One row tells a device's name: a grouping by it would read every record.
    names = {row[0]: _device_name(connection, namespace, row[0]) for row in rows}
    return [DeviceRow(row[0], names[row[0]], int(row[1]), row[2]) for row in rows]


def versions(connection: Connection, namespace: str, kernel_name: str) -> list[VersionRow]:
    """Return what is stored of a kernel, by version, device and Triton, the newest first."""
    last = func.max(records.c.updated_ms)
    by = (records.c.digest, records.c.device, records.c.device_name, records.c.toolchain)
    query = (
        select(*by, func.count(), last)
        .where(records.c.namespace == namespace, records.c.kernel_name == kernel_name)
        .group_by(*by)
        .order_by(last.desc(), records.c.digest, records.c.device)
        .limit(LISTED)
    )
    return [VersionRow(*row) for row in connection.execute(query)]


def listed(
    connection: Connection, namespace: str, wanted: Wanted, order: Order = "newest", page: int = 1
) -> tuple[list[RecordRow], bool]:
    """Return one page of records, and whether there is another."""
    by: tuple[Any, ...] = (records.c.updated_ms.desc(), records.c.place, records.c.toolchain)
    if order == "name":
        by = (records.c.kernel_name, records.c.device, records.c.key_text, records.c.toolchain)
    query = select(*_ROW).where(*_fitting(namespace, wanted)).order_by(*by)
    found = connection.execute(query.offset((page - 1) * PAGE_ROWS).limit(PAGE_ROWS + 1)).all()
    return [RecordRow(*row) for row in found[:PAGE_ROWS]], len(found) > PAGE_ROWS and page < PAGES


def record(connection: Connection, namespace: str, place: str) -> list[StoredRow]:
    """Return the records of one key (``records.place``), of every Triton, the newest first."""
    more = (records.c.document, records.c.etag, records.c.signature, records.c.tuning_s)
    query = select(*_ROW, *more).where(records.c.place == place, records.c.namespace == namespace)
    rows = connection.execute(query.order_by(records.c.updated_ms.desc(), records.c.toolchain))
    return [StoredRow(RecordRow(*row[: len(_ROW)]), *row[len(_ROW) :]) for row in rows]


def _device_name(connection: Connection, namespace: str, device: str) -> str:
    where = and_(records.c.namespace == namespace, records.c.device == device)
    found = connection.execute(select(records.c.device_name).where(where).limit(1)).scalar()
    return device if found is None else str(found)


def _fitting(namespace: str, wanted: Wanted) -> list[ColumnElement[bool]]:
    exact = (
        (records.c.kernel_name, wanted.kernel),
        (records.c.device, wanted.device),
        (records.c.toolchain, wanted.toolchain),
        (records.c.writer, wanted.writer),
    )
    given = [column == text for column, text in exact if text]
    return [records.c.namespace == namespace, *given, *_all_words(wanted.words, _SEARCHED)]


def _all_words(words: str, columns: Sequence[Any]) -> list[ColumnElement[bool]]:
    """Every word must stand in one of the columns, or begin a digest or the hash of a key."""
    beginnings = (records.c.digest, records.c.key_hash)
    return [
        or_(
            *(column.icontains(word, autoescape=True) for column in columns),
            *(column.startswith(word.lower(), autoescape=True) for column in beginnings),
        )
        for word in words.split()[:8]
    ]
