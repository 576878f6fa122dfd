"""Files of samples: stacks of a process with the ranges that were open. A leaf.

Written after a run under py-spy, from what py-spy saw and what each process noted of itself.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from typing import TYPE_CHECKING, Any

from launchkit import jsonio
from launchkit.errors import BadDocumentError

if TYPE_CHECKING:
    from launchkit.profiling.samples_schema import SamplesDocument

CAPTURE, SCHEMA = "py-spy", 1
LIMIT_BYTES = 1 << 30

_GZIP = b"\x1f\x8b"
_HEAD = re.compile(rb'\s*\{\s*"capture"\s*:\s*"py-spy"')


def is_samples(head: bytes) -> bool:
    """Tell whether a file that begins so, unpacked, is a file of samples."""
    # Keys are sorted: "capture" is the first.
    return _HEAD.match(head) is not None


def write(path: str | os.PathLike[str], members: dict[str, Any]) -> None:
    """Write a file of samples, compressed where its name ends in ``.gz``."""
    data = jsonio.dumps_compact({"capture": CAPTURE, "schema": SCHEMA, **members})
    name = os.fspath(path)
    with open(name, "wb") as file:
        file.write(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)


def read(path: str | os.PathLike[str]) -> SamplesDocument:
    """Return a file of samples, checked. Raises BadDocumentError for one that cannot be used."""
    from pydantic import ValidationError

    from launchkit.profiling.samples_schema import SamplesDocument

    source = os.fspath(path)
    try:
        data = _unpacked(source, jsonio.read_limited(path, LIMIT_BYTES))
    except (OSError, ValueError) as error:
        if isinstance(error, BadDocumentError):
            raise
        raise BadDocumentError(source, f"it cannot be opened ({error})") from None
    found = jsonio.loads(data, source=source, limit_bytes=LIMIT_BYTES)
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != SCHEMA or type(schema) is not int:
        newer = type(schema) is int and schema > SCHEMA
        raise BadDocumentError(source, f"its schema is {schema!r}, not {SCHEMA}", newer=newer)
    try:
        return SamplesDocument.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = "/".join(map(str, first["loc"]))
        raise BadDocumentError(source, f"{place or 'it'}: {first['msg']}") from None


def _unpacked(source: str, data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    inflater = zlib.decompressobj(wbits=31)
    try:
        found = inflater.decompress(data, LIMIT_BYTES)
    except zlib.error as error:
        raise BadDocumentError(source, f"its gzip data are damaged ({error})") from None
    if not inflater.eof:
        raise BadDocumentError(source, f"it is cut off, or unfolds to more than {LIMIT_BYTES} B")
    return found
