"""Seeking a key in a large document: what it finds is what the whole has, and doubt is left to others."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import RECORD, file_of, get, plant, record_for, same_file, set_aside_files

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.keys import KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import DirectoryStore, Miss, document, indexed, seeking
from launchkit.store.document import ConfigDocument

ODD = ["\n    {\n", '"records": [', "é\u2028", '"\\', "x" * 50]
"""Texts that look like a document's own lines, where they stand in a key."""


def dumped(records: list[TunedRecord]) -> bytes:
    return document.dump(ConfigDocument(records[0].kernel, records[0].device, tuple(records)))


def odd_record(n: int, text: str, toolchain: str) -> TunedRecord:
    """A record of a key with a text, of one small config."""
    key = LaunchKey((encode_value("n", n), encode_value("text", text)), ())
    tuned = TunedConfig.measured(identify({"BLOCK": 1}), 1.0, reps=1, method=text or "eager")
    return TunedRecord(
        RECORD.kernel, RECORD.device, Toolchain(toolchain), key, (tuned,), tuned.config
    )


def found(data: bytes, key: LaunchKey) -> set[TunedRecord] | None:
    answer = seeking.sought(data, key, source="x")
    return answer and set(indexed._records(*answer, key, "x"))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from(["", *ODD]), st.sampled_from(["1.0", "2.0"])),
        min_size=1,
        max_size=30,
        unique=True,
    )
)
def test_each_key_of_any_document_is_found_and_no_other(drawn) -> None:
    records = [odd_record(*each) for each in drawn]
    data = dumped(records)
    for record in records:
        assert found(data, record.key) == {each for each in records if each.key == record.key}
    assert found(data, record_for(1).key) is None


@settings(max_examples=500, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 300), st.binary(max_size=8), st.integers(0, 19))
def test_in_a_document_with_bytes_replaced_no_other_key_is_found(at, cut, put, n) -> None:
    data = dumped([record_for(each) for each in range(20)])
    at %= len(data)
    answer = seeking.sought(data[:at] + put + data[at + cut :], record_for(n).key, source="x")
    if answer is None:
        return
    for part in answer[2]:
        raw = json.loads(part)
        assert raw["key"] == [{"name": "n", "type": "int", "value": str(n)}]


def test_a_document_of_another_spelling_is_left_to_others() -> None:
    raw = json.loads(dumped([record_for(each) for each in range(5)]))
    for data in (
        json.dumps(raw).encode(),
        json.dumps(raw, indent=1, sort_keys=True).encode(),
        json.dumps(raw | {"schema": 2}, indent=2, sort_keys=True).encode() + b"\n",
        dumped([record_for(1)])[:-3],
        b"",
    ):
        assert seeking.sought(data, record_for(1).key, source="x") is None


@pytest.fixture
def many(store, monkeypatch) -> list[TunedRecord]:
    """Records of one file that is large enough to be sought in; counts what is read whole."""
    monkeypatch.setattr(indexed, "SEEK_BYTES", 1)
    records = [*same_file(RECORD, 20), RECORD]
    assert store.put_all(records) == []
    return records


def test_the_first_keys_are_sought_and_more_make_an_index(store, many, monkeypatch) -> None:
    scans, of = [], indexed.DocumentIndex.of
    monkeypatch.setattr(
        indexed.DocumentIndex, "of", lambda data, source: scans.append(1) or of(data, source=source)
    )
    reader = DirectoryStore(store.path)
    for number, record in enumerate(many, start=1):
        assert get(reader, record) == record
        assert len(scans) == (number > indexed._SEEKS_PER_FILE)
    missing = replace(record_for(0), key=same_file(RECORD, 21)[-1].key)
    for each in (reader, DirectoryStore(store.path)):
        assert get(each, missing) == Miss("absent")


def test_an_absent_key_is_absent_only_after_the_whole_was_read(store, many) -> None:
    raw = json.loads(file_of(store, RECORD).read_bytes())
    random.Random(3).shuffle(raw["records"])  # by hand: bisection cannot find all of them
    plant(store, json.dumps(raw, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    for record in many:
        assert get(DirectoryStore(store.path), record) == record


def test_a_broken_file_that_is_sought_in_is_set_aside_as_any_other(store, many, caplog) -> None:
    path = file_of(store, RECORD)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], content[:-1] + b"x", content.replace(b":", b";")):
        path.write_bytes(broken)
        assert get(DirectoryStore(store.path), RECORD) == Miss("bad-document")
        assert set_aside_files(store)[-1].read_bytes() == broken
    plant(store, content.replace(b'"schema": 1\n', b'"schema": 2\n'))
    assert get(DirectoryStore(store.path), RECORD) == Miss("newer-schema")


def test_a_foreign_document_that_is_sought_in_is_foreign(store, many) -> None:
    other = [replace(each, kernel=KernelId("another", "a" * 64)) for each in many]
    plant(store, dumped(other))
    assert get(DirectoryStore(store.path), RECORD) == Miss("foreign")
