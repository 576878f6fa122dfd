"""Looking one key up in a document: it finds what reading the whole document finds, no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import GOLDEN, RECORD, record_for

from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError
from launchkit.keys import LaunchKey
from launchkit.store import document, files, indexed
from launchkit.store.indexed import DocumentIndex, IndexedFiles

PARSED = document.parse(GOLDEN, source="golden")
RAW = json.loads(GOLDEN)
SPELLINGS = {
    "as written": GOLDEN,
    "compact": json.dumps(RAW, separators=(",", ":")).encode(),
    "ascii": json.dumps(RAW, indent=1).encode(),
    "not ascii": json.dumps(RAW, ensure_ascii=False, indent=7).encode(),
    "members reversed": json.dumps(dict(reversed(RAW.items()))).encode(),
    "space everywhere": json.dumps(RAW, separators=(" \r\n\t,\n", "\t: ")).encode() + b" \n ",
}


def found(data: bytes) -> dict[LaunchKey, set[TunedRecord]]:
    """Every record by its key, each read by itself."""
    keys: list[LaunchKey] = []
    document.scan(data, source="x", visit=lambda key, start, end: keys.append(key))
    index = DocumentIndex.of(data, source="x")
    by_key = {}
    for key in keys:
        parts = [data[start:end] for start, end in index.spans(key)]
        by_key[key] = set(indexed._records(index.kernel, index.device, parts, key, "x"))
    return by_key


def whole(parsed: document.ConfigDocument) -> dict[LaunchKey, set[TunedRecord]]:
    by_key: dict[LaunchKey, set[TunedRecord]] = {}
    for record in parsed.records:
        by_key.setdefault(record.key, set()).add(record)
    return by_key


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_record_is_found_however_the_document_is_spelled(spelling) -> None:
    assert found(SPELLINGS[spelling]) == whole(PARSED)


def test_an_empty_document_has_no_record() -> None:
    data = document.dump(document.ConfigDocument(RECORD.kernel, RECORD.device, ()))
    assert found(data) == {}
    assert DocumentIndex.of(data, source="x").spans(RECORD.key) == []


def outcome(read: Callable[[], dict]) -> dict | bool:
    """What reading gives; whether it is of a newer schema, where it is refused."""
    try:
        return read()
    except BadDocumentError as error:
        return error.newer


def check(data: bytes) -> None:
    """What the whole reader accepts is found; what only one of them accepts breaks no rule."""
    expected = outcome(lambda: whole(document.parse(data, source="x")))
    seen = outcome(lambda: found(data))
    if isinstance(expected, dict):
        assert seen == expected
    elif not isinstance(seen, dict):
        assert seen == expected  # both newer, or neither


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_never_a_crash(data: bytes) -> None:
    check(data)
    check(b'{"records": [' + data + b'], "schema": 1}')


@settings(max_examples=1000, deadline=None)
@given(st.integers(0, len(GOLDEN) - 1), st.integers(0, 200), st.binary(max_size=8))
def test_a_document_with_bytes_replaced_says_what_the_whole_reader_says(at, cut, put) -> None:
    check(GOLDEN[:at] + put + GOLDEN[at + cut :])


def test_a_document_cut_at_any_byte_is_bad() -> None:
    for length in range(len(GOLDEN) - 1):
        with pytest.raises(BadDocumentError):
            DocumentIndex.of(GOLDEN[:length], source="x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"schema": 1}',
        b"[" * 100_000,
        b'{"records": [' + b"[" * 100_000,
        b"\xef\xbb\xbf" + GOLDEN,
        GOLDEN.decode().encode("utf-16"),
        GOLDEN.replace("é".encode(), b"\xe9"),
        GOLDEN + b"x",
        GOLDEN + GOLDEN,
        GOLDEN.replace(b'"schema": 1', b'"schema": 1, "schema": 1'),
        GOLDEN.replace(b'"schema": 1', b'"schema": 1, "records": []'),
        GOLDEN.replace(b'"schema": 1', b'"schema": 1.0'),
        GOLDEN.replace(b'"schema": 1', b'"schema": ' + b"9" * 400),
        GOLDEN.replace(b'"schema": 1', b'"schema": true'),
        GOLDEN.replace(b'"schema": 1', b'"schema": 1, "more": 1'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": NaN'),
        GOLDEN.replace(b'"median_us": 9.984', b'"median_us": 9.984, "median_us": 9.984'),
        GOLDEN.replace(b'"records": [', b'"records": [1, '),
        json.dumps(RAW | {"records": {}}).encode(),
        json.dumps(RAW | {"records": None}).encode(),
    ],
)
def test_what_is_not_one_whole_document_is_bad(data) -> None:
    with pytest.raises(BadDocumentError) as caught:
        DocumentIndex.of(data, source="x")
    assert not caught.value.newer


def test_a_newer_schema_is_told_whatever_its_records_are() -> None:
    for records in ([1, {}], {}, "otherwise", None):
        with pytest.raises(BadDocumentError) as caught:
            DocumentIndex.of(json.dumps({"records": records, "schema": 2}).encode(), source="x")
        assert caught.value.newer


def test_a_record_that_stands_twice_is_refused_when_it_is_asked_for(tmp_path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(json.dumps(RAW | {"records": RAW["records"] + RAW["records"][:1]}).encode())
    twice = document.parse_record(
        json.dumps(RAW["records"][0]).encode(), RECORD.kernel, RECORD.device, source="x"
    )
    with pytest.raises(BadDocumentError, match="stands twice"):
        IndexedFiles().find(path, twice.key, files.signature(path))


def write(path: Path, records: list[TunedRecord]) -> None:
    made = document.ConfigDocument(RECORD.kernel, RECORD.device, tuple(records))
    files.replace_file(path, document.dump(made))


def test_a_file_replaced_between_two_lookups_is_read_again(tmp_path) -> None:
    path, cached = tmp_path / "x.json", IndexedFiles()
    records = [record_for(n) for n in range(9)]
    write(path, records)
    seen = files.signature(path)
    assert cached.find(path, records[0].key, seen).records == (records[0],)
    write(path, records[3:])  # the places that are known for this signature are wrong by now
    assert cached.find(path, records[5].key, seen).records == (records[5],)
    for record in records:
        expected = (record,) if record in records[3:] else ()
        assert cached.find(path, record.key, files.signature(path)).records == expected


def test_what_is_remembered_stays_within_its_limits(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(indexed, "MAX_INDEXED", 100)
    monkeypatch.setattr(indexed, "MAX_PARSED_BYTES", 20_000)
    cached, per_file = IndexedFiles(), 20
    paths = [tmp_path / f"{each}.json" for each in range(12)]
    for number, path in enumerate(paths):
        write(path, [record_for(number * per_file + n) for n in range(per_file)])
    for _ in range(2):
        for number, path in enumerate(paths):
            for n in range(per_file):
                record = record_for(number * per_file + n)
                found = cached.find(path, record.key, files.signature(path))
                assert found.records == (record,)
                assert sum(map(indexed._size, (i for _, i in cached._indexes.values()))) <= 100
                assert cached._indexed <= 100
                assert sum(each[2] for each in cached._parsed.values()) <= 20_000
    assert 0 < len(cached._indexes) < len(paths)
    assert 0 < cached._parsed_bytes <= 20_000
