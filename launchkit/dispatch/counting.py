"""Counts of launches per kernel: those through Triton by reason always, fast ones while asked for.

Only the long way counts on its own. A fast launch is counted by a function in front of the
core's, which is there only between ``begin`` and ``end``: off means absent.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from launchkit.dispatch.native.fronts import MISS

FIRST = "first launch of its kind"
"""The only reason that goes away by itself: the next launch of the kind is fast."""
PRE_HOOK = "config with a pre_hook"
NO_CONFIG = "Triton's Autotuner chooses: a key that cannot be stored, or a clash with a config"
SIGNATURE = "a signature or mode that launchkit does not cover"
ARGUMENTS = "a type or option that the guard does not know, or too many kinds of call"
NOT_KEPT = "the kernel or its config list changed meanwhile"
NOT_COMPILED = "a hook of Triton's kept the kernel from being compiled"
DISABLED = "LAUNCHKIT_DISABLE is set"
INTERPRETED = "TRITON_INTERPRET is set"
EXCLUDED = "install() leaves this kernel out"

_lock = threading.Lock()
_through_triton: Counter[tuple[str, str]] = Counter()
_fast: Counter[str] = Counter()
_askers = 0
_ever_asked = False


def through_triton(kernel: str, reason: str) -> None:
    """Count one launch of a kernel that went through Triton."""
    with _lock:
        _through_triton[kernel, reason] += 1


def counted(kernel: str, launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``launch`` with its fast launches counted."""

    def counting_launch(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = launch(grid, *args, **kwargs)
        if result is not MISS:
            with _lock:
                _fast[kernel] += 1
        return result

    return counting_launch


def counts_fast() -> bool:
    """Tell whether fast launches are being counted."""
    return _askers > 0


def begin() -> bool:
    """Ask for fast launches to be counted; tell whether nobody else had asked."""
    global _askers, _ever_asked
    with _lock:
        _askers += 1
        _ever_asked = True
        return _askers == 1


def end() -> bool:
    """Take one ``begin`` back; tell whether it was the last."""
    global _askers
    with _lock:
        _askers -= 1
        return _askers == 0


def snapshot() -> tuple[dict[tuple[str, str], int], dict[str, int] | None]:
    """Return launches through Triton by (kernel, reason), and fast ones by kernel.

    The latter are None where nobody has asked for them yet.
    """
    with _lock:
        return dict(_through_triton), dict(_fast) if _ever_asked else None


def reset() -> None:
    """Forget every count."""
    global _ever_asked
    with _lock:
        _through_triton.clear()
        _fast.clear()
        _ever_asked = _askers > 0
