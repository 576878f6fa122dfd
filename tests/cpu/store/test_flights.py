"""Single flight within a process, and where no lock can be had. Processes: tests/multiproc."""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from stored import RECORD, record_for

from launchkit.store import DirectoryStore, LayeredStore, MemoryStore, Miss, files, flights


@pytest.fixture(autouse=True)
def new_process():
    flights._begin_again()


@pytest.fixture(params=["directory", "memory"])
def store(request, tmp_path):
    return DirectoryStore(tmp_path / "store") if request.param == "directory" else MemoryStore()


def in_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=30)


def outcome_of(store, record=RECORD, timeout_s=0.0):
    with flights.flight(store, record.identity, timeout_s) as outcome:
        return outcome


def test_sixteen_threads_on_one_cold_key_tune_once(store):
    tuned, outcomes, gate = [], [], threading.Barrier(16)

    def start():
        gate.wait()
        with flights.flight(store, RECORD.identity, 30.0) as outcome:
            outcomes.append(outcome)
            if isinstance(store.get(*RECORD.identity), Miss):
                tuned.append(outcome)
                store.put(RECORD)

    with ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(start) for _ in range(16)]:
            future.result(timeout=30)
    assert tuned == ["alone"]
    assert len(outcomes) == 16
    assert set(outcomes) <= {"alone", "waited"}


def test_a_thread_may_enter_its_own_flight_again(store):
    with flights.flight(store, RECORD.identity) as outer:
        assert (outer, outcome_of(store)) == ("alone", "alone")
        assert in_thread(lambda: outcome_of(store)) == "late"
    assert in_thread(lambda: outcome_of(store)) == "alone"


def test_another_key_and_another_store_do_not_wait(store, tmp_path):
    with flights.flight(store, RECORD.identity):
        assert in_thread(lambda: outcome_of(store, record_for(1))) == "alone"
        for other in (DirectoryStore(tmp_path / "other"), MemoryStore()):
            assert in_thread(lambda other=other: outcome_of(other)) == "alone"


def test_two_threads_in_flight_that_want_each_others_key_do_not_stand_still(store):
    gate = threading.Barrier(2)

    def both(first, second):
        with flights.flight(store, first.identity, 600.0):
            gate.wait()
            outcome = outcome_of(store, second, 600.0)
            gate.wait()
            return outcome

    with ThreadPoolExecutor(2) as pool:
        pair = (record_for(1), record_for(2))
        one, other = pool.submit(both, *pair), pool.submit(both, *pair[::-1])
        assert (one.result(timeout=30), other.result(timeout=30)) == ("nested", "nested")


def test_after_the_deadline_the_block_runs_with_one_warning(store, caplog):
    with flights.flight(store, RECORD.identity):
        seen = [in_thread(lambda: outcome_of(store, timeout_s=0.01)) for _ in range(3)]
    assert seen == ["late"] * 3
    (warning,) = caplog.records
    assert RECORD.kernel.name in warning.getMessage()


def test_error_in_the_block_passes_and_frees_the_key(store):
    with pytest.raises(ZeroDivisionError), flights.flight(store, RECORD.identity):
        _ = 1 / 0
    assert in_thread(lambda: outcome_of(store)) == "alone"


def test_no_lock_file_stays_and_none_of_them_is_a_document(tmp_path):
    store = DirectoryStore(tmp_path)
    with flights.flight(store, RECORD.identity):
        store.put(RECORD)
        (lock,) = (tmp_path / flights.FOLDER).iterdir()
        assert lock.read_bytes() == b""
        assert list(store.records()) == [RECORD]
    assert list((tmp_path / flights.FOLDER).iterdir()) == []


def test_held_lock_file_of_another_holder_makes_it_late(tmp_path):
    store = DirectoryStore(tmp_path)
    with flights.flight(store, RECORD.identity):
        (lock,) = (tmp_path / flights.FOLDER).iterdir()
    with files.locked_file(lock, 0.0, poll_s=0.01):
        assert in_thread(lambda: outcome_of(store, timeout_s=0.01)) == "late"


def test_old_lock_files_of_killed_holders_are_removed_and_held_and_new_ones_stay(tmp_path):
    folder = tmp_path / flights.FOLDER
    folder.mkdir()
    for name, age_s in [("old", 90_000), ("held", 90_000), ("new", 10)]:
        (folder / name).touch()
        then = (folder / name).stat().st_mtime - age_s
        os.utime(folder / name, (then, then))
    with files.locked_file(folder / "held", 0.0, poll_s=0.01):
        in_thread(lambda: outcome_of(DirectoryStore(tmp_path)))
    assert sorted(each.name for each in folder.iterdir()) == ["held", "new"]


@pytest.mark.parametrize("cause", ["read-only", "file", "no-locks"])
def test_where_no_lock_can_be_had_the_block_runs_with_one_debug_line(
    tmp_path, monkeypatch, caplog, cause
):
    caplog.set_level(logging.DEBUG, "launchkit")

    def refuse(*_):
        raise NotImplementedError("no flock") if cause == "no-locks" else PermissionError("no")

    if cause == "file":
        (tmp_path / flights.FOLDER).write_text("in the way")
    else:
        target = (files.FileLock, "acquire") if cause == "no-locks" else (files.os, "open")
        monkeypatch.setattr(*target, lambda *_, **__: refuse())
    store = DirectoryStore(tmp_path)
    assert [outcome_of(store) for _ in range(3)] == ["unguarded"] * 3
    (line,) = caplog.records
    assert (line.levelname, str(tmp_path) in line.getMessage()) == ("DEBUG", True)


def test_layers_are_locked_in_the_one_that_is_written(tmp_path):
    places = [tmp_path / name for name in ("share", "mine", "last")]
    share, mine, last = (DirectoryStore(p, read_only=p.name == "share") for p in places)
    with flights.flight(LayeredStore([share, mine, last]), RECORD.identity):
        assert in_thread(lambda: outcome_of(mine)) == "late"
        assert in_thread(lambda: outcome_of(share)) == "alone"
    assert [place.exists() for place in places] == [False, True, False]


def test_layers_that_are_written_in_memory_lock_nothing_on_disk(tmp_path):
    mine = DirectoryStore(tmp_path)
    with flights.flight(LayeredStore([MemoryStore(), mine]), RECORD.identity):
        assert in_thread(lambda: outcome_of(mine)) == "alone"
