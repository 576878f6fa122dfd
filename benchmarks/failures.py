"""Whatever ends the work on a case or a model of a benchmark: one error that names it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

from launchkit.errors import LaunchkitError

_MAX_REASON = 400
"""Characters of somebody else's error that are shown; some hold a whole program."""


def failure(where: str, error: BaseException) -> LaunchkitError:
    """Return the error for what ended the work on ``where``, a case or a model."""
    if isinstance(error, LaunchkitError):
        return LaunchkitError(f"{where}: {error}", where=where, reason=str(error))
    kind = type(error).__name__
    reason = textwrap.shorten(f"{kind}: {error}", _MAX_REASON, placeholder=" ...")
    return LaunchkitError(
        f"{where} could not be measured: {reason.rstrip('.: ')}. Give fewer tokens or sequences if "
        "it was memory; leave this one out otherwise, by naming the models to measure.",
        where=where,
        reason=reason,
    )


@contextmanager
def named(case: str) -> Iterator[None]:
    """Turn every error within the block into a LaunchkitError that names the case."""
    try:
        yield
    except Exception as error:
        raise failure(case, error) from error
