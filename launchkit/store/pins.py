"""Lock files: one chosen config per kernel, device and key, to review and deploy. Under places.py.

A lock file is JSON, sorted and indented, so that a changed winner is a changed line; its digest
covers the rest, so that nobody runs what nobody pinned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError, BadLockError, StoreError, UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain
from launchkit.store import document, files
from launchkit.store.base import ConfigStore, MemoryStore, Miss, StoreHealth
from launchkit.store.document import ConfigDocument
from launchkit.store.staleness import version
from launchkit.validating import check_schema

SCHEMA = 1
LIMIT_BYTES = 256 * 2**20
SUFFIX = ".lock"


class PinnedStore(ConfigStore):
    """What a lock file says, read once: read-only, and the same for every process that reads it.

    Each record has one config, and its choice holds however many configs the kernel has
    (``TunedRecord.pinned``); where that config is not in the kernel's live list it is a miss. What
    is put lasts as long as the process, and never takes a pin's place. ``digest`` is that of the
    whole file. Raises BadLockError for a file that is no lock file or was changed by hand, and
    StoreError for one that cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not os.fspath(path):
            raise StoreError("a lock file has no path. Write pins:path/to/launchkit.lock.")
        self.path = Path(os.path.abspath(path))
        self.digest, pins = read(self.path)
        self._pins = MemoryStore()
        self._pins.put_all(pins)
        self._others = MemoryStore()

    def get(
        self, kernel: KernelId, device: DeviceId, toolchain: Toolchain, key: LaunchKey
    ) -> TunedRecord | Miss:
        """Return the pin of exactly this identity, or why there is none."""
        found = self._pins.get(kernel, device, toolchain, key)
        if not isinstance(found, Miss):
            return found if toolchain.known else Miss("toolchain")
        other = self._others.get(kernel, device, toolchain, key)
        return found if isinstance(other, Miss) else other

    def put(self, record: TunedRecord) -> bool:
        """Keep ``record`` for this process alone; always False."""
        self._others.put(record)
        return False

    def records(self) -> Iterator[TunedRecord]:
        """Yield every pin in the file's order, then what this process has put besides."""
        pinned = list(self._pins.records())
        has = {pin.identity for pin in pinned}
        return iter(
            [*pinned, *(each for each in self._others.records() if each.identity not in has)]
        )

    @property
    def read_only(self) -> bool:
        """True: only ``configs pin`` writes a lock file."""
        return True

    def describe(self) -> str:
        """Say which lock file it is."""
        return f"lock file {self.path}"

    def examine(self) -> StoreHealth:
        """Look at what was read."""
        count = sum(1 for _ in self.records())
        return StoreHealth(self.describe(), count, lasting=True, read_only=True)


def select(records: Iterable[TunedRecord], toolchain: str | None = None) -> list[TunedRecord]:
    """Return a pinned record, with its chosen config alone, of each that ``selected`` returns."""
    return [_pin(record) for record in selected(records, toolchain)]


def selected(records: Iterable[TunedRecord], toolchain: str | None = None) -> list[TunedRecord]:
    """Return one record per kernel, device and key.

    Of several toolchains it is the newest, or the one whose Triton has this version; one that is
    not known is none of them, as it could not be told from others later.
    """
    newest: dict[object, TunedRecord] = {}
    for record in records:
        version_fits = toolchain is None or record.toolchain.triton == toolchain
        if not (version_fits and record.toolchain.known):
            continue
        place = (record.kernel, record.device, record.key)
        known = newest.get(place)
        if known is None or _age(record) > _age(known):
            newest[place] = record
    return list(newest.values())


def _pin(record: TunedRecord) -> TunedRecord:
    """Leave out all but the choice: what another tuning of the same winner would change."""
    return replace(record, configs=(record.winner,), chosen_method=None, seconds=None, pinned=True)


def dump(pins: Iterable[TunedRecord]) -> bytes:
    """Return a lock file of these records, a changed choice being a changed line."""
    ordered = sorted(pins, key=attrgetter("sort_key"))
    documents = [
        document.to_object(ConfigDocument(*owner, tuple(group)))
        for owner, group in groupby(ordered, key=lambda each: (each.kernel, each.device))
    ]
    whole = {"launchkit_lock": SCHEMA, "sha256": jsonio.digest(documents), "documents": documents}
    return jsonio.dumps(whole)


def write(path: Path, pins: Iterable[TunedRecord]) -> bool:
    """Put a lock file of these records at ``path``, whole or not at all; False: it is there already.

    Raises StoreError where it cannot be written.
    """
    data = dump(pins)
    with suppress(BadDocumentError, OSError):
        if jsonio.read_limited(path, LIMIT_BYTES) == data:
            return False
    files.write_file(path, data)
    return True


def read(path: str | os.PathLike[str]) -> tuple[str, list[TunedRecord]]:
    """Return a lock file's digest and its records. Errors: see ``PinnedStore``."""
    source = os.fspath(path)
    try:
        return parse(jsonio.read_limited(path, LIMIT_BYTES), source=source)
    except BadLockError:
        raise
    except BadDocumentError as error:
        raise BadLockError(source, error.reason, error.newer) from None
    except (OSError, ValueError) as error:
        raise StoreError(
            f"the lock file cannot be read: {error}. Make it with: launchkit configs pin."
        ) from None


def parse(data: bytes, *, source: str) -> tuple[str, list[TunedRecord]]:
    """Return the digest and the records of the lock file in ``data``.

    Raises BadDocumentError for anything else than a lock file as ``dump`` makes it.
    """
    raw = jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES)
    what = "a launchkit lock file"
    whole = check_schema(
        raw, source=source, field="launchkit_lock", newest=SCHEMA, what=what, error=BadLockError
    )
    documents = whole.get("documents")
    if whole.keys() != {"launchkit_lock", "sha256", "documents"} or not isinstance(documents, list):
        raise BadLockError(source, f"it is not {what}")
    try:
        digest = jsonio.digest(documents)
    except UsageError as error:
        raise BadLockError(source, str(error)) from None
    if digest != whole["sha256"]:
        raise BadLockError(source, "its digest is not that of its content")
    pins = [pin for each in documents for pin in _pins(each, source)]
    if len({pin.identity for pin in pins}) != len(pins):
        raise BadLockError(source, "a record stands twice")
    return digest, pins


def _pins(raw: object, source: str) -> Iterator[TunedRecord]:
    for record in document.from_object(raw, source=source).records:
        if len(record.configs) != 1:
            raise BadLockError(source, f"a record of {record.kernel.name} has not one config")
        yield replace(record, pinned=True)


def _age(record: TunedRecord) -> tuple[tuple[int, ...], str]:
    text = record.toolchain.triton
    return version(text), text
