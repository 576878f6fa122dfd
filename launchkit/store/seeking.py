"""One key's records in a large document, by bisection, without reading the rest. Under indexed.py.

It works on documents that stand as ``document.dump`` writes them: sorted, and indented, so that
a record begins with the one line that nothing else in a document is. Whatever looks otherwise
is left to those who read the whole.
"""

from __future__ import annotations

from launchkit import jsonio
from launchkit.errors import BadDocumentError
from launchkit.keys import DeviceId, KernelId, LaunchKey
from launchkit.store import document

# No string in JSON holds a line break, so a record's first and last lines are found in bytes.
_OPENING, _CLOSING = b"\n    {\n", b"\n    }"
_BEFORE, _AFTER = b'"records": [', b'\n  ],\n  "schema": 1\n}\n'
_HEAD_BYTES = 4096


def sought(
    data: bytes, key: LaunchKey, *, source: str
) -> tuple[KernelId, DeviceId, list[bytes]] | None:
    """Return whose document ``data`` is, and its records of ``key``, as they stand there.

    None where none was found or the document looks otherwise than expected; it may still have
    some then.
    """
    first = data.find(_BEFORE, 0, _HEAD_BYTES) + len(_BEFORE)
    if first < len(_BEFORE) or not data.endswith(_AFTER):
        return None
    last = len(data) - len(_AFTER)
    try:
        head = data[:first] + _AFTER.lstrip()
        kernel, device = document.scan(head, source=source, visit=lambda *_: None)
        found = _Bisection(data, first, last, source).around(key.digest)
    except BadDocumentError:
        return None
    return (kernel, device, found) if found else None


class _Bisection:
    """A search among the records between two places of a document."""

    def __init__(self, data: bytes, first: int, last: int, source: str) -> None:
        self._data, self._first, self._last, self._source = data, first, last, source

    def around(self, digest: str) -> list[bytes]:
        """Return the records whose key has this digest; they stand beside each other."""
        low, high = self._first, self._last
        while (span := self._record_near((low + high) // 2, low, high)) is not None:
            here = self._digest(span)
            if here == digest:
                return self._neighbours(span, digest)
            low, high = (span[1], high) if here < digest else (low, span[0])
        return []

    def _record_near(self, middle: int, low: int, high: int) -> tuple[int, int] | None:
        """Return the record that stands at ``middle``, or the first one behind ``low``."""
        start = self._data.rfind(_OPENING, low, min(middle + len(_OPENING), high))
        if start < 0:
            start = self._data.find(_OPENING, low, high)
        return None if start < 0 else self._until_its_end(start)

    def _until_its_end(self, start: int) -> tuple[int, int] | None:
        end = self._data.find(_CLOSING, start + 1, self._last)
        return None if end < 0 else (start, end + len(_CLOSING))

    def _neighbours(self, span: tuple[int, int], digest: str) -> list[bytes]:
        spans = [span]
        while (before := self._record_before(spans[0][0])) and self._digest(before) == digest:
            spans.insert(0, before)
        while (after := self._record_after(spans[-1][1])) and self._digest(after) == digest:
            spans.append(after)
        return [self._data[start:end].strip() for start, end in spans]

    def _record_before(self, start: int) -> tuple[int, int] | None:
        before = self._data.rfind(_OPENING, self._first, start)
        return None if before < 0 else self._until_its_end(before)

    def _record_after(self, end: int) -> tuple[int, int] | None:
        after = self._data.find(_OPENING, end, self._last)
        return None if after < 0 else self._until_its_end(after)

    def _digest(self, span: tuple[int, int]) -> str:
        start, end = span
        raw = jsonio.loads(
            self._data[start:end], source=self._source, limit_bytes=document.LIMIT_BYTES
        )
        try:
            return document.launch_key(raw).digest
        except (KeyError, TypeError, ValueError) as error:
            raise BadDocumentError(self._source, f"a record's key is none ({error})") from None
