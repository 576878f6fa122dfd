"""A launch takes what a lock file says, without measuring, or tunes where it cannot."""

from __future__ import annotations

import pytest
from benching import Bench, kernel_with, launched_block

import launchkit
from launchkit.dispatch import config_counts
from launchkit.dispatch.stores import use_store
from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, PinnedStore, merge, pins

pytestmark = pytest.mark.usefixtures("measuring")
NEVER = {16: 0.0, 32: 0.0, 64: 0.0, 128: 0.0}


@pytest.fixture
def lock(tmp_path, memory_store):
    """A lock file of a tuning whose winner was block 32."""
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    pins.write(tmp_path / "launchkit.lock", pins.select(memory_store.records()))
    return tmp_path / "launchkit.lock"


@pytest.mark.parametrize("blocks", [(16, 32, 64), (64, 32), (32, 16, 64, 128)])
def test_a_pin_decides_without_measuring_whatever_else_is_in_the_list(lock, blocks) -> None:
    use_store(PinnedStore(lock))
    bench = Bench(NEVER)
    assert launched_block(kernel_with(bench, blocks=blocks)) == 32
    assert bench.measured == []


def test_a_pin_above_a_store_that_chose_otherwise_wins(lock, tmp_path) -> None:
    mine = DirectoryStore(tmp_path / "mine")
    use_store(mine)
    launched_block(kernel_with(Bench({16: 1.0, 32: 2.0, 64: 3.0})))
    use_store(LayeredStore([PinnedStore(lock), mine]))
    bench = Bench(NEVER)
    assert launched_block(kernel_with(bench)) == 32
    assert bench.measured == []


def test_a_pin_whose_config_is_not_in_the_live_list_is_a_miss(lock) -> None:
    use_store(store := PinnedStore(lock))
    config_counts.reset()
    before = lock.read_bytes()
    bench = Bench({16: 2.0, 64: 1.0})
    assert launched_block(kernel_with(bench, blocks=(16, 64))) == 64
    assert bench.measured == [16, 64]
    assert launchkit.stats().configs.misses == {"no stored config is live": 1}
    assert lock.read_bytes() == before
    assert len(list(store.records())) == 1


def test_the_same_pin_wins_in_every_process_that_reads_it(lock) -> None:
    for _ in range(3):
        use_store(PinnedStore(lock))
        assert launched_block(kernel_with(Bench(NEVER))) == 32


def test_merging_a_lock_file_into_a_store_pins_nothing_there(lock) -> None:
    use_store(store := MemoryStore())
    merge.apply(merge.plan(store, PinnedStore(lock).records(), "faster"), store)
    bench = Bench({16: 0.5, 32: 0.0, 64: 3.0})
    assert launched_block(kernel_with(bench)) == 16
    assert bench.measured == [16, 64]
