"""What every copy of a capture has to heed: its output, its window, the range it is of. A leaf."""

from __future__ import annotations

import difflib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from launchkit.errors import UsageError

AnyPath: TypeAlias = str | os.PathLike[str]

OUTSIDE = "outside the slice"
"""Why a row is left out of a slice."""


class Window(NamedTuple):
    """A slice's start and end, in ns on whatever clock the rows are on."""

    start_ns: int
    end_ns: int

    def clipped(self, start_ns: int, end_ns: int) -> tuple[int, int] | None:
        """Return what of a time lies inside, None for nothing; an instant may lie on an edge."""
        inside = start_ns < self.end_ns and end_ns > self.start_ns
        if not inside and not (start_ns == end_ns and self.start_ns <= start_ns <= self.end_ns):
            return None
        return max(start_ns, self.start_ns), min(end_ns, self.end_ns)


def check_window(start_ns: int, end_ns: int) -> None:
    """Raise UsageError for an end that is not after its start."""
    if start_ns >= end_ns:
        raise UsageError(
            f"the slice from {start_ns} ns to {end_ns} ns is empty. Give an end after its start.",
            start_ns=start_ns,
            end_ns=end_ns,
        )


@contextmanager
def replacing(source: AnyPath, output: AnyPath) -> Iterator[Path]:
    """Give a file to write, which takes the place of ``output`` when the block ends well.

    It has the output's own ending, which may decide whether it is compressed. Raises UsageError
    where the output is the capture itself, OSError where that is missing.
    """
    target = Path(os.path.realpath(output))
    _check_output(Path(source), target)
    part = target.with_name(f".launchkit-{secrets.token_hex(8)}.part{target.suffix}")
    try:
        yield part
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def _check_output(source: Path, target: Path) -> None:
    source.stat()
    with suppress(FileNotFoundError):
        if os.path.samefile(source, target):
            raise UsageError(
                f"{target} is the capture itself, which is never written to. Give another file.",
                output=str(target),
            )


def occurrence_of(
    source: str, name: str, occurrence: int, found: Sequence[tuple[int, int]], names: Iterable[str]
) -> tuple[int, int]:
    """Return the ``occurrence``-th of the bounds ``found`` of a range, from 1 on.

    Raises UsageError where there is none, with those of ``names`` that are like ``name``.
    """
    if 0 < occurrence <= len(found):
        return found[occurrence - 1]
    near = [] if found else difflib.get_close_matches(name, set(names), n=3)
    other = f"such as {', '.join(map(repr, near))}" if near else "or number, or the slice's times"
    raise UsageError(
        f"{source} has {len(found)} ranges {name!r} that were closed, and number {occurrence} was "
        f"asked for. Give another name, {other}.",
        name=name,
        occurrence=occurrence,
        found=len(found),
        near=near,
    )
