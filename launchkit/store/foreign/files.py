"""Finding and reading the files of other programs; writing theirs. Pure but for the files."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from launchkit import jsonio
from launchkit.errors import BadDocumentError, UsageError
from launchkit.store import files
from launchkit.store.foreign.base import LIMIT_BYTES, LIMIT_FILES, RefusedError

_log = logging.getLogger("launchkit")


def files_at(path: Path, suffix: str) -> list[Path]:
    """Return ``path`` if it is a file, or the files below it whose name ends so, sorted.

    Links to directories are not followed; one that cannot be read is left out with a warning. Raises UsageError where there is nothing, or too much.
    """
    if not path.is_dir():
        if not path.exists():
            raise UsageError(f"{path} does not exist. Give a file or a directory.")
        return [path]
    found = list(islice(_below(path, suffix), LIMIT_FILES + 1))
    if len(found) > LIMIT_FILES:
        raise UsageError(
            f"{path} has more than {LIMIT_FILES} files that end in {suffix}. Give a part of it."
        )
    return sorted(found)


def load(path: Path) -> dict[str, object]:
    """Return the JSON object in a file, as Python's json module writes it.

    Raises RefusedError for a file that cannot be read or holds anything else.
    """
    try:
        data = jsonio.read_limited(path, LIMIT_BYTES)
        parsed = jsonio.loads_python(data, source=str(path), limit_bytes=LIMIT_BYTES)
    except BadDocumentError as error:
        raise RefusedError(error.reason) from None
    except (OSError, ValueError) as error:
        raise RefusedError(f"it cannot be read: {error}") from None
    return mapping(parsed, "the file")


def mapping(value: object, what: str) -> dict[str, object]:
    """Return ``value`` if it is a JSON object; RefusedError otherwise."""
    if not isinstance(value, dict):
        raise RefusedError(f"{what} is no JSON object")
    return value


def sequence(value: object, what: str) -> list[object]:
    """Return ``value`` if it is a JSON array; RefusedError otherwise."""
    if not isinstance(value, list):
        raise RefusedError(f"{what} is no JSON array")
    return value


def write_new(documents: Mapping[Path, bytes]) -> tuple[Path, ...]:
    """Put each document at its path; nothing is written if another file is in the way of one.

    Raises UsageError for that, OSError where the system refuses.
    """
    for path, data in documents.items():
        if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == data):
            raise UsageError(f"{path} exists and differs. Move it away, or give another directory.")
    for path, data in documents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace_file(path, data)
    return tuple(documents)


def _below(root: Path, suffix: str) -> Iterator[Path]:
    for folder, _, names in os.walk(root, onerror=_unlisted, followlinks=False):
        yield from (Path(folder, name) for name in names if name.endswith(suffix))


def _unlisted(error: OSError) -> None:
    _log.warning("left out: %s. Make it readable.", error)
