"""Records in the database: read, looked up, merged. Of the service's server.

A merge happens in one transaction that has the record's row locked: of two writers neither's
results are lost, on whatever replica they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row, Select, bindparam, delete, func, select, update
from sqlalchemy.engine import Connection

from launchkit import jsonio
from launchkit.configs import TunedRecord, config_text, merge_records
from launchkit.errors import BadDocumentError
from launchkit.service import audit, protocol, signing, spaces
from launchkit.service.db import Database, NowMs
from launchkit.service.protocol import MissedFor, PutAnswer, WantedRecord
from launchkit.service.refused import Refused
from launchkit.service.tables import misses, records
from launchkit.store import document

Preconditions = tuple[str | None, bool]
"""(If-Match's digest, or None; whether If-None-Match: * was sent)"""
ANY: Preconditions = (None, False)

Outcome = Literal["created", "changed", "unchanged", "refused"]

_STORED = select(
    records.c.place,
    records.c.toolchain,
    records.c.document,
    records.c.etag,
    records.c.signature,
    records.c.tuning_s,
).where(
    records.c.place.in_(bindparam("places", expanding=True)),
    records.c.toolchain.in_(bindparam("versions", expanding=True)),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as it lies in the database."""

    document: str
    etag: str
    signature: str | None
    tuning_s: float | None


@dataclass(frozen=True, slots=True)
class Put:
    """A record that is to be merged, who sends it, and on what conditions."""

    namespace: str
    record: TunedRecord
    writer: str
    signature: str | None = None
    only_if: Preconditions = ANY
    limit_bytes: int = protocol.DOCUMENT_LIMIT_BYTES


def place(namespace: str, kernel: str, digest: str, device: str, key_hash: str) -> str:
    """Return the 32 hex digits under which all toolchains' records of one key lie."""
    parts = jsonio.dumps_compact([namespace, kernel, digest, device, key_hash])
    return hashlib.sha256(parts).hexdigest()[:32]


def place_of(namespace: str, record: TunedRecord) -> str:
    """Return the same of a record."""
    return place(namespace, *protocol.record_parts(record.kernel, record.device, record.key))


def find(
    connection: Connection, namespace: str, wanted: Sequence[WantedRecord]
) -> list[Stored | MissedFor]:
    """Return what is stored of each wanted record, or why there is nothing.

    Raises Refused where there is no such namespace.
    """
    places = [place(namespace, *_path(each)) for each in wanted]
    versions = {each.toolchain for each in wanted}
    asked = {"places": sorted(set(places)), "versions": sorted(versions)}
    found = {(row[0], row[1]): Stored(*row[2:]) for row in connection.execute(_STORED, asked)}
    answers: list[Stored | None] = [
        found.get((where, each.toolchain)) for where, each in zip(places, wanted, strict=True)
    ]
    missing = {where for where, answer in zip(places, answers, strict=True) if answer is None}
    others = _of_other_toolchains(connection, namespace, missing)
    return [
        answer or ("toolchain" if where in others else "absent")
        for where, answer in zip(places, answers, strict=True)
    ]


def find_all_toolchains(
    connection: Connection, namespace: str, parts: tuple[str, str, str, str]
) -> bytes | None:
    """Return one document of a key's records of all toolchains; None: there is none."""
    query = select(records.c.document).where(records.c.place == place(namespace, *parts))
    texts = connection.execute(query.order_by(records.c.toolchain)).scalars().all()
    if not texts:
        spaces.require(connection, namespace)
        return None
    raw: list[Any] = [
        jsonio.loads(text.encode(), source="the database", limit_bytes=document.LIMIT_BYTES)
        for text in texts
    ]
    several = [record for each in raw for record in each["records"]]
    return jsonio.dumps_compact({**raw[0], "records": several})


def put(database: Database, connection: Connection, asked: Put) -> PutAnswer:
    """Merge a record into what is stored for its identity, in the caller's transaction.

    A signed one is stored as it is, and must hold all that is stored and signed. Raises Refused.
    """
    _refuse_unknown_toolchain(asked.record)
    while True:
        row = _locked(connection, asked)
        _check_preconditions(row, asked.only_if)
        if row is not None:
            return _merge(connection, row, asked)
        made = _columns(asked, asked.record)
        spaces.require(connection, asked.namespace)
        insert = database.insert(records).values(**made).on_conflict_do_nothing()
        if connection.execute(insert).rowcount:
            _log(connection, "create", asked, asked.record, None, made["etag"])
            _forget_miss(connection, made)
            return PutAnswer(etag=made["etag"], created=True, changed=True)
        # Another transaction has inserted it by now: it has committed, and can be locked.


def read_record(row: Any) -> TunedRecord:
    """Return the record in a row of the table."""
    found = document.parse(row.document.encode(), source="the database")
    return found.records[0]


def walk(
    connection: Connection, namespace: str, kernel_name: str | None, device: str | None
) -> Iterator[tuple[TunedRecord, int]]:
    """Yield a namespace's records and the size of each in bytes.

    Of one kernel or device where that is asked for. Raises Refused where there is no such
    namespace.
    """
    spaces.require(connection, namespace)
    query = select(records.c.document).where(*_of(namespace, kernel_name, device))
    for row in connection.execution_options(yield_per=500).execute(query):
        yield read_record(row), len(row.document)


def count(
    connection: Connection, namespace: str, kernel_name: str | None, device: str | None
) -> int:
    """Return how many records ``walk`` would yield."""
    query = select(func.count()).select_from(records)
    return connection.execute(query.where(*_of(namespace, kernel_name, device))).scalar_one()


def _of(namespace: str, kernel_name: str | None, device: str | None) -> list[Any]:
    found = [records.c.namespace == namespace]
    if kernel_name is not None:
        found.append(records.c.kernel_name == audit.plain(kernel_name, 200))
    if device is not None:
        found.append(records.c.device == device)
    return found


def _forget_miss(connection: Connection, made: dict[str, Any]) -> None:
    where = (misses.c.place == made["place"], misses.c.toolchain == made["toolchain"])
    connection.execute(delete(misses).where(*where))


def _path(wanted: WantedRecord) -> tuple[str, str, str, str]:
    return (wanted.kernel, wanted.digest, wanted.device, wanted.key_hash)


def _of_other_toolchains(connection: Connection, namespace: str, missing: set[str]) -> set[str]:
    if not missing:
        return set()
    query = select(records.c.place).where(records.c.place.in_(sorted(missing))).distinct()
    others = set(connection.execute(query).scalars())
    if not others:
        spaces.require(connection, namespace)
    return others


def _locked(connection: Connection, asked: Put) -> Row[Any] | None:
    query: Select[Any] = select(
        records.c.document, records.c.etag, records.c.signature, records.c.kernel_name
    ).where(
        records.c.place == place_of(asked.namespace, asked.record),
        records.c.toolchain == asked.record.toolchain.triton,
    )
    return connection.execute(query.with_for_update()).first()


def _check_preconditions(row: Row[Any] | None, only_if: Preconditions) -> None:
    if_match, if_absent = only_if
    stored = None if row is None else row.etag
    if (if_match is not None and if_match != stored) or (if_absent and row is not None):
        raise Refused(
            "changed", "the record is not what it was. Get it, merge, and try again.", etag=stored
        )


def _merge(connection: Connection, row: Row[Any], asked: Put) -> PutAnswer:
    old, signature = read_record(row), asked.signature
    merged = asked.record if signature is not None else merge_records(old, asked.record)
    changed = _columns(asked, merged)
    before, after = row.etag, changed["etag"]
    if (before, row.signature) == (after, signature) or (signature is None and before == after):
        return PutAnswer(etag=before, created=False, changed=False)
    _refuse_signing(row, old, asked)
    where = (records.c.place == changed["place"], records.c.toolchain == changed["toolchain"])
    connection.execute(update(records).where(*where).values(**changed))
    _log(connection, "merge", asked, merged, before, after)
    return PutAnswer(etag=after, created=False, changed=True)


def _log(
    connection: Connection, action: str, asked: Put, record: TunedRecord,
    before: str | None, after: str,
) -> None:  # fmt: skip
    audit.log(
        connection, action, asked.writer, asked.namespace, record=record, before=before, after=after
    )


def _refuse_signing(row: Row[Any], old: TunedRecord, asked: Put) -> None:
    if asked.signature is None and row.signature is not None:
        raise Refused(
            "signed",
            "what is stored is signed, and merging would break that. Get it, merge, sign the "
            "result and send that.",
            etag=row.etag,
        )
    if asked.signature is None:
        return
    if asked.only_if[0] is None:
        raise Refused(
            "precondition-required",
            "there is such a record. Get it, merge, sign the result and send it with If-Match.",
            etag=row.etag,
        )
    known = {(tuned.config, tuned.method) for tuned in asked.record.configs}
    # What nobody signed may go: who signs could not vouch for it.
    if row.signature is not None and any(
        (tuned.config, tuned.method) not in known for tuned in old.configs
    ):
        raise Refused(
            "not-merged", "it leaves out results that are stored. Merge and sign again.",
            etag=row.etag,
        )  # fmt: skip


def _refuse_unknown_toolchain(record: TunedRecord) -> None:
    text = record.toolchain.triton
    if not record.toolchain.known or len(text) > 120 or not text.isprintable():
        raise BadDocumentError("the record", f"{text[:120]!r} is no version of Triton")


def _columns(asked: Put, record: TunedRecord) -> dict[str, Any]:
    """Return the row that is to be written: ``record`` is what was sent, or it merged."""
    body = signing.body(record)
    if len(body) > asked.limit_bytes:
        raise Refused(
            "too-large", f"the record would have {len(body)} bytes, more than {asked.limit_bytes}. "
            "Shorten the kernel's list of configs.",
        )  # fmt: skip
    kernel, digest, device, key_hash = protocol.record_parts(
        record.kernel, record.device, record.key
    )
    return audit.record_columns(record) | {
        "place": place(asked.namespace, kernel, digest, device, key_hash),
        "namespace": asked.namespace,
        "kernel": kernel,
        "digest": digest,
        "device": device,
        "device_name": audit.plain(record.device.name, 200),
        "document": body.decode(),
        "etag": signing.etag(body),
        "signature": asked.signature,
        "chosen_text": audit.plain(config_text(record.chosen), 1000),
        "median_us": record.winner.median_us,
        "tuning_s": record.seconds,
        "writer": audit.plain(asked.writer, 120),
        "updated_ms": NowMs(),
    }


def put_many(
    database: Database,
    namespace: str,
    several: Sequence[TunedRecord],
    writer: str,
    limit_bytes: int = protocol.DOCUMENT_LIMIT_BYTES,
) -> dict[Outcome, int]:
    """Merge many records, a few hundred in a transaction; return what became of how many."""
    counts: dict[Outcome, int] = {"created": 0, "changed": 0, "unchanged": 0, "refused": 0}
    # In one order for all writers: two transactions that want each other's rows would stand still.
    ordered = sorted(several, key=lambda each: (place_of(namespace, each), each.toolchain.triton))
    for start in range(0, len(ordered), 200):
        with database.writing() as connection:
            spaces.require(connection, namespace)
            for record in ordered[start : start + 200]:
                asked = Put(namespace, record, writer, limit_bytes=limit_bytes)
                counts[_outcome(database, connection, asked)] += 1
    return counts


def _outcome(database: Database, connection: Connection, asked: Put) -> Outcome:
    try:
        done = put(database, connection, asked)
    except (Refused, BadDocumentError):
        return "refused"
    if done.created:
        return "created"
    return "changed" if done.changed else "unchanged"
