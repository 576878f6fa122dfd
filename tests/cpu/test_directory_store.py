"""DirectoryStore: what was put is there for every process; what is broken is a miss, never lost."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import pathlib
import resource
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from launchkit.configs import TunedConfig, TunedRecord, identify
from launchkit.errors import StoreError
from launchkit.keys import KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import ConfigStore, DirectoryStore, Miss, document, files

GOLDEN = (pathlib.Path(__file__).parent.parent / "data" / "config_document_v1.json").read_bytes()
RECORD = next(
    each for each in document.parse(GOLDEN, source="golden").records if len(each.configs) == 3
)


def record_for(n: int, **changes) -> TunedRecord:
    return replace(RECORD, key=LaunchKey((encode_value("n", n),), RECORD.key.dtypes), **changes)


def same_file(record: TunedRecord, count: int) -> list[TunedRecord]:
    """Records of other keys that share the file of ``record``."""
    made = (record_for(n) for n in range(10_000))
    found = (each for each in made if each.key.digest[:2] == record.key.digest[:2])
    return [next(found) for _ in range(count)]


def get(store: ConfigStore, record: TunedRecord) -> TunedRecord | Miss:
    return store.get(*record.identity)


def file_of(store: DirectoryStore, record: TunedRecord) -> pathlib.Path:
    place = store.path / "v1" / record.device.slug / record.kernel.slug
    return place / f"{record.key.digest[:2]}.json"


def set_aside_files(store: DirectoryStore) -> list[pathlib.Path]:
    return sorted(store.path.rglob("*.bad-*"))


def plant(store: DirectoryStore, data: bytes, record: TunedRecord = RECORD) -> pathlib.Path:
    path = file_of(store, record)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def store(tmp_path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "not" / "yet" / "there")


@pytest.fixture
def unprivileged() -> Iterator[pathlib.Path]:
    """A directory of an ordinary user, with that user's rights: root may write anywhere."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="launchkit-", dir="/tmp"))
    as_root = os.geteuid() == 0
    if as_root:
        os.chown(root, 65534, 65534)
        os.seteuid(65534)
    try:
        yield root
    finally:
        if as_root:
            os.seteuid(0)
        for place in [root, *root.rglob("*")]:
            with contextlib.suppress(OSError):
                place.chmod(0o755)
        shutil.rmtree(root)


def test_what_was_put_is_there_for_another_process(store) -> None:
    assert get(store, RECORD) == Miss("absent")
    assert not store.path.exists()  # reading makes nothing
    assert store.put(RECORD) is True
    assert get(store, RECORD) == get(DirectoryStore(store.path), RECORD) == RECORD
    assert list(DirectoryStore(store.path).records()) == [RECORD]
    assert store.counters == {"absent": 1}


def test_layout_is_device_kernel_and_two_hex_digits_of_the_key(store) -> None:
    store.put(RECORD)
    (path,) = store.path.rglob("*.json")
    expected = f"v1/{RECORD.device.slug}/{RECORD.kernel.slug}/{RECORD.key.digest[:2]}.json"
    assert str(path.relative_to(store.path)) == expected
    assert document.parse(path.read_bytes(), source="x").records == (RECORD,)


def test_another_key_device_or_kernel_is_absent_and_another_toolchain_says_so(store) -> None:
    store.put(RECORD)
    absent = [
        record_for(1),
        same_file(RECORD, 1)[0],
        replace(RECORD, device=replace(RECORD.device, multiprocessors=16)),
        replace(RECORD, kernel=KernelId(RECORD.kernel.name, "0" * 64)),
    ]
    assert [get(store, each) for each in absent] == [Miss("absent")] * 4
    assert get(store, replace(RECORD, toolchain=Toolchain("3.9.1"))) == Miss("toolchain")
    assert store.counters == {"absent": 4, "toolchain": 1}


def test_two_tritons_share_a_directory_and_lose_nothing(store) -> None:
    older = replace(RECORD, toolchain=Toolchain("3.6.0"))
    for record in (RECORD, older, RECORD):
        assert store.put(record)
    assert get(store, RECORD) == RECORD
    assert get(store, older) == older


