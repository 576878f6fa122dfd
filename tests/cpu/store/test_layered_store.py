"""LayeredStore: the first layer that knows answers, and only one is ever written."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stored import GOLDEN, RECORD, get, plant, record_for, set_aside_files

from launchkit.errors import UsageError
from launchkit.keys import KernelId, Toolchain
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, Miss

SLOWER = replace(RECORD, configs=RECORD.configs[::-1])


def share_of(path, *records) -> DirectoryStore:
    """A directory with records in it, opened for reading only."""
    writer = DirectoryStore(path)
    assert all(writer.put(record) for record in records)
    return DirectoryStore(path, read_only=True)


def tree(path) -> dict[str, tuple[int, int]]:
    """Everything below a directory, with sizes and times."""
    found = [path, *path.rglob("*")]
    return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in found}


@pytest.fixture
def share(tmp_path):
    return share_of(tmp_path / "share", SLOWER, record_for(1))


def test_the_first_layer_that_knows_answers(store, share) -> None:
    layered = LayeredStore([store, share])
    assert get(layered, RECORD) == SLOWER
    assert layered.where(SLOWER) == share.describe()
    store.put(RECORD)
    assert get(layered, RECORD) == RECORD
    assert get(layered, record_for(1)) == record_for(1)
    assert layered.where(RECORD) == store.describe()
    assert layered.where(SLOWER) == share.describe()
    assert layered.where(record_for(2)) == ""


def test_a_hit_below_is_not_copied_up(store, share) -> None:
    assert get(LayeredStore([store, share]), RECORD) == SLOWER
    assert not store.path.exists()


def test_what_is_put_goes_to_the_first_layer_that_may_be_written(store, share, tmp_path) -> None:
    below = DirectoryStore(tmp_path / "below")
    before = tree(share.path)
    layered = LayeredStore([share, store, below])
    assert layered.put(record_for(2)) is True
    assert get(store, record_for(2)) == record_for(2)
    assert not below.path.exists()
    assert tree(share.path) == before
    assert (layered.writable, layered.read_only) == (store, False)


def test_with_read_only_layers_alone_what_is_put_lasts_as_long_as_the_process(share) -> None:
    layered, before = LayeredStore([share]), tree(share.path)
    assert layered.read_only
    assert layered.put(record_for(2)) is False
    assert get(layered, record_for(2)) == record_for(2)
    assert layered.where(record_for(2)) == "memory of this process"
    assert record_for(2) in set(layered.records())
    assert get(LayeredStore([share]), record_for(2)) == Miss("absent")
    assert tree(share.path) == before


def test_records_come_once_each_from_the_upper_layer(store, share) -> None:
    store.put(RECORD)
    layered = LayeredStore([store, share])
    assert list(layered.records()) == [RECORD, record_for(1)]
    assert list(layered.records_of(RECORD.kernel.name)) == [RECORD, record_for(1)]
    assert list(layered.records_of("another")) == []


def test_layers_of_layers_are_taken_apart(store, share) -> None:
    memory = MemoryStore()
    layered = LayeredStore([memory, LayeredStore([store, share])])
    assert layered.layers == (memory, store, share)
    with pytest.raises(UsageError, match="at least one"):
        LayeredStore([])


@pytest.mark.parametrize("broken", ["upper", "lower"])
def test_the_miss_with_most_to_say_is_returned(store, tmp_path, broken) -> None:
    plant(store, b"broken")
    other = share_of(tmp_path / "share", replace(RECORD, toolchain=Toolchain("3.6.0")))
    layers = [store, other] if broken == "upper" else [other, store]
    assert get(LayeredStore(layers), RECORD) == Miss("toolchain")
    plant(store, b"broken")
    assert get(LayeredStore([MemoryStore(), store]), RECORD) == Miss("bad-document")


@pytest.mark.parametrize("data", [b"", b"[]", GOLDEN[:-9], GOLDEN.replace(b": 1\n", b": 2\n")])
def test_a_read_only_directory_is_never_mended_locked_or_made(share, caplog, data) -> None:
    path = plant(share, data)
    before = tree(share.path)
    reason = "newer-schema" if b": 2\n" in data else "bad-document"
    assert [get(share, RECORD) for _ in range(3)] == [Miss(reason)] * 3
    assert list(share.records()) == [record_for(1)]
    assert share.put(RECORD) is False
    assert tree(share.path) == before
    assert path.read_bytes() == data
    assert not set_aside_files(share)
    assert share.counters[reason] >= 3
    absent = DirectoryStore(share.path / "absent", read_only=True)
    assert get(absent, RECORD) == Miss("absent")
    assert (absent.put(RECORD), absent.path.exists()) == (False, False)


def test_examine_says_it_of_each_layer(store, share, tmp_path) -> None:
    plant(share, b"broken")
    store.put(record_for(2))
    health = LayeredStore([store, share]).examine()
    assert (health.records, health.lasting, health.read_only, health.unwritable) == (
        2,
        True,
        False,
        None,
    )
    assert [(each.place, each.records, each.read_only) for each in health.layers] == [
        (store.describe(), 1, False),
        (share.describe(), 1, True),
    ]
    assert len(health.broken) == 1
    assert LayeredStore([share]).examine().read_only
    assert not LayeredStore([MemoryStore(), share]).examine().lasting


@pytest.mark.parametrize("name", [RECORD.kernel.name, "näme/with ~odd", "other-0123456789ab"])
def test_records_of_one_name_are_found_whatever_their_digest_and_device(store, name) -> None:
    others = [KernelId("other", "a" * 64), KernelId(f"{name}-{'0' * 12}", "b" * 64)]
    mine = [
        replace(RECORD, kernel=KernelId(name, digit * 64), device=device, toolchain=toolchain)
        for digit in "12"
        for device in (RECORD.device, replace(RECORD.device, name="NVIDIA L4"))
        for toolchain in (RECORD.toolchain, Toolchain("3.6.0"))
    ]
    memory = MemoryStore()
    for record in [*mine, *(replace(RECORD, kernel=kernel) for kernel in others)]:
        store.put(record)
        memory.put(record)
    assert set(store.records_of(name)) == set(memory.records_of(name)) == set(mine)


def test_records_of_a_name_reads_no_other_kernels_file(store) -> None:
    store.put(RECORD)
    plant(store, b"broken", replace(RECORD, kernel=KernelId("other", "a" * 64)))
    assert list(store.records_of(RECORD.kernel.name)) == [RECORD]
    assert not store.counters


def test_what_holds_a_record_counts_no_miss(store) -> None:
    assert not store.holds(RECORD)
    store.put(RECORD)
    assert store.holds(RECORD)
    assert not store.holds(SLOWER)
    assert not store.counters


def test_records_of_one_key_come_whatever_their_kernel_digest_device_and_toolchain(store) -> None:
    mine = [
        RECORD,
        replace(RECORD, kernel=KernelId(RECORD.kernel.name, "a" * 64)),
        replace(RECORD, device=replace(RECORD.device, name="NVIDIA L4")),
        replace(RECORD, toolchain=Toolchain("3.6.0")),
    ]
    for record in [*mine, record_for(1), replace(RECORD, kernel=KernelId("b", "a" * 64))]:
        store.put(record)
    for each in (store, LayeredStore([MemoryStore(), store])):
        assert set(each.records_of(RECORD.kernel.name, RECORD.key)) == set(mine)
        assert list(each.records_of("absent", RECORD.key)) == []
