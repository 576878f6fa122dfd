"""DirectoryStore over broken, foreign or newer files: each is a miss, and none is lost."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import pytest
from stored import GOLDEN, RECORD, file_of, get, plant, record_for, set_aside_files

from launchkit.keys import KernelId, LaunchKey, Toolchain
from launchkit.store import DirectoryStore, Miss, document, files

BAD = {
    "empty": b"",
    "blank": b"\n",
    "list": b"[]",
    "null": b"null",
    "garbage": bytes(range(256)),
    "utf-16": GOLDEN.decode().encode("utf-16"),
    "bom": b"\xef\xbb\xbf" + GOLDEN,
    "cut": GOLDEN[:-10],
    "deep": b"[" * 100_000,
    "nan": GOLDEN.replace(b"9.984", b"NaN"),
    "text for a time": GOLDEN.replace(b"9.984", b'"9.984"'),
    "duplicate key": GOLDEN.replace(b'"schema": 1', b'"schema": 1, "schema": 1'),
    "unknown field": GOLDEN.replace(b'"schema": 1', b'"schema": 1, "more": 1'),
}


@pytest.mark.parametrize("kind", BAD)
def test_corrupt_content_is_a_miss_a_warning_and_a_file_set_aside(store, kind, caplog) -> None:
    path = plant(store, BAD[kind])
    with caplog.at_level(logging.WARNING, "launchkit"):
        assert get(store, RECORD) == Miss("bad-document")
        assert get(store, RECORD) == Miss("absent")
    assert len(caplog.records) == 1
    assert "set aside" in caplog.text
    assert str(path) in caplog.text
    (aside,) = set_aside_files(store)
    assert aside.read_bytes() == BAD[kind]
    assert aside.name.endswith(f"-{os.getpid()}")
    assert store.counters == {"bad-document": 1, "set-aside": 1, "absent": 1, "warnings": 1}
    assert store.put(RECORD)
    assert get(store, RECORD) == RECORD


@pytest.mark.parametrize("kind", BAD)
def test_putting_over_corrupt_content_keeps_it_aside(store, kind) -> None:
    plant(store, BAD[kind])
    assert store.put(RECORD)
    assert get(store, RECORD) == RECORD
    assert [each.read_bytes() for each in set_aside_files(store)] == [BAD[kind]]


def test_a_file_cut_at_any_byte_is_a_miss_and_set_aside(store) -> None:
    small = replace(RECORD, configs=(RECORD.winner,), key=LaunchKey((), ()))
    store.put(small)
    path = file_of(store, small)
    content = path.read_bytes()
    for length in range(len(content) - 1):
        path.write_bytes(content[:length])
        assert get(store, small) == Miss("bad-document")
    assert store.counters["set-aside"] == len(set_aside_files(store)) == len(content) - 1


def test_a_huge_file_is_set_aside_unread(store) -> None:
    path = plant(store, b"")
    with open(path, "r+b") as file:
        file.truncate(2**30)
    assert get(store, RECORD) == Miss("bad-document")
    (aside,) = set_aside_files(store)
    assert aside.stat().st_size == 2**30
    assert store.put(RECORD)
    assert get(store, RECORD) == RECORD


def test_a_fifo_or_a_directory_in_the_place_of_a_file_is_set_aside(store) -> None:
    path = file_of(store, RECORD)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert get(store, RECORD) == Miss("bad-document")
    path.mkdir()
    (path / "precious").touch()
    assert store.put(RECORD)
    assert get(store, RECORD) == RECORD
    assert sorted(each.is_dir() for each in set_aside_files(store)) == [False, True]


@pytest.mark.parametrize(
    "foreign",
    [
        replace(RECORD, kernel=KernelId("another", RECORD.kernel.digest)),
        replace(RECORD, device=replace(RECORD.device, backend="hip")),
        replace(RECORD, device=replace(RECORD.device, name="NVIDIA H100")),
    ],
)
def test_a_document_of_another_kernel_or_device_is_foreign(store, foreign, caplog) -> None:
    elsewhere = DirectoryStore(store.path / "elsewhere")
    elsewhere.put(foreign)
    content = file_of(elsewhere, foreign).read_bytes()
    plant(store, content)
    assert get(store, RECORD) == Miss("foreign")
    assert [each.read_bytes() for each in set_aside_files(store)] == [content]
    assert store.counters["foreign"] == 1
    assert len(caplog.records) == 1
    plant(store, content)
    assert store.put(RECORD)
    assert get(store, RECORD) == RECORD
    assert len(set_aside_files(store)) == 2


def test_a_newer_schema_is_left_in_place_and_never_overwritten(store, caplog) -> None:
    newer = GOLDEN.replace(b'"schema": 1', b'"schema": 2')
    path = plant(store, newer)
    assert get(store, RECORD) == Miss("newer-schema")
    assert store.put(RECORD) is False
    assert get(store, RECORD) == RECORD  # this process does not tune again
    assert get(DirectoryStore(store.path), RECORD) == Miss("newer-schema")
    assert path.read_bytes() == newer
    assert not set_aside_files(store)
    assert "Upgrade launchkit" in caplog.text


def test_a_file_mended_by_another_process_is_not_set_aside(store, tmp_path) -> None:
    path = plant(store, b"broken")
    seen = files.signature(path)
    assert DirectoryStore(store.path).put(RECORD)
    assert files.set_aside(path, seen) is None
    assert get(store, RECORD) == RECORD


def test_files_set_aside_at_one_instant_do_not_replace_each_other(store, monkeypatch) -> None:
    instant = files.clock.utc_now()
    monkeypatch.setattr(files.clock, "utc_now", lambda: instant)
    for content in (b"1", b"2", b"3"):
        plant(store, content)
        assert get(store, RECORD) == Miss("bad-document")
    assert sorted(each.read_bytes() for each in set_aside_files(store)) == [b"1", b"2", b"3"]


def test_records_lists_what_is_readable_and_moves_nothing(store, caplog) -> None:
    store.put(RECORD)
    other = record_for(1)
    plant(store, b"broken", other)
    plant(store, GOLDEN, replace(RECORD, kernel=KernelId("another", "0" * 64)))
    assert list(store.records()) == list(store.records()) == [RECORD]
    assert not set_aside_files(store)
    assert len(caplog.records) == 2


def test_an_unknown_toolchain_in_a_file_is_never_taken_for_the_live_one(store) -> None:
    unknown = replace(RECORD, toolchain=Toolchain("unknown"))
    parsed = document.ConfigDocument(RECORD.kernel, RECORD.device, (RECORD, unknown))
    plant(store, document.dump(parsed))
    assert get(store, unknown) == Miss("toolchain")
    assert get(store, RECORD) == RECORD
