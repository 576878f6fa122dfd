"""Files that profiling saves and reads again, in gzip or plain: what all of them share. A leaf."""

from __future__ import annotations

import gzip
import os
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

from launchkit import jsonio
from launchkit.errors import BadDocumentError

if TYPE_CHECKING:
    from pydantic import BaseModel

    ModelT = TypeVar("ModelT", bound=BaseModel)

LIMIT_BYTES = 1 << 30
"""More than that is not read, as it stands or unpacked."""
_GZIP = b"\x1f\x8b"


def write(path: str | os.PathLike[str], members: dict[str, Any]) -> None:
    """Write ``members`` as compact JSON, compressed where the name ends in ``.gz``."""
    data = jsonio.dumps_compact(members)
    name = os.fspath(path)
    with open(name, "wb") as file:
        file.write(gzip.compress(data, 6, mtime=0) if name.endswith(".gz") else data)


def read(path: str | os.PathLike[str]) -> Any:
    """Return what the JSON of a file says. Raises BadDocumentError for one that has none."""
    source = os.fspath(path)
    try:
        data = jsonio.read_limited(path, LIMIT_BYTES)
    except (OSError, ValueError) as error:
        if isinstance(error, BadDocumentError):
            raise
        advice = "Check the path and its permissions."
        raise BadDocumentError(source, f"it cannot be opened ({error})", advice=advice) from error
    return jsonio.loads(_unpacked(source, data), source=source, limit_bytes=LIMIT_BYTES)


def checked(source: str, found: Any, schema: int, model: type[ModelT]) -> ModelT:
    """Return ``found`` as a document of this schema; anything else raises BadDocumentError."""
    from pydantic import ValidationError

    stated = found.get("schema") if isinstance(found, dict) else None
    if stated != schema or type(stated) is not int:
        newer = type(stated) is int and stated > schema
        raise BadDocumentError(source, f"its schema is {stated!r}, not {schema}", newer=newer)
    try:
        return model.model_validate(found)
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
        reason = f"it is cut off, or unfolds to more than {LIMIT_BYTES} bytes"
        raise BadDocumentError(source, reason)
    return found