def test_putting_again_merges_timings(store) -> None:
    extra = TunedConfig.measured(identify({"BLOCK": 512}), 1.0, reps=5, method="events")
    newer = replace(RECORD, configs=(extra,), chosen=extra.config)
    store.put(RECORD)
    DirectoryStore(store.path).put(newer)
    merged = get(store, RECORD)
    assert merged.configs == (*RECORD.configs, extra)
    assert merged.chosen == extra.config


def test_keys_that_share_a_file_keep_each_other(store) -> None:
    records = [RECORD, *same_file(RECORD, 5)]
    for record in records:
        DirectoryStore(store.path).put(record)
    assert len(list(store.path.rglob("*.json"))) == 1
    assert [get(store, record) for record in records] == records
    assert set(store.records()) == set(records)


def test_an_unchanged_record_is_not_written_again(store) -> None:
    store.put(RECORD)
    before = files.signature(file_of(store, RECORD))
    assert store.put(RECORD) is True
    assert files.signature(file_of(store, RECORD)) == before


def test_an_unchanged_file_is_parsed_once(store, monkeypatch) -> None:
    records = [RECORD, *same_file(RECORD, 5)]
    for record in records:
        store.put(record)
    reader, calls, parse = DirectoryStore(store.path), [], document.parse
    monkeypatch.setattr(document, "parse", lambda *a, **k: calls.append(a) or parse(*a, **k))
    assert [get(reader, record) for record in records] == records
    assert len(calls) == 1


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


def test_a_config_outside_every_list_is_stored_text_and_nothing_more(store) -> None:
    odd = TunedConfig.measured(
        identify({"BLOCK": 4096, "num_warps": 32}), 1.0, reps=1, method="events"
    )
    store.put(replace(RECORD, configs=(odd,), chosen=odd.config))
    assert get(store, RECORD).chosen == odd.config  # whether it is live, only the launcher knows


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


def test_a_directory_that_cannot_be_written_serves_what_it_has(unprivileged, caplog) -> None:
    DirectoryStore(unprivileged).put(RECORD)
    for place in [*unprivileged.rglob("*"), unprivileged]:
        place.chmod(0o555 if place.is_dir() else 0o444)
    store = DirectoryStore(unprivileged)
    assert get(store, RECORD) == RECORD
    other = same_file(RECORD, 1)[0]
    elsewhere = replace(other, kernel=KernelId("new", "1" * 64))
    assert [store.put(other), store.put(elsewhere)] == [False, False]
    assert [get(store, other), get(store, elsewhere)] == [other, elsewhere]
    assert set(store.records()) == {RECORD, other, elsewhere}
    assert store.counters == {"kept-in-process": 2, "warnings": 1}
    assert len(caplog.records) == 1
    assert "this process only" in caplog.text
    assert get(DirectoryStore(unprivileged), other) == Miss("absent")


def test_corrupt_content_that_cannot_be_moved_is_a_miss_and_stays(unprivileged, caplog) -> None:
    store = DirectoryStore(unprivileged)
    path = plant(store, b"broken")
    path.parent.chmod(0o555)
    assert [get(store, RECORD) for _ in range(3)] == [Miss("bad-document")] * 3
    assert path.read_bytes() == b"broken"
    assert len(caplog.records) == 1
    assert store.put(RECORD) is False
    assert get(store, RECORD) == RECORD


def test_an_unreadable_file_is_a_miss_and_is_not_moved(unprivileged, caplog) -> None:
    store = DirectoryStore(unprivileged)
    store.put(RECORD)
    path = file_of(store, RECORD)
    path.chmod(0)
    reader = DirectoryStore(unprivileged)
    assert get(reader, RECORD) == Miss("unreadable")
    assert list(reader.records()) == []
    path.chmod(0o644)
    assert get(reader, RECORD) == RECORD
    assert len(caplog.records) == 1


