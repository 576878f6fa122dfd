"""Who is told of launches that took no shortcut: a manifest's recorders. A leaf of dispatch.

Usually nobody. Launch paths ask ``active`` on a miss; a fast launch meets nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

Note = Callable[[Any, Any, "tuple[Any, ...]", Mapping[str, Any]], None]
"""Called as ``note(launcher, grid, args, kwargs)``."""

_lock = threading.RLock()
_recorders: tuple[Note, ...] = ()
active: Note | None = None
"""What a miss is told to, or None."""


def begin(note: Note) -> None:
    """Tell ``note`` of each miss from here on."""
    _set((*_recorders, note))


def end(note: Note) -> None:
    """Tell ``note`` nothing any more."""
    _set(tuple(each for each in _recorders if each != note))


def _set(recorders: tuple[Note, ...]) -> None:
    global _recorders, active
    with _lock:
        _recorders = recorders
        active = _tell if recorders else None


def _tell(launcher: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    for note in _recorders:
        note(launcher, grid, args, kwargs)
