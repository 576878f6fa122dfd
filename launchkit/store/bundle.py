"""A bundle: many tuned records in one file, with checksums. Pure; between document and tools.

JSON lines, optionally in gzip. The first line says what it is, how many entries follow and the
sha256 of all bytes behind it; each further line is one record as a config document of its own,
with the sha256 of that document's canonical JSON. A bundle is data: it names no path, reading it
runs nothing, and whoever imports it gives the records to a store, which files them by their keys.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from launchkit import jsonio
from launchkit.configs import TunedRecord, merge_records
from launchkit.errors import BadBundleError, BadDocumentError, LaunchkitError, UsageError
from launchkit.store import document, files
from launchkit.store.document import ConfigDocument
from launchkit.validating import check_schema

SCHEMA = 1
LIMIT_BYTES = 256 * 2**20
"""No larger bundle is read, packed or unpacked."""
_WHAT = "a launchkit bundle"
_GZIP = b"\x1f\x8b"
_HEAD_LIMIT_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a bundle holds."""

    records: tuple[TunedRecord, ...]
    digest: str
    """sha256 of the entries, as the head says."""
    broken: tuple[tuple[int, str], ...] = ()
    """(line, what is wrong with it) of entries that are left out, where that was allowed."""
    damage: str | None = None
    """What is wrong with the bundle as a whole, where that was allowed."""


def dump(records: Iterable[TunedRecord], *, compress: bool = False) -> bytes:
    """Return the records as a bundle: the same bytes for the same records, in whatever order.

    Those of one identity, as when a file of a store was copied by hand, are merged. Raises
    UsageError for more than can be read again.
    """
    return _packed(records, compress)[0]


def _packed(records: Iterable[TunedRecord], compress: bool) -> tuple[bytes, str]:
    ordered = sorted(_once(records), key=attrgetter("sort_key"))
    body = b"".join(_line(record) for record in ordered)
    digest = _sha256(body)
    head = {"launchkit_bundle": SCHEMA, "entries": len(ordered), "sha256": digest}
    data = jsonio.dumps_compact(head) + b"\n" + body
    if len(data) > LIMIT_BYTES:
        raise UsageError(
            f"a bundle of {len(data)} bytes is too large to be read. Export it in parts, by kernel "
            "or by device."
        )
    return (gzip.compress(data, mtime=0) if compress else data), digest


def _once(records: Iterable[TunedRecord]) -> Iterable[TunedRecord]:
    found: dict[object, TunedRecord] = {}
    for record in records:
        known = found.setdefault(record.identity, record)
        if known is not record:
            found[record.identity] = merge_records(known, record)
    return found.values()


def write(path: Path, records: Iterable[TunedRecord]) -> str:
    """Put a bundle at ``path``, whole or not at all, in gzip if its name ends in ``.gz``.

    Returns the digest of its entries. Raises StoreError where it cannot be written.
    """
    data, digest = _packed(records, compress=path.name.endswith(".gz"))
    files.write_file(path, data)
    return digest


def read(path: str | os.PathLike[str], *, partial: bool = False) -> Bundle:
    """Return the bundle in a file, as ``parse`` does. OSError where the system refuses."""
    try:
        data = jsonio.read_limited(path, LIMIT_BYTES)
    except BadDocumentError as error:
        raise BadBundleError(os.fspath(path), error.reason) from None
    return parse(data, source=os.fspath(path), partial=partial)