def test_a_write_that_fails_halfway_leaves_the_old_file_and_no_other(store, caplog) -> None:
    store.put(RECORD)
    before = file_of(store, RECORD).read_bytes()
    other = same_file(RECORD, 1)[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # the kernel stops the write there
    try:
        assert store.put(other) is False
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    names = {each.name for each in file_of(store, RECORD).parent.iterdir()}
    assert names == {file_of(store, RECORD).name, files.LOCK_NAME}
    assert file_of(store, RECORD).read_bytes() == before
    assert get(store, other) == other


def test_a_full_disk_is_one_warning_and_a_later_put_is_stored(store, monkeypatch, caplog) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert [store.put(RECORD), store.put(record_for(1))] == [False, False]
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert store.put(RECORD) is True
    assert get(DirectoryStore(store.path), RECORD) == RECORD
    assert set(store.records()) == {RECORD, record_for(1)}


def test_what_could_not_be_written_goes_out_with_the_next_put(store, monkeypatch) -> None:
    extra = TunedConfig.measured(identify({"BLOCK": 512}), 1.0, reps=5, method="events")
    newer = replace(RECORD, configs=(extra,), chosen=extra.config)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda temp, path: os.rmdir(temp))  # fails
        assert store.put(RECORD) is False
    assert store.put(newer) is True
    DirectoryStore(store.path).put(RECORD)
    for reader in (store, DirectoryStore(store.path)):
        found = get(reader, RECORD)
        assert found.configs == (*RECORD.configs, extra)
        assert found.chosen == RECORD.chosen  # the last choice is on disk, not in the process


def test_a_file_system_without_locks_keeps_records_in_this_process(store, monkeypatch) -> None:
    class NoLock:
        def __init__(self, *args, **kwargs) -> None:
            raise NotImplementedError("no flock here")

    monkeypatch.setattr(files, "FileLock", NoLock)
    assert store.put(RECORD) is False
    assert get(store, RECORD) == RECORD


def test_a_holder_that_hangs_is_waited_for_once_only(store, monkeypatch) -> None:
    monkeypatch.setattr(store, "_patience_s", 0.2)
    with files.locked(file_of(store, RECORD).parent, 1.0):
        assert store.put(RECORD) is False
        assert store._patience_s < 0.2
        assert store.put(RECORD) is False
    assert store.put(RECORD) is True


def test_a_document_never_grows_beyond_what_is_read(store, monkeypatch) -> None:
    first, second = same_file(RECORD, 2)
    store.put(first)
    monkeypatch.setattr(document, "LIMIT_BYTES", len(file_of(store, first).read_bytes()) + 100)
    assert store.put(second) is False
    assert get(DirectoryStore(store.path), first) == first


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_modes_follow_the_umask(store, umask) -> None:
    old = os.umask(umask)
    try:
        store.put(RECORD)
    finally:
        os.umask(old)
    path = file_of(store, RECORD)
    for file in (path, path.parent / files.LOCK_NAME):
        assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    assert path.parent.stat().st_mode & 0o777 == 0o777 & ~umask


def test_temps_of_killed_writers_are_ignored_and_removed_when_old(store) -> None:
    store.put(RECORD)
    place = file_of(store, RECORD).parent
    old, young = (place / f".{file_of(store, RECORD).name}.tmp-1-{each}" for each in ("old", "new"))
    for path in (old, young, place / "notes.tmp-1"):
        path.write_bytes(b"{")
    for path in (old, place / "notes.tmp-1"):
        os.utime(path, (1, 1))
    later = DirectoryStore(store.path)
    assert list(later.records()) == [RECORD]
    assert get(later, RECORD) == RECORD
    assert later.put(record_for(1))
    assert young.exists()
    assert (place / "notes.tmp-1").exists()
    assert not old.exists()


def test_an_unknown_toolchain_is_kept_in_this_process_and_poisons_nothing(store, caplog) -> None:
    store.put(RECORD)
    unknown = replace(RECORD, toolchain=Toolchain("unknown"))
    assert get(store, unknown) == Miss("toolchain")
    assert store.put(unknown) is False
    assert get(store, unknown) == unknown
    assert get(store, RECORD) == RECORD
    assert get(DirectoryStore(store.path), unknown) == Miss("toolchain")


