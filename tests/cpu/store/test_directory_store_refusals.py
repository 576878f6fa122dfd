"""DirectoryStore where the system refuses: a miss or a False, one warning, nothing lost."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pathlib
import resource
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import pytest
from stored import RECORD, file_of, get, plant, record_for, same_file, set_aside_files

from launchkit.configs import TunedConfig, identify
from launchkit.keys import KernelId
from launchkit.store import DirectoryStore, Miss, files


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


class FailingFile(io.FileIO):
    """An open file that can be neither read nor written: each attempt raises ``error``."""

    error: OSError

    def read(self, size: int = -1) -> bytes:
        raise self.error

    def write(self, data: object) -> int:
        raise self.error


def break_calls(patch: pytest.MonkeyPatch, name: str, error: OSError, root: pathlib.Path) -> None:
    """Make one kind of system call fail for what lies below ``root``, as a network may."""
    original = getattr(os, name, None)

    def refuse(target, *args, **kwargs):
        if isinstance(target, int) or str(target).startswith(str(root)):
            raise error
        return original(target, *args, **kwargs)

    def open_failing_file(descriptor: int, mode: str) -> FailingFile:
        file = FailingFile(descriptor, mode)
        file.error = error
        return file

    def refuse_lock(*args, **kwargs):
        raise error

    if name == "lock":
        patch.setattr(files.FileLock, "acquire", refuse_lock)
    else:
        patch.setattr(os, name, open_failing_file if name == "fdopen" else refuse)


ERRORS = {"ESTALE": errno.ESTALE, "EBUSY": errno.EBUSY}


def made_error(name: str) -> OSError:
    return OSError(ERRORS[name], os.strerror(ERRORS[name]))


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["stat", "open", "fdopen"])
def test_a_network_error_while_reading_is_a_miss_and_a_warning_until_it_ends(
    store, monkeypatch, caplog, call, error
) -> None:
    store.put(RECORD)
    reader = DirectoryStore(store.path)
    with monkeypatch.context() as patch:
        break_calls(patch, call, made_error(error), store.path)
        assert [get(reader, RECORD) for _ in range(3)] == [Miss("unreadable")] * 3
        assert reader.counters == {"unreadable": 3, "warnings": 1}
    assert os.strerror(ERRORS[error]) in caplog.text
    assert len(caplog.records) == 1
    assert get(reader, RECORD) == RECORD
    assert list(reader.records()) == [RECORD]
    assert not set_aside_files(store)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["stat", "open", "fdopen"])
def test_a_network_error_in_a_file_that_is_known_is_a_miss_until_it_ends(
    store, monkeypatch, call, error
) -> None:
    other = same_file(RECORD, 1)[0]
    store.put_all([RECORD, other])
    reader = DirectoryStore(store.path)
    assert get(reader, RECORD) == RECORD
    with monkeypatch.context() as patch:
        break_calls(patch, call, made_error(error), store.path)
        assert get(reader, other) == Miss("unreadable")
    assert get(reader, other) == other
    assert not set_aside_files(store)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["stat", "open", "fdopen", "fsync", "replace", "lock"])
def test_a_network_error_while_writing_loses_nothing_and_a_later_put_is_stored(
    store, monkeypatch, caplog, call, error
) -> None:
    other = same_file(RECORD, 1)[0]
    store.put(RECORD)
    before = file_of(store, RECORD).read_bytes()
    writer = DirectoryStore(store.path)
    with monkeypatch.context() as patch:
        break_calls(patch, call, made_error(error), store.path)
        assert [writer.put(other), writer.put(other)] == [False, False]
        assert get(writer, other) == other
    assert len(caplog.records) == 1
    assert "this process only" in caplog.text
    assert file_of(store, RECORD).read_bytes() == before
    assert not list(store.path.rglob("*.tmp-*"))
    assert writer.put(other) is True
    later = DirectoryStore(store.path)
    assert [get(later, RECORD), get(later, other)] == [RECORD, other]
    assert not set_aside_files(store)


def hide_from_open(patch: pytest.MonkeyPatch, path: pathlib.Path) -> None:
    """Let ``path`` be seen but not opened yet, as after another machine has renamed it."""
    original = os.open

    def opened(target, *args, **kwargs):
        if target == path:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return original(target, *args, **kwargs)

    patch.setattr(os, "open", opened)


def test_a_renamed_file_that_cannot_be_opened_yet_is_absent_until_it_can(
    store, monkeypatch, caplog
) -> None:
    store.put(RECORD)
    reader = DirectoryStore(store.path)
    with monkeypatch.context() as patch:
        hide_from_open(patch, file_of(store, RECORD))
        assert get(reader, RECORD) == Miss("absent")
    assert get(reader, RECORD) == RECORD
    assert not caplog.records


def test_a_renamed_file_that_cannot_be_opened_yet_is_not_taken_for_none_by_a_put(
    store, monkeypatch, caplog
) -> None:
    other = same_file(RECORD, 1)[0]
    store.put(RECORD)
    writer = DirectoryStore(store.path)
    with monkeypatch.context() as patch:
        hide_from_open(patch, file_of(store, RECORD))
        assert writer.put(other) is False
    assert len(caplog.records) == 1
    assert get(writer, other) == other
    assert writer.put(other) is True
    later = DirectoryStore(store.path)
    assert [get(later, RECORD), get(later, other)] == [RECORD, other]


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
    (broken,) = DirectoryStore(unprivileged).examine().broken
    assert broken[0] == str(file_of(store, other).parent)


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
