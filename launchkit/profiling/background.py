"""The recording that ``launchkit profile`` began, which gives way to the program's own. A leaf."""

from __future__ import annotations

import logging
from collections.abc import Callable

_log = logging.getLogger("launchkit")

_running: Callable[[], None] | None = None


def set_running(finish: Callable[[], None]) -> None:
    """Say that a recording runs that ``finish`` ends and saves."""
    global _running
    _running = finish


def give_way() -> None:
    """End the recording in the background, if there is one: the program starts one itself."""
    global _running
    finish, _running = _running, None
    if finish is not None:
        _log.warning(
            "The program records launches itself, so the recording of launchkit profile ends here. "
            "Save the program's own: profile.save(path)."
        )
        finish()
