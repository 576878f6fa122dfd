"""Bundles up and down, snapshots, and the audit log of what they change."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace

import pytest
from sqlalchemy import select
from stored import RECORD, record_for

from launchkit.keys import KernelId
from launchkit.service import audit, protocol, retention
from launchkit.service.db import NowMs
from launchkit.service.tables import audit as audit_table
from launchkit.service.tables import records, snapshots
from launchkit.store import bundle

SEVERAL = [RECORD, *(record_for(n) for n in range(3))]
OTHER = replace(RECORD, kernel=KernelId("another", "2" * 64))


def entries(served):
    with served.service.database.reading() as connection:
        mine = audit_table.c.namespace == served.namespace
        query = select(audit_table).where(mine).order_by(audit_table.c.id)
        return connection.execute(query).fetchall()


def age(served, table, column, days):
    """Make what is in a namespace older."""
    with served.service.database.writing() as connection:
        mine = table.c.namespace == served.namespace
        values = {column: NowMs() - days * 86_400_000}
        connection.execute(table.update().where(mine).values(**values))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_bundle_comes_back_as_it_went(served, pack):
    data = bundle.dump(SEVERAL)
    done = served.send("POST", "/bundle", content=pack(data)).json()
    assert done == {"records": 4, "created": 4, "changed": 0, "unchanged": 0, "refused": 0}
    got = served.send("GET", "/bundle")
    assert got.content == data
    assert got.headers["content-type"].startswith(protocol.MEDIA_BUNDLE)
    known = served.send("GET", "/bundle", headers={"If-None-Match": got.headers["etag"]})
    assert known.status_code == 304
    assert served.send("POST", "/bundle", content=data).json()["unchanged"] == 4


def test_a_bundle_can_be_of_one_kernel_or_device(served):
    served.send("POST", "/bundle", content=bundle.dump([*SEVERAL, OTHER]))
    of_kernel = served.send("GET", "/bundle", params={"kernel": "another"}).content
    assert bundle.parse(of_kernel, source="it").records == (OTHER,)
    of_device = served.send("GET", "/bundle", params={"device": RECORD.device.slug}).content
    assert len(bundle.parse(of_device, source="it").records) == 5
    none = served.send("GET", "/bundle", params={"device": "nope"}).content
    assert bundle.parse(none, source="it").records == ()


def test_a_damaged_bundle_is_refused_as_a_whole(served):
    data = bundle.dump(SEVERAL)
    for bad in (b"", b"{}", data[:-1], data.replace(b"7", b"8", 1), gzip.compress(data)[:-9]):
        answer = served.send("POST", "/bundle", content=bad)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert served.get(RECORD).status_code == 404


def test_a_snapshot_stays_what_it_was(served):
    served.put(RECORD)
    taken = served.send("POST", "/snapshots", json={})
    assert taken.status_code == 201
    again = served.send("POST", "/snapshots", json={})
    assert (again.status_code, again.json()) == (200, taken.json())
    served.put(record_for(1))
    digest = taken.json()["digest"]
    got = served.send("GET", f"/snapshots/{digest}")
    assert hashlib.sha256(got.content).hexdigest() == digest
    assert bundle.parse(got.content, source="it").records == (RECORD,)
    assert "immutable" in got.headers["cache-control"]
    etag = {"If-None-Match": got.headers["etag"]}
    assert served.send("GET", f"/snapshots/{digest}", headers=etag).status_code == 304
    second = served.send("POST", "/snapshots", json={"kernel": RECORD.kernel.name}).json()
    listed = served.send("GET", "/snapshots").json()["snapshots"]
    assert {each["digest"] for each in listed} == {digest, second["digest"]}
    assert second["records"] == 2


def test_the_audit_log_says_who_changed_what(served):
    first = served.put(RECORD)
    served.put(RECORD)  # changes nothing
    second = served.put(replace(RECORD, seconds=99.0))
    served.send("POST", "/snapshots", json={})
    _, created, merged, taken = entries(served)
    assert created.action == "create"
    assert merged.action == "merge"
    assert (created.etag_before, created.etag_after) == (None, first.json()["etag"])
    assert (merged.etag_before, merged.etag_after) == (first.json()["etag"], second.json()["etag"])
    assert taken.action == "snapshot"
    assert merged.key_text == RECORD.key.text
    assert merged.writer.startswith("write (")
    assert 0 < created.at_ms <= merged.at_ms <= taken.at_ms


def test_what_is_old_goes_when_it_is_asked_for(served):
    served.put(RECORD)
    served.send("POST", "/snapshots", json={})
    age(served, records, "updated_ms", 40)
    age(served, snapshots, "created_ms", 20)
    database, ages = served.service.database, retention.Ages(records=30, snapshots=30)
    counted = retention.prune(database, ages, dry_run=True, writer="a test")
    assert counted == {"records": 1, "snapshots": 0}
    assert served.get(RECORD).status_code == 200
    assert retention.prune(database, ages, dry_run=False, writer="a test") == counted
    assert served.get(RECORD).status_code == 404
    assert len(served.send("GET", "/snapshots").json()["snapshots"]) == 1


def test_old_entries_of_the_audit_log_are_forgotten(served):
    served.put(RECORD)
    age(served, audit_table, "at_ms", 400)
    served.put(record_for(1))
    audit.forget(served.service.database, 365)
    assert [each.key_text for each in entries(served)] == [record_for(1).key.text]
