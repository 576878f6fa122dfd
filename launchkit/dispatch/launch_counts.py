"""Counts of launches per kernel: through Triton by reason, and fast ones. A leaf of dispatch.

The long way counts by itself, and so does the C core, for less than can be measured. A fast
launch of the Python core is counted by a function in front of it, which is there only between
``begin`` and ``end``: off means absent.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from launchkit.dispatch.native.fronts import MISS

FIRST = "first launch of its kind"
"""The only reason that goes away by itself: the next launch of the kind is fast."""
PRE_HOOK = "config with a pre_hook"
NO_CONFIG = "Triton's Autotuner chooses: a key that cannot be stored, or a clash with a config"
SIGNATURE = "a signature or mode that launchkit does not cover"
UNKNOWN = "an argument or option that the guard does not know"
"""Behind it stand its name and type."""
VALUES = "too many kinds of call, or a value that the guard does not know"
NOT_KEPT = "the kernel or its config list changed meanwhile"
UNWATCHED = "a dictionary or list of a class of its own, which the C core cannot watch"
NOT_COMPILED = "a hook of Triton's kept the kernel from being compiled"
DISABLED = "LAUNCHKIT_DISABLE is set"
INTERPRETED = "TRITON_INTERPRET is set"
EXCLUDED = "install() leaves this kernel out"

_lock = threading.RLock()  # a finalizer may launch while it is held
_through_triton: Counter[tuple[str, str]] = Counter()
_fast: Counter[str] = Counter()
# Where C cores count: two numbers of 64 bits per kernel name, however many kernels have it: its
# own launches, and those of op plans.
_counted_in_c: dict[str, array[int]] = {}
# Names of kernels whose launches have gone uncounted.
_uncounted: set[str] = set()
_askers = 0
_ever_asked = False


def through_triton(kernel: str, reason: str) -> None:
    """Count one launch of a kernel that went through Triton."""
    with _lock:
        _through_triton[kernel, reason] += 1


def counted(kernel: str, launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a core's ``launch`` with its fast launches counted, if somebody asks or it is free."""
    count_into = getattr(launch, "count_into", None)
    with _lock:
        if count_into is not None:
            count_into(_counted_in_c.setdefault(kernel, array("Q", [0, 0])))
            return launch
        if not _askers:
            _uncounted.add(kernel)
            return launch

    def counting_launch(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = launch(grid, *args, **kwargs)
        if result is not MISS:
            with _lock:
                _fast[kernel] += 1
        return result

    return counting_launch


def fast(kernel: str) -> None:
    """Count one fast launch that Python made, if somebody asks or C counts the kernel's others."""
    with _lock:
        if _askers or kernel in _counted_in_c:
            _fast[kernel] += 1
        else:
            _uncounted.add(kernel)


def begin() -> bool:
    """Ask for all fast launches to be counted; tell whether nobody else had asked."""
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


class Counts(NamedTuple):
    """What was launched since the process began, or ``reset``."""

    through_triton: dict[tuple[str, str], int]
    """By (kernel, reason)."""
    fast: dict[str, int | None]
    """By kernel, those of replays included; None for kernels of the Python core where nobody has
    asked for them yet."""
    replayed: dict[str, int]
    """By kernel: fast launches that a replay of an op made."""


def snapshot() -> Counts:
    """Return every count."""
    with _lock:
        fast: dict[str, int | None] = dict(_fast)
        replayed = {name: numbers[1] for name, numbers in _counted_in_c.items() if numbers[1]}
        for name, numbers in _counted_in_c.items():
            if any(numbers):
                fast[name] = sum(numbers) + _fast[name]
        if not _ever_asked:
            fast.update(dict.fromkeys(_uncounted))
        return Counts(dict(_through_triton), fast, replayed)


def reset() -> None:
    """Forget every count."""
    global _ever_asked
    with _lock:
        _through_triton.clear()
        _fast.clear()
        for numbers in _counted_in_c.values():
            numbers[0] = numbers[1] = 0
        _ever_asked = _askers > 0
