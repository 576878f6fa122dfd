"""DirectoryStore: what was put is there for every process, as it was put."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace

import pytest
from stored import RECORD, file_of, get, record_for, same_file
from threads import in_threads

from launchkit import jsonio
from launchkit.configs import TunedConfig, identify
from launchkit.errors import StoreError
from launchkit.keys import KernelId, Toolchain
from launchkit.store import DirectoryStore, Miss, document, files


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


def test_an_unchanged_file_is_read_once_and_each_of_its_records_too(store, monkeypatch) -> None:
    records = [RECORD, *same_file(RECORD, 5)]
    for record in records:
        store.put(record)
    reader, calls = DirectoryStore(store.path), Counter()
    for module, name in ((jsonio, "read_limited"), (files, "read_spans")):
        original = getattr(module, name)
        counted = lambda *a, _f=original, _n=name: calls.update([_n]) or _f(*a)  # noqa: E731
        monkeypatch.setattr(module, name, counted)
    for _ in range(3):
        assert [get(reader, record) for record in records] == records
    assert calls == {"read_limited": 1, "read_spans": len(records) - 1}


def test_a_config_outside_every_list_is_stored_text_and_nothing_more(store) -> None:
    odd = TunedConfig.measured(
        identify({"BLOCK": 4096, "num_warps": 32}), 1.0, reps=1, method="events"
    )
    store.put(replace(RECORD, configs=(odd,), chosen=odd.config))
    assert get(store, RECORD).chosen == odd.config  # whether it is live, only the launcher knows


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


def test_counters_and_records_survive_many_threads(store) -> None:
    records = [record_for(n) for n in range(16)]

    def work(index: int) -> tuple[object, ...]:
        record = records[index]
        return get(store, record), store.put(record), get(store, record) == record

    assert in_threads(16, work) == [(Miss("absent"), True, True)] * 16
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
