"""Files that commands write: tried before the work, and replaced as a whole after it. Of the tools."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from launchkit.errors import UsageError


def check_output(output: Path | None) -> None:
    """Refuse before measuring what cannot be written after it; nothing is changed by the trial."""
    if output is None:
        return
    try:
        _try_to_open(output)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{output} cannot be written: {error}. Give a file in a directory that exists and that "
            "you may write to."
        ) from error


def _try_to_open(output: Path) -> None:
    target = os.path.realpath(output)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    except FileExistsError:
        if _is_replaceable(output) or output.is_dir():
            with open(target, "ab"):
                return
        # Opening a pipe would end it for its reader.
        if output.is_socket() or not os.access(target, os.W_OK):
            raise PermissionError("it takes no output") from None
    else:
        os.remove(target)


def _is_replaceable(output: Path) -> bool:
    return output.is_file() or not output.exists()


@contextmanager
def replacing(output: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of ``output`` when the block ends well, with its mode.

    No reader and no failure sees a half of it. The temporary file beside it has a name that is
    used only once. What is not a regular file, such as a pipe, is written to. Raises OSError.
    """
    if not _is_replaceable(output):
        with output.open("wb") as file:
            yield file
        return
    target = Path(os.path.realpath(output))
    part = target.with_name(f".launchkit-{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            yield file
        if target.exists():
            shutil.copymode(target, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def replace_file(output: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, as ``replacing``. Raises OSError."""
    with replacing(output) as file:
        file.write(data)


def write(output: Path, data: bytes) -> None:
    """Write a result to its file, or raise UsageError."""
    try:
        try:
            replace_file(output, data)
        except PermissionError:
            # The file may be writable where its directory is not.
            output.write_bytes(data)
    except OSError as error:
        raise UsageError(
            f"the JSON was not written: {error}. Give another file, or print it with --json."
        ) from error
