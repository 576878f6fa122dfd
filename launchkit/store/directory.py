"""The config store in a directory that many processes and machines share. Above indexed.py.

Layout: ``v1/<device>/<kernel>/<first two hex digits of the key's digest>.json``, each file one
config document. Whatever goes wrong is a miss or a False, a count and one warning per cause.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from launchkit import jsonio
from launchkit.configs import TunedRecord, merge_records
from launchkit.errors import BadDocumentError, LaunchkitError, StoreError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, is_slug_of
from launchkit.store import document, files
from launchkit.store.base import ConfigStore, MemoryStore, Miss, MissReason, StoreHealth
from launchkit.store.document import ConfigDocument
from launchkit.store.indexed import DocumentIndex, FoundRecords, IndexedFiles
from launchkit.store.splicing import spliced

_log = logging.getLogger("launchkit")
_PATIENCE_S, _NO_PATIENCE_S = 10.0, 0.1
_BATCH = 16384
_DOCUMENT = re.compile(r"..\.json").fullmatch


class DirectoryStore(ConfigStore):
    """Tuned records in JSON files below ``path``, which need not exist yet.

    ``counters`` counts misses by reason, ``warnings``, ``set-aside`` files and
    ``kept-in-process`` records: those that could not be written, which this process gets back
    all the same. A ``read_only`` one is never written, locked, mended or made. Raises StoreError
    if ``path`` is, or lies below, something other than a directory.
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path = _checked(path)
        self._read_only = read_only
        self.counters: Counter[str] = Counter()
        self._overlay = MemoryStore()
        self._lock = threading.Lock()
        self._patience_s = _PATIENCE_S
        self._warned: set[str] = set()
        self._swept: set[Path] = set()
        self._indexed = IndexedFiles()

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the record of exactly this identity, or why there is none."""
        found = self._overlay.get(kernel, device, toolchain, key)
        if isinstance(found, Miss):
            found = self._get_stored(kernel, device, toolchain, key)
        if isinstance(found, Miss):
            self._count(found.reason)
        return found

    def put(self, record: TunedRecord) -> bool:
        """Merge ``record`` into its file.

        False, with a warning, if it could only be kept for this process: the store is read-only,
        the directory cannot be written, the disk is full, the file is of a newer schema, or the
        toolchain's version is unknown and could not be told from others later.
        """
        return not self.put_all([record])

    def put_all(self, records: Iterable[TunedRecord]) -> list[TunedRecord]:
        """Put each record as ``put`` does, with one write a file for some thousands of records.

        Returns those that only this process can get back.
        """
        refused, several = [], iter(records)
        while batch := list(islice(several, _BATCH)):
            by_path: dict[Path, list[TunedRecord]] = {}
            for record in batch:
                why = self._unstorable(record)
                if why is not None:
                    refused += self._keep([record], why)
                else:
                    by_path.setdefault(self._file(*record.identity), []).append(record)
            for path, group in by_path.items():
                refused += self._put_in(path, group)
        return refused

    def _unstorable(self, record: TunedRecord) -> str | None:
        if self._read_only:
            return "it is read-only. Set LAUNCHKIT_STORE to another place."
        if not record.toolchain.known:
            return f"{record.toolchain.text} is no version to store by. Install a release."
        return None

    def _put_in(self, path: Path, records: list[TunedRecord]) -> list[TunedRecord]:
        kept = [self._overlay.get(*record.identity) for record in records]
        merged = [
            record if isinstance(old, Miss) else merge_records(old, record)
            for old, record in zip(kept, records, strict=True)
        ]
        try:
            with self._locked(path.parent):
                self._sweep(path.parent)
                self._merge_into(path, merged)
        except LaunchkitError as error:
            return self._keep(records, str(error))
        except OSError as error:
            advice = "Make room or make it writable, or set LAUNCHKIT_STORE to another place."
            return self._keep(records, f"{error}. {advice}")
        for old in kept:
            if not isinstance(old, Miss):
                self._overlay.discard(old)
        return []

    def records(self) -> Iterator[TunedRecord]:
        """Yield every readable record, sorted by path; broken files are counted and stay put."""
        kept = {record.identity: record for record in self._overlay.records()}
        for path in self._files():
            for record in self._load_listed(path):
                yield kept.pop(record.identity, record)
        yield from kept.values()

    def records_of(self, kernel_name: str, key: LaunchKey | None = None) -> Iterator[TunedRecord]:
        """Yield every readable record of kernels of this name.

        Only their files are read, and with ``key`` only those in which it would stand.
        """
        overlay = self._overlay.records_of(kernel_name, key)
        kept = {record.identity: record for record in overlay}
        for path in self._files(kernel_name, key):
            for record in self._load_listed(path, key):
                if record.kernel.name == kernel_name:
                    yield kept.pop(record.identity, record)
        yield from kept.values()

    def holds(self, record: TunedRecord) -> bool:
        """Tell whether ``get`` would return exactly this record; it counts no miss."""
        found = self._overlay.get(*record.identity)
        return (self._get_stored(*record.identity) if isinstance(found, Miss) else found) == record

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._read_only

    def describe(self) -> str:
        """Say what this store is and where."""
        return f"directory {self.path}{' (read-only)' if self._read_only else ''}"

    def paths(self) -> list[Path]:
        """Return the path of every document, sorted."""
        return self._files()

    def _file(
        self, kernel: KernelId, device: DeviceId, _toolchain: Toolchain, key: LaunchKey
    ) -> Path:
        return self.path / "v1" / device.slug / kernel.slug / f"{key.digest[:2]}.json"

    def _files(
        self,
        kernel_name: str | None = None,
        key: LaunchKey | None = None,
        unlisted: Callable[[OSError], None] | None = None,
    ) -> list[Path]:
        """Return every document's path, or one kernel's (and key's), sorted.

        A directory that cannot be read is told to ``unlisted``, or else counted.
        """
        root = self.path / "v1"
        wanted = _DOCUMENT if key is None else f"{key.digest[:2]}.json".__eq__
        found = []
        for folder, subfolders, names in os.walk(
            root, onerror=unlisted or self._unlisted, followlinks=True
        ):
            depth = len(Path(folder).relative_to(root).parts)
            if depth == 1 and kernel_name is not None:
                subfolders[:] = [each for each in subfolders if is_slug_of(each, kernel_name)]
            if depth == 2:
                found += [Path(folder, name) for name in names + subfolders if wanted(name)]
                subfolders.clear()
        return sorted(found)

    def _unlisted(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._count("unreadable")
            self._warn(str(error.filename), "left out: %s. Make it readable.", error)

    def examine(self) -> StoreHealth:
        """Look at every document, and change none."""
        records, broken = 0, list[tuple[str, str]]()

        def unlisted(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                broken.append((str(error.filename), str(error)))

        for path in self._files(unlisted=unlisted):
            try:
                records += len(self._load_own(path))
            except (BadDocumentError, OSError) as error:
                broken.append((str(path), str(error)))
        aside = sum(1 for _ in self.path.glob("v1/*/*/*.bad-*"))
        return StoreHealth(
            self.describe(),
            records,
            lasting=True,
            unwritable=None if self._read_only else files.why_unwritable(self.path),
            broken=tuple(broken),
            set_aside=aside,
            read_only=self._read_only,
        )

    def _load_own(self, path: Path, key: LaunchKey | None = None) -> tuple[TunedRecord, ...]:
        loaded = (
            document.read(path)
            if key is None
            else self._indexed.find(path, key, files.signature(path))
        )
        if (loaded.device.slug, loaded.kernel.slug) != path.parts[-3:-1]:
            raise _foreign(path, loaded)
        return loaded.records

    def _load_listed(self, path: Path, key: LaunchKey | None = None) -> tuple[TunedRecord, ...]:
        try:
            return self._load_own(path, key)
        except BadDocumentError as error:
            self._count("bad-document")
            self._warn(str(path), "left out: %s", error)
        except OSError as error:
            self._unlisted(error)
        return ()

    @contextlib.contextmanager
    def _locked(self, directory: Path) -> Iterator[None]:
        """Wait long for a busy directory once; a holder that hangs must not delay every put."""
        try:
            with files.locked(directory, self._patience_s):
                yield
        except TimeoutError:
            self._patience_s = _NO_PATIENCE_S
            raise

    def _get_stored(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        path = self._file(kernel, device, toolchain, key)
        found = self._find_or_miss(path, kernel, device, key)
        if isinstance(found, Miss):
            return found
        if not found.records:
            return Miss("absent")
        exact = (r for r in found.records if toolchain.known and r.toolchain == toolchain)
        return next(exact, Miss("toolchain"))

    def _find_or_miss(
        self, path: Path, kernel: KernelId, device: DeviceId, key: LaunchKey
    ) -> FoundRecords | Miss:
        """Look a key up for a launch: a file that is broken is set aside if that is possible."""
        try:
            seen = files.signature(path)
            found = self._indexed.find(path, key, seen)
        except BadDocumentError as error:
            return self._miss(path, error, seen)
        except (FileNotFoundError, NotADirectoryError):
            return Miss("absent")
        except OSError as error:
            self._warn(str(path), "cannot be read: %s. Make it readable, or delete it.", error)
            return Miss("unreadable")
        if (found.kernel, found.device) != (kernel, device):
            return self._miss(path, _foreign(path, found), seen, "foreign")
        return found

    def _miss(
        self,
        path: Path,
        error: BadDocumentError,
        seen: files.Signature,
        reason: MissReason = "bad-document",
    ) -> Miss:
        if error.newer:
            self._warn(str(path), "%s", error)
            return Miss("newer-schema")
        if self._read_only:
            self._warn(str(path), "left out: %s", error)
            return Miss(reason)
        try:
            with self._locked(path.parent):
                self._set_aside(path, error, seen)
        except OSError as refusal:
            self._warn(str(path), "%s (It could not be set aside: %s.)", error, refusal)
        return Miss(reason)

    def _set_aside(self, path: Path, error: BadDocumentError, seen: files.Signature) -> None:
        moved = files.set_aside(path, seen)
        if moved is not None:
            self._count("set-aside")
            self._warn(str(moved), "%s It was set aside as %s.", error, moved.name)

    def _merge_into(self, path: Path, added: list[TunedRecord]) -> None:
        """Read, merge and write, all under the directory's lock."""
        data = self._merged(path, added)
        if data is None:
            return
        if len(data) > document.LIMIT_BYTES:
            raise StoreError(f"{path} would have {len(data)} bytes. Delete what is old in it.")
        files.replace_file(path, data)

    def _merged(self, path: Path, added: list[TunedRecord]) -> bytes | None:
        source = str(path)
        try:
            seen = files.signature(path)
        except FileNotFoundError:
            return spliced(b"", None, added, source=source)
        try:
            # Should it be gone by now, the put fails: what was seen must not be replaced unread.
            data = jsonio.read_limited(path, document.LIMIT_BYTES)
            index = DocumentIndex.of(data, source=source)
            if (index.kernel, index.device) != (added[0].kernel, added[0].device):
                raise _foreign(path, index)
            return spliced(data, index, added, source=source)
        except BadDocumentError as error:
            if error.newer:
                raise
            self._set_aside(path, error, seen)
            return spliced(b"", None, added, source=source)

    def _sweep(self, directory: Path) -> None:
        with self._lock:
            first = directory not in self._swept
            self._swept.add(directory)
        if first:
            files.remove_stale_temps(directory)

    def _keep(self, records: list[TunedRecord], why: str) -> list[TunedRecord]:
        for record in records:
            self._overlay.put(record)
            self._count("kept-in-process")
        message = "%s keeps tuned configs for this process only: %s"
        self._warn("put", message, self.describe(), why)
        return records

    def _count(self, what: str) -> None:
        with self._lock:
            self.counters[what] += 1

    def _warn(self, cause: str, message: str, *values: object) -> None:
        with self._lock:
            if cause in self._warned:
                return
            self._warned.add(cause)
            self.counters["warnings"] += 1
        _log.warning(message, *values)


def _foreign(path: Path, found: ConfigDocument | DocumentIndex | FoundRecords) -> BadDocumentError:
    return BadDocumentError(
        str(path),
        f"it is of {found.kernel.name!r} on {found.device.name!r}, not what its place says",
    )


def _checked(path: str | os.PathLike[str]) -> Path:
    text: object = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise StoreError(f"{path!r} is not a path. Give the path of a directory.")
    try:
        root = Path(os.path.abspath(text))
    except OSError as error:
        raise StoreError(
            f"{path!r} is below no directory ({error}). Give the whole path."
        ) from None
    for place in chain([root], root.parents):
        if os.path.lexists(place):
            if not place.is_dir():
                raise StoreError(f"{place} is not a directory. Give the path of a directory.")
            break
    return root
