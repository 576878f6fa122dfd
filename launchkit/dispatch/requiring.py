"""LAUNCHKIT_REQUIRE_TUNED: a launch that would tune raises, but while warming up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from launchkit import settings

_allowed: ContextVar[bool | None] = ContextVar("launchkit_tuning_allowed", default=None)


@contextlib.contextmanager
def tuning_allowed() -> Iterator[None]:
    """Let launches of this thread tune inside the block, whatever LAUNCHKIT_REQUIRE_TUNED says.

    For what warms up or tunes on purpose. Threads that are started inside enter it themselves.
    """
    token = _allowed.set(True)
    try:
        yield
    finally:
        _allowed.reset(token)


@contextlib.contextmanager
def tuning_forbidden() -> Iterator[None]:
    """Let launches of this thread tune nothing inside the block, whatever the settings say.

    What would tune raises NotTunedError.
    """
    token = _allowed.set(False)
    try:
        yield
    finally:
        _allowed.reset(token)


def must_be_tuned() -> bool:
    """Tell whether a launch may only take a config that is known already."""
    allowed = _allowed.get()
    return settings.current().require_tuned if allowed is None else not allowed
