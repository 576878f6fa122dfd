"""What a command leaves to be done outside of the command line's own code. Of the tools."""

from __future__ import annotations

from collections.abc import Callable

_left: Callable[[], None] | None = None


def leave(action: Callable[[], None]) -> None:
    """Have ``action`` called when the command line is done with the command."""
    global _left
    _left = action


def do_what_is_left() -> None:
    """Call what a command left, once.

    Its exceptions, exit codes and interrupts are the interpreter's, as without launchkit.
    """
    global _left
    left, _left = _left, None
    if left is not None:
        left()
