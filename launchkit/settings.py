"""The only reader of the environment. A leaf.

The variables are read once, on first use; docs/environment.md lists them. ``reload()`` is
for tests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from launchkit.errors import UsageError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


@dataclass(frozen=True)
class Settings:
    """What the environment said when it was read."""

    disable: bool
    """LAUNCHKIT_DISABLE: every launch is plain Triton."""
    verify: bool
    """LAUNCHKIT_VERIFY: every shortcut is compared with Triton's own choice."""
    native: bool
    """LAUNCHKIT_NATIVE: launches take the C core where there is one."""
    store: str | None
    """LAUNCHKIT_STORE: where tuned configs are kept; None is the user's cache directory."""
    compiler: str | None
    """CC: the C compiler; None is gcc, clang or cc, whichever is found."""


def _flag(name: str, default: str = "0") -> bool:
    text = (os.environ.get(name) or default).strip().lower()
    if text not in _TRUE | _FALSE:
        raise UsageError(f"{name}={text!r} is neither on nor off. Set it to 1 or 0.", name=name)
    return text in _TRUE


def _read() -> Settings:
    return Settings(
        disable=_flag("LAUNCHKIT_DISABLE"),
        verify=_flag("LAUNCHKIT_VERIFY"),
        native=_flag("LAUNCHKIT_NATIVE", default="1"),
        store=os.environ.get("LAUNCHKIT_STORE") or None,
        compiler=os.environ.get("CC") or None,
    )


_current: Settings | None = None


def current() -> Settings:
    """Return the settings, reading the environment on the first call."""
    global _current
    if _current is None:
        _current = _read()
    return _current


def cache_home() -> Path:
    """Return launchkit's directory in the user's cache directory; it need not exist.

    Raises UsageError for a user without a home directory.
    """
    try:
        found = platformdirs.user_cache_path("launchkit")
    except RuntimeError:  # older releases return the ~ that could not be expanded
        found = Path("~")
    if not found.is_absolute():
        raise UsageError(
            "this user has no home directory that could hold a cache. Set XDG_CACHE_HOME to the "
            "whole path of a directory."
        )
    return found


def reload() -> Settings:
    """Read the environment again, and return what it says now."""
    global _current
    _current = None
    return current()
