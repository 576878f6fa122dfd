"""What a launch without a plan may do: tune, and take hints. A leaf of dispatch.

LAUNCHKIT_REQUIRE_TUNED forbids tuning but while warming up; whoever tunes on purpose takes no hints,
so that what is stale is tuned anew. Both hold for the launches of one thread or task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from launchkit import settings

_allowed: ContextVar[bool | None] = ContextVar("launchkit_tuning_allowed", default=None)

_without_hints: ContextVar[bool] = ContextVar("launchkit_without_hints", default=False)


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


@contextlib.contextmanager
def without_hints() -> Iterator[None]:
    """Let launches of this thread take only what was measured for exactly them, or is pinned.

    Whatever the policies say, shapes included; what another program's file gave does not count.
    """
    token = _without_hints.set(True)
    try:
        yield
    finally:
        _without_hints.reset(token)


def takes_hints() -> bool:
    """Tell whether a launch may take what is not exactly of it, as its policies say."""
    return not _without_hints.get()
