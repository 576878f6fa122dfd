"""The config store in a directory that many processes and machines may share.

Layout: ``v1/<device>/<kernel>/<first two hex digits of the key's digest>.json``, each file one
config document. Whatever goes wrong is a miss or a False, a count and one warning per cause.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path

from launchkit import jsonio
from launchkit.configs import TunedRecord, merge_records
from launchkit.errors import BadDocumentError, LaunchkitError, StoreError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, is_slug_of
from launchkit.store import document, files
from launchkit.store.base import ConfigStore, MemoryStore, Miss, MissReason, StoreHealth
from launchkit.store.document import ConfigDocument

_log = logging.getLogger("launchkit")
_MAX_PARSED = 64
_PATIENCE_S, _NO_PATIENCE_S = 10.0, 0.1
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
        self._parsed: OrderedDict[Path, tuple[files.Signature, ConfigDocument]] = OrderedDict()

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
        """Put each record as ``put`` does, with one write for neighbours that share a file.

        Returns those that only this process can get back.
        """
        refused = []
        for path, group in groupby(records, key=lambda each: self._file(*each.identity)):
            storable = []
            for record in group:
                why = self._unstorable(record)
                if why is None:
                    storable.append(record)
                else:
                    refused += self._keep([record], why)
            if storable:
                refused += self._put_in(path, storable)
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
        return self._listed(self._overlay.records(), None)

    def records_of(self, kernel_name: str) -> Iterator[TunedRecord]:
        """Yield every readable record of kernels of this name; only their files are read."""
        return self._listed(self._overlay.records_of(kernel_name), kernel_name)

    def _listed(
        self, overlay: Iterator[TunedRecord], kernel_name: str | None
    ) -> Iterator[TunedRecord]:
        kept = {record.identity: record for record in overlay}
        for path in self._files(kernel_name):
            for record in self._load_listed(path):
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

    def _files(self, kernel_name: str | None = None) -> list[Path]:
        """Return every document's path, or one kernel's, sorted.

        A directory that cannot be read is counted.
        """
        root = self.path / "v1"
        found = []
        for folder, subfolders, names in os.walk(root, onerror=self._unlisted, followlinks=True):
            depth = len(Path(folder).relative_to(root).parts)
            if depth == 1 and kernel_name is not None:
                subfolders[:] = [each for each in subfolders if is_slug_of(each, kernel_name)]
            if depth == 2:
                found += [Path(folder, name) for name in names + subfolders if _DOCUMENT(name)]
                subfolders.clear()
        return sorted(found)

    def _unlisted(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._count("unreadable")
            self._warn(str(error.filename), "left out: %s. Make it readable.", error)

    def examine(self) -> StoreHealth:
        """Look at every document, and change none."""
        records, broken = 0, []
        for path in self._files():
            try:
                records += len(self._load_own(path).records)
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

    def _load_own(self, path: Path) -> ConfigDocument:
        loaded = self._load(path)
        if (loaded.device.slug, loaded.kernel.slug) != path.parts[-3:-1]:
            raise _foreign(path, loaded)
        return loaded

    def _load_listed(self, path: Path) -> tuple[TunedRecord, ...]:
        try:
            loaded = self._load_own(path)
        except BadDocumentError as error:
            self._count("bad-document")
            self._warn(str(path), "left out: %s", error)
            return ()
        except OSError as error:
            self._unlisted(error)
            return ()
        return loaded.records

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
        loaded = self._load_or_miss(self._file(kernel, device, toolchain, key), kernel, device)
        if isinstance(loaded, Miss):
            return loaded
        versions = [record for record in loaded.records if record.key == key]
        if not versions:
            return Miss("absent")
        exact = (each for each in versions if toolchain.known and each.toolchain == toolchain)
        return next(exact, Miss("toolchain"))

    def _load_or_miss(
        self, path: Path, kernel: KernelId, device: DeviceId
    ) -> ConfigDocument | Miss:
        """Load for a reader: what is broken is set aside if that is possible."""
        try:
            seen = files.signature(path)
            loaded = self._load(path)
        except BadDocumentError as error:
            return self._miss(path, error, seen)
        except (FileNotFoundError, NotADirectoryError):
            return Miss("absent")
        except OSError as error:
            self._warn(str(path), "cannot be read: %s. Make it readable, or delete it.", error)
            return Miss("unreadable")
        if (loaded.kernel, loaded.device) != (kernel, device):
            return self._miss(path, _foreign(path, loaded), seen, "foreign")
        return loaded

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
        old = self._load_for_write(path, added[0])
        before = {each.identity: each for each in old.records}
        records = dict(before)
        for record in added:
            known = records.get(record.identity)
            records[record.identity] = record if known is None else merge_records(known, record)
        if records == before:
            return
        new = ConfigDocument(old.kernel, old.device, tuple(records.values()))
        data = document.dump(new)
        if len(data) > document.LIMIT_BYTES:
            raise StoreError(f"{path} would have {len(data)} bytes. Delete what is old in it.")
        files.replace_file(path, data)
        self._remember(path, files.signature(path), new)

    def _load_for_write(self, path: Path, record: TunedRecord) -> ConfigDocument:
        empty = ConfigDocument(record.kernel, record.device, ())
        try:
            seen = files.signature(path)
        except FileNotFoundError:
            return empty
        try:
            # Should it be gone by now, the put fails: what was seen must not be replaced unread.
            loaded = self._load(path)
            if (loaded.kernel, loaded.device) != (record.kernel, record.device):
                raise _foreign(path, loaded)
        except BadDocumentError as error:
            if error.newer:
                raise
            self._set_aside(path, error, seen)
            return empty
        return loaded

    def _load(self, path: Path) -> ConfigDocument:
        """Parse a file, or take it from the few that were parsed last if it is unchanged."""
        # Taken before reading: if the file is replaced meanwhile, the next call reads again.
        seen = files.signature(path)
        with self._lock:
            cached = self._parsed.get(path)
            if cached is not None and cached[0] == seen:
                self._parsed.move_to_end(path)
                return cached[1]
        data = jsonio.read_limited(path, document.LIMIT_BYTES)
        parsed = document.parse(data, source=str(path))
        self._remember(path, seen, parsed)
        return parsed

    def _remember(self, path: Path, seen: files.Signature, parsed: ConfigDocument) -> None:
        with self._lock:
            self._parsed[path] = (seen, parsed)
            self._parsed.move_to_end(path)
            while len(self._parsed) > _MAX_PARSED:
                self._parsed.popitem(last=False)

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


def _foreign(path: Path, found: ConfigDocument) -> BadDocumentError:
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
