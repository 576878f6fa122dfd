"""Records of config documents found by key, without keeping the documents. Under directory.py.

A file is scanned once: where each record stands in it takes 16 bytes a record. The record that
is asked for is then read, checked and remembered by itself, so that neither the time nor the
memory of a lookup grows with what else is stored. In a large file the first few are sought
without a scan.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from launchkit import jsonio
from launchkit.configs import TunedRecord
from launchkit.errors import BadDocumentError
from launchkit.keys import DeviceId, KernelId, LaunchKey
from launchkit.store import document, files
from launchkit.store.seeking import sought

MAX_INDEXED = 2**20
"""Records whose place in their file is remembered; the files asked for longest ago go first."""
MAX_PARSED_BYTES = 8 * 2**20
"""Of JSON whose records are remembered."""

SEEK_BYTES = 128 * 2**10
"""From this size on, a file's first keys are sought by bisection, before it is scanned."""
_SEEKS_PER_FILE, _MAX_SEEKS = 8, 4096

_Place: TypeAlias = tuple[Path, str]


@dataclass(frozen=True)
class DocumentIndex:
    """Where each record of a document stands: three arrays, sorted by the key's mark."""

    kernel: KernelId
    device: DeviceId
    marks: array[int]
    starts: array[int]
    ends: array[int]

    @classmethod
    def of(cls, data: bytes, *, source: str) -> DocumentIndex:
        """Scan a document; raises BadDocumentError for what cannot be one.

        Its records' keys are checked; the rest of each is, when it is asked for.
        """
        found: list[tuple[int, int, int]] = []
        kernel, device = document.scan(
            data,
            source=source,
            visit=lambda key, start, end: found.append((_mark(key.digest), start, end)),
        )
        marks, starts, ends = zip(*sorted(found), strict=True) if found else ((), (), ())
        return cls(kernel, device, array("Q", marks), array("I", starts), array("I", ends))

    def spans(self, key: LaunchKey) -> list[tuple[int, int]]:
        """Return (start, end) of each record that may be of this key, in bytes."""
        mark = _mark(key.digest)
        first = last = bisect_left(self.marks, mark)
        while last < len(self.marks) and self.marks[last] == mark:
            last += 1
        return list(zip(self.starts[first:last], self.ends[first:last], strict=True))


@dataclass(frozen=True)
class FoundRecords:
    """The records of one key in one file, and whose file it is."""

    kernel: KernelId
    device: DeviceId
    records: tuple[TunedRecord, ...]


class IndexedFiles:
    """Document files in which records are looked up by key. Thread-safe, and bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Path, tuple[files.Signature, DocumentIndex]] = OrderedDict()
        self._indexed = 0
        self._parsed: OrderedDict[_Place, tuple[files.Signature, FoundRecords, int]] = OrderedDict()
        self._parsed_bytes = 0
        self._seeks: OrderedDict[Path, tuple[files.Signature, int]] = OrderedDict()

    def find(self, path: Path, key: LaunchKey, seen: files.Signature) -> FoundRecords:
        """Return the records of ``key`` in a file, one for each toolchain.

        ``seen`` is the file's signature, taken before: if it is replaced meanwhile, the next
        call reads it again. Raises BadDocumentError for a file that is no document, or whose
        record of this key breaks a rule, and OSError where the system refuses.
        """
        place = (path, key.digest)
        with self._lock:
            parsed = self._parsed.get(place)
            if parsed is not None and parsed[0] == seen:
                self._parsed.move_to_end(place)
                return parsed[1]
            known = self._indexes.get(path)
        kernel, device, slices = self._slices(path, key, seen, known)
        found = FoundRecords(kernel, device, _records(kernel, device, slices, key, str(path)))
        if slices:
            self._remember(place, seen, found, sum(map(len, slices)))
        return found

    def _slices(
        self,
        path: Path,
        key: LaunchKey,
        seen: files.Signature,
        known: tuple[files.Signature, DocumentIndex] | None,
    ) -> tuple[KernelId, DeviceId, list[bytes]]:
        if known is not None and known[0] == seen:
            index = known[1]
            spans = index.spans(key)
            slices = files.read_spans(path, seen, spans) if spans else []
            if slices is not None:
                self._touch(path)
                return index.kernel, index.device, slices
        data = jsonio.read_limited(path, document.LIMIT_BYTES)
        if len(data) >= SEEK_BYTES and self._may_seek(path, seen):
            found = sought(data, key, source=str(path))
            if found is not None:
                return found
        index = DocumentIndex.of(data, source=str(path))
        self._keep(path, seen, index)
        return index.kernel, index.device, [data[start:end] for start, end in index.spans(key)]

    def _may_seek(self, path: Path, seen: files.Signature) -> bool:
        """Whether few keys were asked for in this file as it is: an index pays off for many."""
        with self._lock:
            signature, count = self._seeks.pop(path, (seen, 0))
            count = count + 1 if signature == seen else 1
            self._seeks[path] = (seen, count)
            while len(self._seeks) > _MAX_SEEKS:
                self._seeks.popitem(last=False)
            return count <= _SEEKS_PER_FILE

    def _touch(self, path: Path) -> None:
        with self._lock:
            if path in self._indexes:
                self._indexes.move_to_end(path)

    def _keep(self, path: Path, seen: files.Signature, index: DocumentIndex) -> None:
        with self._lock:
            self._forget_index(path)
            self._indexes[path] = (seen, index)
            self._indexed += _size(index)
            while self._indexed > MAX_INDEXED and len(self._indexes) > 1:
                self._forget_index(next(iter(self._indexes)))

    def _forget_index(self, path: Path) -> None:
        old = self._indexes.pop(path, None)
        if old is not None:
            self._indexed -= _size(old[1])

    def _remember(
        self, place: _Place, seen: files.Signature, found: FoundRecords, size_bytes: int
    ) -> None:
        with self._lock:
            self._forget_records(place)
            self._parsed[place] = (seen, found, size_bytes)
            self._parsed_bytes += size_bytes
            while self._parsed_bytes > MAX_PARSED_BYTES and len(self._parsed) > 1:
                self._forget_records(next(iter(self._parsed)))

    def _forget_records(self, place: _Place) -> None:
        old = self._parsed.pop(place, None)
        if old is not None:
            self._parsed_bytes -= old[2]


def _records(
    kernel: KernelId, device: DeviceId, slices: Sequence[bytes], key: LaunchKey, source: str
) -> tuple[TunedRecord, ...]:
    parsed = [document.parse_record(each, kernel, device, source=source) for each in slices]
    found = tuple(record for record in parsed if record.key == key)
    if len({record.toolchain for record in found}) != len(found):
        raise BadDocumentError(source, f"a record of {kernel.name} stands twice")
    return found


def _size(index: DocumentIndex) -> int:
    return len(index.marks) + 16  # a file without records takes memory too


def _mark(digest: str) -> int:
    """64 bits of the digest; records that share them are told apart by their keys."""
    return int(digest[:16], 16)
