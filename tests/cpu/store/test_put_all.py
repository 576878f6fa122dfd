"""Many records at once: each is stored as if put alone, with one write for those of one file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stored import RECORD, file_of, get, plant, record_for, same_file

from launchkit.configs import merge_records
from launchkit.keys import Toolchain
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, files


def test_records_put_together_are_stored_as_if_put_alone(tmp_path) -> None:
    others = [record_for(n) for n in range(30)]
    fewer = replace(RECORD, configs=RECORD.configs[:1], chosen=RECORD.configs[0].config)
    records = [fewer, *others, RECORD]
    alone, together = DirectoryStore(tmp_path / "alone"), DirectoryStore(tmp_path / "together")
    assert all(alone.put(record) for record in records)
    assert together.put_all(records) == []
    for path in alone.paths():
        twin = together.path / path.relative_to(alone.path)
        assert twin.read_bytes() == path.read_bytes()
    assert len(alone.paths()) == len(together.paths())


def test_neighbours_of_one_file_cost_one_write(tmp_path, monkeypatch) -> None:
    written = []
    original = files.replace_file
    monkeypatch.setattr(
        files, "replace_file", lambda path, data: written.append(path) or original(path, data)
    )
    store, records = DirectoryStore(tmp_path), same_file(RECORD, 5)
    assert store.put_all(records) == []
    assert len(written) == 1
    assert [get(store, record) for record in records] == records
    assert store.put_all(records) == []
    assert len(written) == 1


def test_what_cannot_be_stored_comes_back_and_holds_for_the_process(tmp_path) -> None:
    store = DirectoryStore(tmp_path)
    unknown = replace(record_for(1), toolchain=Toolchain("unknown"))
    plant(store, b'{"schema": 99}')
    first, second = same_file(RECORD, 2)
    refused = store.put_all([first, unknown, second, record_for(2)])
    assert sorted(refused, key=repr) == sorted([first, unknown, second], key=repr)
    assert [get(store, each) for each in (first, second)] == [first, second]
    assert store.counters["kept-in-process"] == 3
    assert get(DirectoryStore(tmp_path), record_for(2)) == record_for(2)


def test_each_file_is_written_once_whatever_the_order(tmp_path, monkeypatch) -> None:
    store, several = DirectoryStore(tmp_path), [same_file(record_for(n), 3) for n in range(20)]
    records = [group[i] for i in range(3) for group in several]
    written, original = [], files.replace_file
    monkeypatch.setattr(
        files, "replace_file", lambda path, data: written.append(path) or original(path, data)
    )
    assert store.put_all(iter(records)) == []
    assert sorted(written) == sorted({file_of(store, record) for record in records})
    assert [get(store, record) for record in records] == records


@pytest.mark.parametrize("read_only", [True, False])
def test_a_layered_store_puts_all_where_it_writes(tmp_path, read_only) -> None:
    share, mine = DirectoryStore(tmp_path, read_only=True), MemoryStore()
    layers = LayeredStore([share] if read_only else [share, mine])
    assert layers.put_all([RECORD]) == ([RECORD] if read_only else [])
    assert get(layers, RECORD) == RECORD
    assert list(mine.records()) == ([] if read_only else [RECORD])
    assert not list(tmp_path.iterdir())


def test_a_record_that_could_not_be_written_is_merged_when_it_can_be(tmp_path) -> None:
    store = DirectoryStore(tmp_path)
    path = plant(store, b'{"schema": 99}')
    first = replace(RECORD, configs=RECORD.configs[:1], chosen=RECORD.configs[0].config)
    assert store.put_all([first]) == [first]
    path.unlink()
    second = replace(RECORD, configs=RECORD.configs[1:], chosen=RECORD.configs[1].config)
    assert store.put_all([second]) == []
    assert get(DirectoryStore(tmp_path), RECORD) == merge_records(first, second)
