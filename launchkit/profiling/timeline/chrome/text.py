"""The text of a trace file, piece by piece: plain or gzip, in any encoding. A leaf."""

from __future__ import annotations

import codecs
import itertools
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from launchkit.errors import TimelineError
from launchkit.profiling.timeline.progress import Progress

Warn = Callable[[str], None]

PIECE_BYTES = 1 << 20
BOMB_RATIO = 300
"""How many times its size a gzip file may unfold to, beyond ``BOMB_FREE_BYTES``. Traces: 10 to 40."""
BOMB_FREE_BYTES = 256 << 20

_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UNMARKED = {b"\0\0\0{": "utf-32-be", b"\0\0\0[": "utf-32-be", b"{\0\0\0": "utf-32-le",
             b"[\0\0\0": "utf-32-le"}  # fmt: skip


def pieces(path: str, warn: Warn, progress: Progress | None = None) -> Iterator[str]:
    """Yield the text of ``path``; what can be read of a damaged file is read, with a warning.

    ``progress`` is told the bytes of the file that were read, and its size. Raises
    TimelineError for what is no regular file, may not be read, is empty, or is a gzip bomb.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            raise TimelineError(path, "it is empty", "Capture it again.")
        gzipped = file.read(2) == _GZIP
        file.seek(0)
        if path.endswith(".gz") and not gzipped:
            warn("its name ends in .gz, but it is not compressed")
        data = _inflated(path, file, warn) if gzipped else iter(lambda: file.read(PIECE_BYTES), b"")
        for text in _decoded(data, warn):
            if progress is not None:
                progress("events", file.tell(), size)
            yield text


def _opened(path: str) -> BinaryIO:
    try:
        # O_NONBLOCK keeps a FIFO from blocking the open.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TimelineError(path, reason, "Give the path of a readable trace file.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TimelineError(path, "it is not a regular file", "Give the path of a trace file.")
    return os.fdopen(descriptor, "rb")


def _inflated(path: str, file: BinaryIO, warn: Warn) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    pending, unfolded = b"", 0
    while True:
        if len(pending) < len(_GZIP):
            pending += file.read(PIECE_BYTES)
        if not pending:
            if not inflater.eof:
                warn("its gzip data end early: it was cut off")
            return
        if inflater.eof:
            if not pending.startswith(_GZIP):
                warn("what stands behind its gzip data was not read")
                return
            inflater = zlib.decompressobj(wbits=31)
        before = inflater.copy()
        try:
            data = inflater.decompress(pending, PIECE_BYTES)
        except zlib.error as error:
            warn(f"its gzip data are damaged ({error}): the rest was not read")
            yield from _salvaged(before, pending)
            return
        unfolded += len(data)
        if unfolded > max(BOMB_FREE_BYTES, BOMB_RATIO * file.tell()):
            reason = f"it unfolds to more than {BOMB_RATIO} times its size"
            raise TimelineError(path, reason, "Unpack it by hand if you trust it.")
        pending = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        yield data


def _salvaged(inflater: Any, pending: bytes) -> Iterator[bytes]:
    """Yield what can be read before the damage: byte by byte, since an error loses its call's."""
    try:
        for place in range(len(pending)):
            yield inflater.decompress(pending[place : place + 1])
    except zlib.error:
        return


def _decoded(data: Iterator[bytes], warn: Warn) -> Iterator[str]:
    head = b""
    for piece in data:
        head += piece
        if len(head) >= 4:
            break
    encoding = _encoding(head)
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    replaced = 0
    for piece in itertools.chain((head,), data):
        text = decoder.decode(piece)
        replaced += text.count("\ufffd")
        yield text
    yield decoder.decode(b"", final=True)
    if replaced:
        warn(f"{replaced} characters are not {encoding}: they stand as \ufffd")


def _encoding(head: bytes) -> str:
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if head[:4] in _UNMARKED:
        return _UNMARKED[head[:4]]
    if head[:1] == b"\0":
        return "utf-16-be"
    return "utf-16-le" if head[1:2] == b"\0" else "utf-8"
