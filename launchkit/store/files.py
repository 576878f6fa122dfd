"""File operations of a store that many processes share. Knows paths and bytes, no documents.

Writers hold the directory's lock from reading to replacing, so that no writer's work is lost;
readers take no lock, since a file is only ever replaced whole.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from filelock import FileLock

from launchkit import clock
from launchkit.errors import StoreError

LOCK_NAME = ".lock"
STALE_TEMP_S = 3600.0
_TEMP_MARK = ".tmp-"

Signature: TypeAlias = tuple[int, int, int, int]
"""(device, inode, bytes, mtime in ns): two equal ones are one unchanged file."""


def signature(path: Path) -> Signature:
    """Return what tells this file from a later one of the same name; OSError if it is absent."""
    return _signature(os.stat(path))


def _signature(status: os.stat_result) -> Signature:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read_spans(path: Path, seen: Signature, spans: Iterable[tuple[int, int]]) -> list[bytes] | None:
    """Return the bytes of each (start, end); None if the file is no longer the one ``seen``.

    Raises OSError where the system refuses.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if _signature(os.fstat(descriptor)) != seen:
            return None
        found = []
        for start, end in spans:
            file.seek(start)
            found.append(file.read(end - start))
        return found


@contextlib.contextmanager
def locked(directory: Path, timeout_s: float) -> Iterator[None]:
    """Hold the directory's lock against other processes and threads; makes the directory.

    Raises OSError where that is impossible (read-only, no locks on this file system), and
    TimeoutError, an OSError too, after ``timeout_s``. A killed holder's lock is released.
    """
    with locked_file(directory / LOCK_NAME, timeout_s, poll_s=0.01):
        yield


@contextlib.contextmanager
def locked_file(
    path: Path, timeout_s: float, *, poll_s: float, remove: bool = False
) -> Iterator[None]:
    """Hold the lock that a file is, as ``locked`` does; with ``remove`` it is gone afterwards."""
    os.makedirs(path.parent, exist_ok=True)
    # Made here, by umask: filelock's own default keeps a group's other members out.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777
    os.close(descriptor)
    process = os.getpid()
    try:
        lock = FileLock(path, timeout=timeout_s, mode=mode | 0o600)
        lock.acquire(poll_interval=poll_s)
    except RuntimeError as error:  # no locks here, or this thread has it by another path
        raise OSError(str(error)) from error
    try:
        yield
    finally:
        if remove and os.getpid() == process:  # not in a child that was forked meanwhile
            # While it is held: whoever has opened it by now finds it gone, and opens a new one.
            with contextlib.suppress(OSError):
                os.unlink(path)
        with contextlib.suppress(OSError):  # it is closed, and so freed, all the same
            lock.release()


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` at once and durably, with a mode by umask; call it locked.

    A reader, or a machine that stops halfway, finds the old content or the new, nothing else.
    """
    temp = path.with_name(f".{path.name}{_TEMP_MARK}{os.getpid()}-{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temp, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temp, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temp)
        raise
    _sync_directory(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` as ``replace_file`` does, for a file that somebody asked for.

    Makes its directory, and follows a link. Raises StoreError where that is impossible.
    """
    try:
        path = Path(os.path.realpath(path))
        if os.path.lexists(path) and not path.is_file():
            raise StoreError(f"{path} is no regular file. Choose another place.")
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be written: {error}. Choose another place.") from None


def why_unwritable(directory: Path) -> str | None:
    """Return why nothing can be written to a directory, or made where it is to be; None if it can.

    It is tried, with a file that has no name afterwards.
    """
    existing = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return str(error)


def set_aside(path: Path, seen: Signature) -> Path | None:
    """Rename a broken file to ``<name>.bad-<utc stamp>-<pid>``, and return its new path.

    None if it is no longer the file whose signature is ``seen``: another process has mended
    it, and its work must stay. Call it locked. Raises OSError if it cannot be renamed.
    """
    try:
        if signature(path) != seen:
            return None
    except FileNotFoundError:
        return None
    stamp = f"{clock.utc_now():%Y%m%dT%H%M%S%fZ}-{os.getpid()}"
    target = path.with_name(f"{path.name}.bad-{stamp}")
    while os.path.lexists(target):
        target = target.with_name(f"{target.name}x")
    os.rename(path, target)
    return target


def remove_stale_temps(directory: Path) -> None:
    """Remove what killed writers left an hour ago or earlier; call it locked. Never raises."""
    oldest = clock.utc_now().timestamp() - STALE_TEMP_S
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if not (entry.name.startswith(".") and _TEMP_MARK in entry.name):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)


def _sync_directory(directory: Path) -> None:
    """Make a rename durable. Some file systems refuse; the content is whole all the same."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
