"""Garbage collection: only what the rules say, never what is new or has changed meanwhile."""

from __future__ import annotations

import datetime
import os
import pathlib

import pytest
from sharing import DAY_S, age, content, filled, one
from stored import file_of

from launchkit import clock
from launchkit.errors import UsageError
from launchkit.store import DirectoryStore, files
from launchkit.store.collect import Removal, Rules, remove, survey

NOW_S = clock.utc_now().timestamp()


def collect(store: DirectoryStore, **rules) -> Removal:
    made = Rules(**rules)
    return remove(survey(store, made, NOW_S).waste, made, NOW_S)


def left(store: DirectoryStore) -> set[str]:
    return {record.key.text.split()[0] for record in DirectoryStore(store.path).records()}


def dated(n: int, day: int, **changes):
    """A record that was tuned on this day of a month that began 400 days ago."""
    return one(n, 1, 5.0, tuned_at=said(NOW_S - (400 - day) * DAY_S), **changes)


def said(moment_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(moment_s, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def store(tmp_path) -> DirectoryStore:
    """One record that says it is old, one that does not say how old it is; files of 400 days ago."""
    made = filled(tmp_path / "store", dated(1, 1), one(2, 1, 5.0))
    age(made, 400, NOW_S)
    return made


def test_without_rules_no_record_goes(store) -> None:
    assert collect(store) == Removal((), ())
    assert left(store) == {"n=1", "n=2"}


def test_records_go_by_the_age_that_they_say_or_else_by_their_files(tmp_path) -> None:
    said_old, old_file, new_file = dated(1, 1), one(2, 1, 5.0), one(3, 1, 5.0)
    store = filled(tmp_path, said_old, old_file, new_file)
    age(store, 10, NOW_S)
    os.utime(file_of(store, old_file), (NOW_S - 90 * DAY_S,) * 2)
    assert len(store.paths()) == 3
    collect(store, older_than_s=60 * DAY_S)
    assert list(DirectoryStore(tmp_path).records()) == [new_file]


def test_a_record_of_a_clock_that_was_ahead_goes_by_the_age_of_its_file(tmp_path) -> None:
    store = filled(tmp_path, one(1, 64, 2.0, tuned_at="2999-01-01T00:00:00Z"))
    age(store, 100, NOW_S)
    assert collect(store, older_than_s=101 * DAY_S) == Removal((), ())
    assert len(collect(store, older_than_s=99 * DAY_S).removed) == 1


def test_a_superseded_toolchain_goes_by_policy(tmp_path) -> None:
    versions = ["3.8.0", "3.9.0", "3.9.1"]
    for policy, expected in [("exact", versions[2:]), ("minor", versions[1:]), ("any", versions)]:
        store = filled(tmp_path / policy, *(one(1, 1, 5.0, triton=each) for each in versions))
        age(store, 2, NOW_S)
        collect(store, stale=policy)
        assert [each.toolchain.triton for each in DirectoryStore(store.path).records()] == expected


def test_a_kernel_without_a_newer_toolchain_is_not_superseded_by_another_kernels(tmp_path) -> None:
    other = one(1, 1, 5.0, triton="3.6.0")
    other = type(other)(**{**_fields(other), "kernel": type(other.kernel)("other", "0" * 64)})
    store = filled(tmp_path, other, one(1, 1, 5.0, triton="3.9.0"))
    age(store, 2, NOW_S)
    assert collect(store, stale="exact").removed == ()


def _fields(record) -> dict:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def test_for_space_superseded_records_go_first_then_the_oldest(tmp_path) -> None:
    records = [dated(1, 20, triton="3.6.0"), dated(1, 21), dated(2, 3), dated(3, 2), dated(4, 1)]
    store = filled(tmp_path, *records)
    age(store, 2, NOW_S)
    whole = survey(store, Rules(), NOW_S).total_bytes
    waste = survey(store, Rules(max_bytes=0), NOW_S).waste
    assert [each.record for each in waste] == [
        records[0],
        records[4],
        records[3],
        records[2],
        records[1],
    ]
    spared = waste[0].size_bytes + waste[1].size_bytes
    collect(store, max_bytes=whole - spared + 1)
    assert set(DirectoryStore(tmp_path).records()) == {records[1], records[2], records[3]}


def test_nothing_that_was_written_within_the_grace_time_goes(tmp_path) -> None:
    store = filled(tmp_path, dated(1, 1), one(1, 1, 5.0, triton="3.6.0"))
    (path,) = store.paths()
    aside = path.with_name(f"{path.name}.bad-x")
    aside.touch()
    rules = {"older_than_s": 1.0, "stale": "exact", "max_bytes": 0}
    assert collect(store, **rules, grace_s=3600.0).removed == ()
    age(store, 1, NOW_S)
    assert len(collect(store, **rules, grace_s=3600.0).removed) == 3


def test_set_aside_files_and_what_killed_writers_left_go(store) -> None:
    (first, *_) = store.paths()
    for name in (f"{first.name}.bad-20260101T000000Z-1", f".{first.name}.tmp-12-ab"):
        first.with_name(name).write_bytes(b"{ broken")
    first.with_name("notes.txt").touch()
    age(store, 2, NOW_S)
    before = set(content(store.path))
    assert len(collect(store).removed) == 2
    gone = before - set(content(store.path))
    assert {pathlib.Path(name).name for name in gone} == {
        f"{first.name}.bad-20260101T000000Z-1", f".{first.name}.tmp-12-ab"
    }  # fmt: skip


def test_a_survey_changes_nothing(store) -> None:
    before = content(store.path), sorted(store.path.rglob("*"))
    found = survey(store, Rules(older_than_s=0.0, stale="exact", max_bytes=0), NOW_S)
    assert len(found.waste) == 2
    assert (content(store.path), sorted(store.path.rglob("*"))) == before


def test_documents_that_cannot_be_read_stay(store) -> None:
    first, second = store.paths()
    first.write_bytes(b'{"schema": 99}')
    second.write_bytes(b"{ broken")
    age(store, 400, NOW_S)
    assert collect(store, older_than_s=1.0, max_bytes=0).removed == ()
    assert first.exists()
    assert second.exists()


@pytest.mark.parametrize("meanwhile", ["tuned", "removed", "broken", "locked"])
def test_what_has_changed_since_the_survey_stays(tmp_path, monkeypatch, meanwhile) -> None:
    old = dated(1, 1)
    store = filled(tmp_path, old)
    age(store, 400, NOW_S)
    rules = Rules(older_than_s=1.0, grace_s=0.0)
    waste = survey(store, rules, NOW_S).waste
    (path,) = store.paths()
    newer = one(1, 1, 4.0, tuned_at=said(NOW_S))
    if meanwhile == "tuned":
        DirectoryStore(tmp_path).put(newer)
        os.utime(path, (NOW_S - DAY_S,) * 2)
    elif meanwhile == "removed":
        path.unlink()
    elif meanwhile == "broken":
        path.write_bytes(b"{ broken")
        os.utime(path, (NOW_S - DAY_S,) * 2)
    monkeypatch.setattr("launchkit.store.collect._LOCK_PATIENCE_S", 0.05)
    if meanwhile == "locked":
        with files.locked(path.parent, 1.0):
            removal = remove(waste, rules, NOW_S)
    else:
        removal = remove(waste, rules, NOW_S)
    assert removal.removed == ()
    assert [each for each, _ in removal.stayed] == list(waste)
    if meanwhile == "tuned":
        assert list(DirectoryStore(tmp_path).records()) == [newer]
    if meanwhile == "locked":
        assert list(DirectoryStore(tmp_path).records()) == [old]


def test_neighbours_in_one_file_stay(tmp_path) -> None:
    stale, kept = one(1, 1, 5.0, triton="3.6.0"), one(1, 1, 5.0, triton="3.9.0")
    store = filled(tmp_path, stale, kept)
    age(store, 2, NOW_S)
    assert collect(store, stale="exact").freed_bytes > 0
    assert list(DirectoryStore(tmp_path).records()) == [kept]


def test_a_file_without_records_left_is_gone_and_can_come_again(store) -> None:
    collect(store, older_than_s=1.0)
    assert store.paths() == []
    assert store.put(dated(1, 1))
    assert left(store) == {"n=1"}


def test_a_running_process_misses_what_was_removed_and_stores_it_again(tmp_path) -> None:
    running = filled(tmp_path, dated(1, 1))
    record = dated(1, 1)
    assert running.get(*record.identity) == record
    age(running, 400, NOW_S)
    collect(DirectoryStore(tmp_path), older_than_s=1.0)
    assert running.get(*record.identity) != record
    assert running.put(record)
    assert running.counters["warnings"] == 0
    assert running.get(*record.identity) == record


@pytest.mark.parametrize("rules", [{"older_than_s": -1.0}, {"max_bytes": -1}, {"grace_s": -1.0},
                                   {"grace_s": float("nan")}])  # fmt: skip
def test_negative_figures_are_refused(rules) -> None:
    with pytest.raises(UsageError):
        Rules(**rules)


def test_unknown_policies_are_refused(store) -> None:
    with pytest.raises(UsageError, match="no policy"):
        survey(store, Rules(stale="some"), NOW_S)