def parse(
    data: bytes, *, source: str, partial: bool = False, limit_bytes: int | None = None
) -> Bundle:
    """Return the bundle in ``data``; ``source`` names it in errors.

    Raises BadBundleError for anything but a whole, intact bundle of this schema, and for one that
    unpacks to more than ``limit_bytes`` (``LIMIT_BYTES``). With
    ``partial`` broken entries and damage of the whole are told instead, and the intact entries
    are returned; what has no head is no bundle all the same.
    """
    plain, damage = unpack(data, source=source, limit_bytes=limit_bytes)
    if damage is not None and not partial:
        raise BadBundleError(source, damage)
    head, _, body = plain.partition(b"\n")
    count, digest = _head(head, source)
    records, broken = _entries(body, source)
    damage = damage or _damage(body, count, len(records) + len(broken), digest)
    problem = f"line {broken[0][0]}: {broken[0][1]}" if broken else damage
    if problem is not None and not partial:
        raise BadBundleError(source, problem)
    return Bundle(tuple(records), digest, tuple(broken), damage)


def _line(record: TunedRecord) -> bytes:
    plain = replace(record, pinned=False)
    body = document.to_object(ConfigDocument(record.kernel, record.device, (plain,)))
    digest = jsonio.digest(body)
    return jsonio.dumps_compact({"document": body, "sha256": digest}) + b"\n"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def unpack(data: bytes, *, source: str, limit_bytes: int | None = None) -> tuple[bytes, str | None]:
    """Return the plain bytes, and what is wrong with their packing.

    Raises BadBundleError for more than ``limit_bytes`` (``LIMIT_BYTES``).
    """
    limit_bytes = LIMIT_BYTES if limit_bytes is None else limit_bytes
    if not data.startswith(_GZIP):
        return data, None
    plain = bytearray()
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            while chunk := packed.read1(2**20):
                plain += chunk
                if len(plain) > limit_bytes:
                    raise BadBundleError(source, f"it unpacks to more than {limit_bytes} bytes")
    except (EOFError, OSError, zlib.error) as error:
        return bytes(plain), f"its gzip data is broken ({error})"
    return bytes(plain), None


def _head(line: bytes, source: str) -> tuple[int, str]:
    """Return the number of entries and the digest of all of them."""
    try:
        raw = jsonio.loads(line, source=source, limit_bytes=_HEAD_LIMIT_BYTES)
    except BadDocumentError:
        raw = None
    head = check_schema(
        raw,
        source=source,
        field="launchkit_bundle",
        newest=SCHEMA,
        what=_WHAT,
        error=BadBundleError,
    )
    count, digest = head.get("entries"), head.get("sha256")
    if type(count) is not int or not isinstance(digest, str):
        raise BadBundleError(source, f"it is not {_WHAT}")
    return count, digest


def _entries(body: bytes, source: str) -> tuple[list[TunedRecord], list[tuple[int, str]]]:
    records: dict[object, TunedRecord] = {}
    broken = []
    for number, line in _lines(body):
        try:
            record = _entry(line, source)
        except BadDocumentError as error:
            broken.append((number, error.reason))
            continue
        if record.identity in records:
            broken.append((number, f"a record of {record.kernel.name} stands twice"))
        records.setdefault(record.identity, record)
    return list(records.values()), broken


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number in the file; no second copy of a large body is made."""
    start, number = 0, 2
    while start < len(body):
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield number, body[start:end]
        start, number = end + 1, number + 1


def _entry(line: bytes, source: str) -> TunedRecord:
    raw = jsonio.loads(line, source=source, limit_bytes=document.LIMIT_BYTES)
    if not isinstance(raw, dict) or raw.keys() != {"document", "sha256"}:
        raise BadDocumentError(source, "it is not an entry")
    try:
        digest = jsonio.digest(raw["document"])
    except LaunchkitError as error:
        raise BadDocumentError(source, str(error)) from None
    if digest != raw["sha256"]:
        raise BadDocumentError(source, "its checksum is not that of its content")
    found = document.from_object(raw["document"], source=source).records
    if len(found) != 1:
        raise BadDocumentError(source, f"it holds {len(found)} records instead of one")
    return found[0]


def _damage(body: bytes, count: int, found: int, digest: str) -> str | None:
    if found != count:
        return f"it has {found} entries, not {count} as its head says"
    return None if _sha256(body) == digest else "its checksum is not that of its content"
