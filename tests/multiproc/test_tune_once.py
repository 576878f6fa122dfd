"""Processes that tune one key over one directory: they agree afterwards, and a kill does no harm."""

from __future__ import annotations

import os
import signal

import workers

from launchkit.store import DirectoryStore

FASTEST = {
    16: {16: 1.0, 32: 2.0, 64: 3.0},
    32: {16: 2.0, 32: 1.0, 64: 3.0},
    64: {16: 3.0, 32: 2.0, 64: 1.0},
}


def records(store):
    opened = DirectoryStore(store)
    found = list(opened.records())
    assert opened.counters == {}
    return found


def test_processes_that_tune_together_leave_one_record_and_agree_afterwards(tmp_path):
    store = tmp_path / "store"
    processes = [workers.start(store, FASTEST[block]) for block in (16, 32, 64, 32)]
    for process in processes:
        workers.finished(process)
    (record,) = records(store)
    assert len(record.configs) == 3
    (block,) = {int(value.value) for value in record.chosen if value.name == "BLOCK"}
    later = [workers.start(store, None, 2) for _ in range(3)]
    assert [workers.finished(process)[0]["block"] for process in later] == [block] * 3
    assert not list(store.rglob("*.tmp*"))


def test_sixteen_processes_on_one_cold_key_leave_one_record_of_three_configs(tmp_path):
    store = tmp_path / "store"
    blocks = [16, 32, 64, 32] * 4
    processes = [workers.start(store, FASTEST[block], wait=True) for block in blocks]
    workers.release(processes)
    said = [workers.finished(process)[0] for process in processes]
    assert all(each["measured"] in ([], [16, 32, 64]) for each in said)
    assert [16, 32, 64] in [each["measured"] for each in said]
    (record,) = records(store)
    assert len(record.configs) == 3
    assert record.chosen in [config.config for config in record.configs]
    (block,) = {int(value.value) for value in record.chosen if value.name == "BLOCK"}
    assert workers.run(store, None)["block"] == block
    assert not list(store.rglob("*.tmp*"))


def test_process_killed_while_it_tunes_leaves_the_store_readable(tmp_path):
    store = tmp_path / "store"
    workers.run(store, FASTEST[32])
    before = records(store)
    dying = workers.start(tmp_path / "other", {16: 1.0, 32: -1.0, 64: 3.0})
    sharing = workers.start(store, None)
    assert dying.stdout.readline() == "tuning\n"
    os.kill(dying.pid, signal.SIGKILL)
    dying.communicate()
    assert workers.finished(sharing)[0]["block"] == 32
    assert records(store) == before
    assert workers.run(tmp_path / "other", FASTEST[64])["block"] == 64
    assert len(records(tmp_path / "other")) == 1
