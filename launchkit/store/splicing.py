"""A document with records merged into it, without parsing the others. Under directory.py.

The records that are not concerned keep their bytes, so that a write to a large document costs
little more than copying it, and nothing in it can be lost by way of a reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from typing import TypeAlias

from launchkit.configs import Identity, TunedRecord, merge_records
from launchkit.errors import BadDocumentError
from launchkit.keys import LaunchKey
from launchkit.store import document
from launchkit.store.document import ConfigDocument
from launchkit.store.indexed import DocumentIndex

_Part: TypeAlias = tuple[int, int, bytes]
"""(mark, start, bytes) of a record: the order of a document, and what stands there."""
_Records: TypeAlias = dict[Identity, TunedRecord]


def spliced(
    data: bytes, index: DocumentIndex | None, added: Sequence[TunedRecord], *, source: str
) -> bytes | None:
    """Return ``data`` with ``added`` merged in (one after the other); None if nothing changes.

    ``index`` is that of ``data``; None for no document yet. The records are of its kernel and
    device. Raises BadDocumentError where a stored record of one of their keys breaks a rule.
    """
    old, untouched = _taken_apart(data, index, {record.key for record in added}, source)
    new = dict(old)
    for record in added:
        known = new.get(record.identity)
        new[record.identity] = record if known is None else merge_records(known, record)
    if new == old:
        return None
    fresh = document.dump(ConfigDocument(added[0].kernel, added[0].device, tuple(new.values())))
    written = DocumentIndex.of(fresh, source=source)
    parts = merge(untouched, _parts(fresh, written))
    records = b",\n    ".join(part for _, _, part in parts)
    return fresh[: min(written.starts)] + records + fresh[max(written.ends) :]


def _taken_apart(
    data: bytes, index: DocumentIndex | None, keys: set[LaunchKey], source: str
) -> tuple[_Records, list[_Part]]:
    """Return the records of ``keys``, and the parts that are none of theirs."""
    if index is None:
        return {}, []
    concerned = {span for key in keys for span in index.spans(key)}
    found: _Records = {}
    untouched = []
    for part in _parts(data, index):
        _, start, content = part
        record = None
        if (start, start + len(content)) in concerned:
            record = document.parse_record(content, index.kernel, index.device, source=source)
        if record is None or record.key not in keys:  # the latter has an equal mark by chance
            untouched.append(part)
        elif record.identity in found:
            raise BadDocumentError(source, f"a record of {index.kernel.name} stands twice")
        else:
            found[record.identity] = record
    return found, untouched


def _parts(data: bytes, index: DocumentIndex) -> list[_Part]:
    places = zip(index.marks, index.starts, index.ends, strict=True)
    return [(mark, start, data[start:end]) for mark, start, end in places]
