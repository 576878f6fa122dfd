"""Bundles: whole or refused, and whatever is in one, it can only become a record of the store."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sharing import config, content, filled, one, timed, tuned
from stored import GOLDEN

from launchkit import jsonio
from launchkit.errors import BadBundleError, UsageError
from launchkit.keys import KernelId
from launchkit.store import MemoryStore, bundle, document
from launchkit.store.merge import apply, plan

RECORDS = (*document.parse(GOLDEN, source="golden").records, one(1, 2, 3.0), one(2, 4, 5.0))
DATA = bundle.dump(RECORDS)


def entry(body: object) -> bytes:
    """A line whose checksum is right, whatever it holds."""
    digest = hashlib.sha256(jsonio.dumps_compact(body)).hexdigest()
    return json.dumps({"document": body, "sha256": digest}).encode() + b"\n"


def bundle_of(*lines: bytes, **head: object) -> bytes:
    """A bundle of these lines, right in all but what ``head`` says."""
    body = b"".join(lines)
    facts = {
        "launchkit_bundle": 1,
        "entries": len(lines),
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return json.dumps(facts | head).encode() + b"\n" + body


def record_body(record) -> dict:
    """A record as a document of its own."""
    return document.to_object(document.ConfigDocument(record.kernel, record.device, (record,)))


@pytest.mark.parametrize("compress", [False, True])
def test_records_come_back_equal_and_bytes_do_not_depend_on_their_order(compress) -> None:
    shuffled = random.Random(1).sample(RECORDS, len(RECORDS))
    data = bundle.dump(shuffled, compress=compress)
    assert data == bundle.dump(RECORDS, compress=compress)
    found = bundle.parse(data, source="x")
    assert set(found.records) == set(RECORDS)
    assert (found.broken, found.damage) == ((), None)
    assert found.digest == hashlib.sha256(DATA.partition(b"\n")[2]).hexdigest()


def test_records_of_one_identity_are_merged_so_that_the_bundle_can_be_read() -> None:
    one, other = (tuned(1, timed(block, 2.0), chosen=block) for block in (64, 128))
    (record,) = bundle.parse(bundle.dump([one, other, one]), source="it").records
    assert {result.config for result in record.configs} == {config(64), config(128)}


def test_a_bundle_of_nothing_is_a_bundle() -> None:
    assert bundle.parse(bundle.dump([]), source="x").records == ()


def test_each_entry_is_a_config_document_with_its_checksum() -> None:
    head, *lines = DATA.splitlines()
    assert json.loads(head)["entries"] == len(lines) == len(RECORDS)
    for line in lines:
        raw = json.loads(line)
        compact = jsonio.dumps_compact(raw["document"])
        assert hashlib.sha256(compact).hexdigest() == raw["sha256"]
        assert document.parse(compact, source="x").records[0] in RECORDS


def test_every_truncation_is_refused_and_partial_takes_what_is_whole() -> None:
    ends = [index + 1 for index, byte in enumerate(DATA) if byte == ord("\n")]
    for length in [*range(0, len(DATA), 41), *(end - 1 for end in ends[:-1]), *ends[:-1]]:
        with pytest.raises(BadBundleError):
            bundle.parse(DATA[:length], source="x")
        if length >= ends[0] - 1:
            found = bundle.parse(DATA[:length], source="x", partial=True)
            whole = sum(length >= end - 1 for end in ends[1:])
            assert len(found.records) == whole
            assert set(found.records) <= set(RECORDS)
            assert found.damage or found.broken


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_anywhere_is_refused_and_costs_at_most_two_entries(seed) -> None:
    rng = random.Random(seed)
    head = DATA.index(b"\n")
    for _ in range(100):
        at = rng.randrange(len(DATA))
        bad = bytearray(DATA)
        bad[at] ^= 1 << rng.randrange(8)
        with pytest.raises(BadBundleError):
            bundle.parse(bytes(bad), source="x")
        if at > head:
            found = bundle.parse(bytes(bad), source="x", partial=True)
            assert len(RECORDS) - 2 <= len(found.records) <= len(RECORDS)
            assert set(found.records) <= set(RECORDS)
            assert found.damage or found.broken


@pytest.mark.parametrize("seed", range(3))
def test_broken_gzip_data_is_refused(seed) -> None:
    rng, packed = random.Random(seed), bundle.dump(RECORDS, compress=True)
    for length in rng.sample(range(2, len(packed)), 40):
        with pytest.raises(BadBundleError):
            bundle.parse(packed[:length], source="x")
    for extra in (b"x", b"{}\n"):
        with pytest.raises(BadBundleError):
            bundle.parse(packed + extra, source="x")


def test_a_bomb_is_refused_before_it_fills_the_memory(monkeypatch) -> None:
    monkeypatch.setattr(bundle, "LIMIT_BYTES", 2**19)
    bomb = gzip.compress(DATA.partition(b"\n")[0] + b"\n" + bytes(2**26))
    for partial in (False, True):
        with pytest.raises(BadBundleError, match="unpacks to more than"):
            bundle.parse(bomb, source="x", partial=partial)
    with pytest.raises(UsageError, match="in parts"):
        bundle.dump([one(n, 1, 1.0) for n in range(1000)])


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": {"name": "../../evil", "digest": "../" + "0" * 61}},
        {"kernel": {"name": "k", "digest": "0" * 63}},
        {"schema": 2},
        {"schema": "1"},
        {"records": []},
        {"more": 1},
        {"device": None},
    ],
)
def test_an_entry_that_breaks_a_rule_is_left_out_though_its_checksum_is_right(change) -> None:
    good, bad = record_body(RECORDS[0]), record_body(RECORDS[1]) | change
    data = bundle_of(entry(good), entry(bad))
    with pytest.raises(BadBundleError, match="line 3"):
        bundle.parse(data, source="x")
    found = bundle.parse(data, source="x", partial=True)
    assert found.records == (RECORDS[0],)
    assert [line for line, _ in found.broken] == [3]


@pytest.mark.parametrize("time", [0, -1, "1", None, 1e400, True])
def test_an_entry_with_an_impossible_time_is_left_out(time) -> None:
    body = record_body(one(1, 1, 5.0))
    body["records"][0]["configs"][0]["median_us"] = time
    line = json.dumps({"document": body, "sha256": "0" * 64}).encode() + b"\n"
    if time != 1e400:
        line = entry(body)
    assert bundle.parse(bundle_of(line), source="x", partial=True).records == ()


def test_names_of_a_bundle_cannot_lead_out_of_the_store(tmp_path) -> None:
    evil = [
        replace(one(n, 1, 1.0), kernel=KernelId(name, "0" * 64))
        for n, name in enumerate(["../../../x", "/etc/x", "..", "a/b", "\0", "C:\\x", "." * 300])
    ]
    devices = [
        replace(one(n, 2, 1.0), device=replace(RECORDS[0].device, name=name, arch=name))
        for n, name in enumerate(["../../..", "/abs", "\0"])
    ]
    found = bundle.parse(bundle.dump([*evil, *devices]), source="x")
    store = filled(tmp_path / "deep" / "store")
    merging = plan(store, found.records, "faster")
    apply(merging, store)
    assert merging.unwritten == []
    assert set(store.records()) == {*evil, *devices}
    assert all(name.startswith("deep/store/v1/") for name in content(tmp_path))


def test_a_record_that_stands_twice_is_taken_once() -> None:
    first, second = one(1, 1, 5.0), one(1, 2, 4.0)
    data = bundle_of(entry(record_body(first)), entry(record_body(second)))
    with pytest.raises(BadBundleError, match="twice"):
        bundle.parse(data, source="x")
    assert bundle.parse(data, source="x", partial=True).records == (first,)


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"{}", b"[]\n", b"null", b'{"launchkit_bundle": true}', b"\x1f\x8b", b"PK\x03\x04",
     b'{"launchkit_bundle": 0, "entries": 0, "sha256": ""}', b"\xff\xfe{}", GOLDEN,
     b'{"launchkit_bundle": 1, "entries": 0}', b'{"launchkit_bundle": 1, "sha256": ""}',
     b'{"launchkit_bundle":1,"launchkit_bundle":1,"entries":0,"sha256":""}', b"[" * 100_000],
)  # fmt: skip
@pytest.mark.parametrize("partial", [False, True])
def test_what_is_no_bundle_is_refused_even_in_part(data, partial) -> None:
    with pytest.raises(BadBundleError):
        bundle.parse(data, source="x", partial=partial)


def test_a_later_schema_is_refused_as_such() -> None:
    data = bundle_of(launchkit_bundle=2)
    with pytest.raises(BadBundleError, match="Upgrade launchkit") as caught:
        bundle.parse(data, source="x", partial=True)
    assert caught.value.newer


def test_a_count_that_is_wrong_is_damage() -> None:
    data = bundle_of(entry(record_body(RECORDS[0])), entries=2)
    with pytest.raises(BadBundleError, match="1 entries, not 2"):
        bundle.parse(data, source="x")
    assert bundle.parse(data, source="x", partial=True).records == RECORDS[:1]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_bytes_are_a_bundle_or_an_error(data) -> None:
    parts = st.sampled_from(
        [DATA, DATA[:90], b"\n", b"{", gzip.compress(DATA), b'"', b"\xff", GOLDEN]
    )
    made = b"".join(data.draw(st.lists(parts | st.binary(max_size=20), max_size=5)))
    for partial in (False, True):
        try:
            found = bundle.parse(made, source="x", partial=partial)
        except BadBundleError:
            continue
        store = MemoryStore()
        apply(plan(store, found.records, "error"), store)
        assert set(store.records()) == set(found.records)


def test_a_written_bundle_is_read_back_and_says_its_digest(tmp_path) -> None:
    for name in ("x.bundle", "deep/x.bundle.gz"):
        digest = bundle.write(tmp_path / name, RECORDS)
        found = bundle.read(tmp_path / name)
        assert found.digest == digest
        assert set(found.records) == set(RECORDS)
    assert (tmp_path / "deep/x.bundle.gz").read_bytes().startswith(b"\x1f\x8b")
