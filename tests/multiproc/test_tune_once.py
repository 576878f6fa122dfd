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


def test_four_processes_on_one_cold_key_tune_once_and_all_launch_its_config(tmp_path):
    store = tmp_path / "store"
    processes = [workers.start(store, FASTEST[block], wait=True) for block in (16, 32, 64, 32)]
    workers.release(processes)
    said = [workers.finished(process)[0] for process in processes]
    assert sorted(each["measured"] for each in said) == [[], [], [], [16, 32, 64]]
    (block,) = {each["block"] for each in said}
    (record,) = records(store)
    assert len(record.configs) == 3
    assert [int(value.value) for value in record.chosen if value.name == "BLOCK"] == [block]
    assert workers.run(store, None, 2)["block"] == block
    assert not list(store.rglob("*.tmp*"))
    assert not list((store / ".flights").iterdir())


def test_when_the_process_that_tunes_is_killed_one_that_waits_tunes_and_nothing_is_lost(tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    workers.run(store, FASTEST[32])
    before = records(store)
    dying = workers.start(other, {16: 1.0, 32: -1.0, 64: 3.0})
    waiting = workers.start(other, FASTEST[64], wait=True)
    assert dying.stdout.readline() == "tuning\n"
    workers.release([waiting])
    sharing = workers.start(store, None)
    assert workers.finished(sharing)[0]["block"] == 32
    assert waiting.poll() is None
    os.kill(dying.pid, signal.SIGKILL)
    dying.communicate()
    assert workers.finished(waiting)[0] | {"plans": None} == {
        "block": 64, "measured": [16, 32, 64], "plans": None,
    }  # fmt: skip
    assert records(store) == before
    assert len(records(other)) == 1
