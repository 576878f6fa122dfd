"""``record_manifest``: notes each new kind of launch, and keeps a file of them. Below launcher.py.

Only launches that take no shortcut come here. The file is written a moment later by a thread,
and at the end: read, merged and replaced under its directory's lock, so that any number of
processes may record into one file.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launchkit import settings
from launchkit.dispatch import launch_notes
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.manifest import describing
from launchkit.dispatch.manifest.describing import Indescribable
from launchkit.dispatch.manifest.document import (
    LIMIT_BYTES,
    MAX_ENTRIES,
    Entry,
    KernelPlace,
    Manifest,
    Unreplayable,
    dump,
    read_manifest,
    why_refused,
)
from launchkit.dispatch.stopping import Stoppable
from launchkit.errors import BadDocumentError, LaunchkitError, UsageError
from launchkit.printing import printable
from launchkit.store import files

logger = logging.getLogger("launchkit")

WRITE_AFTER_S = 0.5
"""How long a new kind of launch waits for others before the file is written."""
LOCK_TIMEOUT_S = 10.0
_REASON_CHARACTERS = 2000
_TOLD_APART = 4
"""Times the limit: up to so many kinds are told apart, so that each is counted once."""


class record_manifest(Stoppable):  # noqa: N801 - reads as a function, and as a context manager
    """Record each new kind of launch into a manifest, from here on or within a block.

    A kind is what Triton compiles anew for, or a config is chosen by: kernel, dtypes, alignment
    and integer classes, values of constexprs, options and autotune keys. A fast launch costs what
    it does without recording: only those that take no shortcut are looked at, so record from the
    program's start. Values of tensors are never read. What cannot be compiled ahead of time (a
    kernel of the script itself, an argument of an unknown class) is listed with its reason.

    An existing manifest is continued; several processes may record into one file. ``launchkit
    warm`` and ``launchkit tune`` read it. Launches under TRITON_INTERPRET or LAUNCHKIT_DISABLE
    are not seen.

    Args:
        path: the file, made when something is recorded.
        limit: kinds that the file holds at most; those beyond are counted.

    Raises:
        UsageError: ``limit`` is not positive, or ``path`` is a directory.
        BadDocumentError: the file exists and is no manifest.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int = MAX_ENTRIES) -> None:
        if type(limit) is not int or limit < 1:
            raise UsageError(f"limit is {limit!r}. Give a number of entries, 1 or more.")
        self.path = Path(os.path.realpath(path))  # as replacing a link would leave its file behind
        if self.path.is_dir():
            raise UsageError(f"{self.path} is a directory. Give the path of a file.")
        if self.path.exists():
            read_manifest(self.path)
        self._limit = limit
        self._lock, self._writing = threading.RLock(), threading.RLock()
        self._pid = os.getpid()
        self._places: weakref.WeakKeyDictionary[Any, KernelPlace | Indescribable] = (
            weakref.WeakKeyDictionary()
        )
        self._seen: set[tuple[Any, ...]] = set()
        self._pending = Manifest()
        self._timer: threading.Timer | None = None
        self.entries = 0
        """Kinds that this process has recorded."""
        self.unreplayable = 0
        """Kinds that it has listed as impossible to replay."""
        self.dropped = 0
        """Kinds that it has seen beyond ``limit``."""
        launch_notes.begin(self._note)
        atexit.register(self.stop)

    def stop(self) -> None:
        """Stop recording and write what is not yet in the file; again: does nothing."""
        launch_notes.end(self._note)
        atexit.unregister(self.stop)
        self.write()

    def write(self) -> bool:
        """Write what is not yet in the file; False, with a warning, if that is impossible now.

        What another thread is writing is in the file as well when this returns.
        """
        self._after_fork()
        with self._writing:
            with self._lock:
                pending, self._pending, self._timer = self._pending, Manifest(), None
            return pending == Manifest() or self._put(pending)

    def _put(self, pending: Manifest) -> bool:
        try:
            with files.locked(self.path.parent, LOCK_TIMEOUT_S):
                self._merge_into_file(pending)
        except (OSError, BadDocumentError) as error:
            with self._lock:  # kept for the next time; the limit bounds it as it does the file
                self._pending = pending.merged(self._pending, self._limit)
            logger.warning("the manifest %s was not written: %s. It is tried again with the "
                           "next kind of launch.", self.path, str(error).rstrip("."))  # fmt: skip
            return False
        return True

    def _merge_into_file(self, pending: Manifest) -> None:
        try:
            before = read_manifest(self.path)
        except FileNotFoundError:
            before = Manifest()
        except BadDocumentError as error:
            if error.newer:
                raise
            files.set_aside(self.path, files.signature(self.path))
            logger.warning("%s The file was set aside; a new manifest begins.", error)
            before = Manifest()
        merged = before.merged(pending, self._limit)
        data = dump(merged)
        if len(data) > LIMIT_BYTES:
            lost = len(merged.entries) - len(before.entries)
            data = dump(Manifest(before.entries, merged.unreplayable, merged.dropped + lost))
        files.replace_file(self.path, data)

    # -- called at each launch that took no shortcut

    def _note(
        self, launcher: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if seam.interpreting():
            return  # nothing is compiled
        try:
            self._after_fork()
            self._take(launcher, grid, args, kwargs)
        except Exception:
            if self._first_of("failure", launcher.name):
                logger.exception("a launch of %s was not recorded.", launcher.name)

    def _take(
        self, launcher: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        try:
            place = self._place(launcher)
            entry = self._entry(launcher.parts, place, grid, args, kwargs)
        except Indescribable as reason:
            self._list(launcher.name, str(reason))
            return
        if entry is not None:
            self._keep(Manifest(entries=(entry,)))

    def _place(self, launcher: Any) -> KernelPlace:
        found = self._places.get(launcher)
        if found is None:
            found = self._places[launcher] = _find_place(launcher)
        if isinstance(found, Indescribable):
            raise found
        return found

    def _entry(
        self,
        parts: Any,
        place: KernelPlace,
        grid: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Entry | None:
        """Return the entry of a launch, or None if its kind is known."""
        described = [describing.describe_argument(value) for value in args]
        named = {name: describing.describe_argument(value) for name, value in kwargs.items()}
        kind = describing.launch_kind(
            parts,
            list(zip(args, described, strict=True)),
            {name: (value, named[name]) for name, value in kwargs.items()},
        )
        if not self._first_of(place["module"], place["qualname"], place["layer"], kind):
            return None
        entry: Entry = {
            "kind": kind,
            "kernel": place,
            "args": described,
            "kwargs": named,
            "grid": describing.describe_grid(parts, grid, args, kwargs),
        }
        if (why := why_refused(entry)) is not None:
            raise Indescribable(why)
        return entry

    def _list(self, kernel: str, reason: str) -> None:
        told = printable(reason)[:_REASON_CHARACTERS]
        listed: Unreplayable = {"kernel": printable(kernel)[:1000], "reason": told}
        if self._first_of("unreplayable", *listed.values()):
            self._keep(Manifest(unreplayable=(listed,)))

    def _first_of(self, *what: Any) -> bool:
        with self._lock:
            if what in self._seen:
                return False
            if len(self._seen) >= self._limit * _TOLD_APART:
                return False
            self._seen.add(what)
            if len(self._seen) > self._limit:
                self.dropped += 1
                self._keep(Manifest(dropped=1))
                return False
            return True

    def _keep(self, new: Manifest) -> None:
        with self._lock:
            self.entries += len(new.entries)
            self.unreplayable += len(new.unreplayable)
            self._pending = self._pending.merged(new, self._limit)
            if self._timer is None:
                self._timer = threading.Timer(WRITE_AFTER_S, self.write)
                self._timer.daemon = True
                self._timer.start()

    def _after_fork(self) -> None:
        """In a child process: its parent writes what was pending, and has the thread."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._lock, self._writing = threading.RLock(), threading.RLock()
            self._pending, self._timer = Manifest(), None


def _find_place(launcher: Any) -> KernelPlace | Indescribable:
    reason = getattr(launcher, "reason", None)  # of a kernel that launches in its own way
    if reason is not None:
        return Indescribable(str(reason))
    try:
        return describing.locate(launcher.kernel, launcher.parts)
    except Indescribable as error:
        return error


_begun = False


def start_as_set() -> None:
    """Record into LAUNCHKIT_MANIFEST, if that is set; called when a kernel is first launched."""
    global _begun
    if _begun:
        return
    _begun = True
    path = settings.current().manifest
    if path is None:
        return
    try:
        record_manifest(path)
    except (LaunchkitError, OSError) as error:
        logger.warning("LAUNCHKIT_MANIFEST is set, but nothing is recorded: %s", error)