def test_an_unknown_toolchain_in_a_file_is_never_taken_for_the_live_one(store) -> None:
    unknown = replace(RECORD, toolchain=Toolchain("unknown"))
    parsed = document.ConfigDocument(RECORD.kernel, RECORD.device, (RECORD, unknown))
    plant(store, document.dump(parsed))
    assert get(store, unknown) == Miss("toolchain")
    assert get(store, RECORD) == RECORD


def test_records_lists_what_is_readable_and_moves_nothing(store, caplog) -> None:
    store.put(RECORD)
    other = record_for(1)
    plant(store, b"broken", other)
    plant(store, GOLDEN, replace(RECORD, kernel=KernelId("another", "0" * 64)))
    assert list(store.records()) == list(store.records()) == [RECORD]
    assert not set_aside_files(store)
    assert len(caplog.records) == 2


def test_a_directory_that_cannot_be_listed_is_counted_and_the_rest_is_read(
    unprivileged, caplog
) -> None:
    store = DirectoryStore(unprivileged)
    other = replace(RECORD, kernel=KernelId("another", "0" * 64))
    store.put(RECORD)
    store.put(other)
    file_of(store, other).parent.chmod(0o000)
    assert list(store.records()) == [RECORD]
    assert store.counters == {"unreadable": 1, "warnings": 1}
    assert caplog.text.rstrip().endswith("Make it readable.")


def test_links_that_go_round_do_not_keep_a_listing(store) -> None:
    store.put(RECORD)
    (store.path / "v1" / "round").symlink_to(store.path / "v1")
    file_of(store, record_for(1)).with_name("ll.json").symlink_to("ll.json")
    assert list(store.records()) == [RECORD]
    assert store.counters["unreadable"] == 1


def test_a_path_that_no_file_system_takes_keeps_records_in_this_process(tmp_path, caplog) -> None:
    store = DirectoryStore(tmp_path / ("x" * 300))
    assert store.put(RECORD) is False
    assert get(store, RECORD) == RECORD
    assert list(store.records()) == [RECORD]
    assert "or set LAUNCHKIT_STORE to another place." in caplog.text


def test_counters_and_records_survive_many_threads(store) -> None:
    records = [record_for(n) for n in range(16)]
    start = threading.Barrier(16)
    results: list[object] = []

    def work(record: TunedRecord) -> None:
        start.wait()
        results.append((get(store, record), store.put(record), get(store, record) == record))

    threads = [threading.Thread(target=work, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [(Miss("absent"), True, True)] * 16
    assert store.counters == {"absent": 16}
    assert set(DirectoryStore(store.path).records()) == set(records)


@pytest.mark.parametrize("below", [False, True])
def test_a_path_that_names_a_file_is_an_error_when_opened(tmp_path, below) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="not a directory"):
        DirectoryStore(tmp_path / "file" / "sub" if below else tmp_path / "file")


@pytest.mark.parametrize("path", ["", "a\0b", b"bytes"])
def test_a_path_that_is_none_is_an_error(path) -> None:
    with pytest.raises(StoreError):
        DirectoryStore(path)


def test_a_directory_reached_by_links_is_the_same_store(store, tmp_path) -> None:
    store.put(RECORD)
    (tmp_path / "link").symlink_to(store.path)
    linked = DirectoryStore(tmp_path / "link")
    assert get(linked, RECORD) == RECORD
    assert linked.put(record_for(1))
    assert get(store, record_for(1)) == record_for(1)


def test_an_edit_by_hand_is_seen(store) -> None:
    store.put(RECORD)
    path = file_of(store, RECORD)
    raw = json.loads(path.read_bytes())
    raw["records"][0]["configs"][0]["method"] = "edited by hand"
    path.write_text(json.dumps(raw))
    assert get(store, RECORD).configs[0].method == "edited by hand"


def test_describe_says_where(store) -> None:
    assert store.describe() == f"directory {store.path}"
