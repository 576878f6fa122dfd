"""``watch_compiles``: names every compilation and tuning, and its cause. Below choosing.py.

While something watches, two functions of Triton's classes are replaced that only compiling and
tuning call; a launch of a compiled kernel meets nothing of it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch import variants
from launchkit.dispatch.layers import autotune_key, kernel_name, labelled_autotune_key
from launchkit.dispatch.stopping import Stoppable
from launchkit.dispatch.variants import ArgumentChange
from launchkit.errors import UnexpectedCompileError, UsageError

logger = logging.getLogger("launchkit")

MAX_EVENTS = 4096
"""Events kept per watch, the last ones; all are counted and logged."""


@dataclass(frozen=True)
class CompileEvent:
    """One compilation of a kernel, or one tuning with all that it compiles."""

    kernel: str
    """``module.qualname`` of the kernel's function."""
    kind: str
    """``compilation`` or ``tuning``."""
    first: bool
    """True where the kernel had no variant on the device (no tuned key) to compare with."""
    changes: tuple[ArgumentChange, ...]
    """What differs from the nearest variant (key) before; empty for a first one."""

    def __str__(self) -> str:
        if self.first:
            cause = "its first on this device" if self.kind == "compilation" else "its first key"
        else:
            cause = "; ".join(map(str, self.changes)) or "nothing that launchkit sees has changed"
        return f"{self.kind} of {self.kernel}: {cause}"


class watch_compiles(Stoppable):  # noqa: N801 - reads as a function, and as a context manager
    """Watch for compilations and tunings from here on, or within a block.

    Call it where a program has warmed up and begins to serve: from there each compilation and
    each tuning of a Triton kernel, launched through launchkit or not, is an event that names
    the kernel, the argument, and the class that has changed. Events of all threads are seen.
    A variant that Triton loads from its disk cache counts as a compilation. Kernels that
    Inductor generates are compiled by Inductor and not seen.

    Args:
        strict: raise ``UnexpectedCompileError`` instead, before anything is compiled or
            measured. The launch fails; the kernel can be launched again.
        log: warn of each event through ``logging.getLogger("launchkit")``.

    Raises:
        UsageError: an option is no bool.
    """

    def __init__(self, *, strict: bool = False, log: bool = True) -> None:
        if {type(strict), type(log)} != {bool}:
            raise UsageError("strict and log are on or off. Pass True or False.")
        self.strict = strict
        self._log = log
        self.events: list[CompileEvent] = []
        """What was seen, oldest first."""
        self.count = 0
        """How many events there were; ``events`` keeps the last MAX_EVENTS."""
        with _lock:
            _watches.append(self)
            _put_in()

    def stop(self) -> None:
        """Stop watching; again: does nothing. The events stay."""
        with _lock:
            if self in _watches:
                _watches.remove(self)
                _take_out()

    def _see(self, event: CompileEvent) -> None:
        with _lock:
            self.count += 1
            self.events.append(event)
            del self.events[:-MAX_EVENTS]
        if self._log:
            logger.warning("%s", event)


_lock = threading.RLock()
_watches: list[watch_compiles] = []
_originals: dict[tuple[type, str], Any] = {}


class _Tuning(threading.local):
    """What the current thread is measuring; what it compiles meanwhile is no event of its own."""

    depth = 0
    seen: Any = None


_tuning = _Tuning()


def _report(kernel: Any, kind: str, changes: list[ArgumentChange] | None) -> None:
    event = CompileEvent(kernel_name(kernel), kind, changes is None, tuple(changes or ()))
    watches = list(_watches)
    for watch in watches:
        watch._see(event)
    if any(watch.strict for watch in watches):
        raise UnexpectedCompileError(event.kernel, event.kind, str(event))


@contextlib.contextmanager
def tuning(autotuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
    """Report a tuning to whoever watches, and take what it compiles as part of it.

    Raises:
        UnexpectedCompileError: a watch is strict.
    """
    if _watches and not _tuning.depth:
        _report(autotuner, "tuning", _key_changes(autotuner, args, kwargs))
    _tuning.depth += 1
    try:
        yield
    finally:
        _tuning.depth -= 1


def _key_changes(
    autotuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[ArgumentChange] | None:
    labelled = labelled_autotune_key(autotuner, args, kwargs)
    return variants.nearest(
        [
            _key_change(label, old, new)
            for (label, new), old in zip(labelled, key, strict=True)
            if type(old) is not type(new) or old != new
        ]
        for key in list(autotuner.cache)
        if len(key) == len(labelled)
    )


def _key_change(label: str, old: Any, new: Any) -> ArgumentChange:
    change = "has changed" if label.startswith("dtype of") else "has a new key value"
    return ArgumentChange(label, change, str(old), str(new))


# -- what stands in Triton's classes while something watches


def _put_in() -> None:
    if not _originals:
        _replace(seam.JITFunction, "_call_hook", _watched_hook)
        _replace(seam.Autotuner, "_bench", _watched_bench)


def _take_out() -> None:
    if _watches:
        return
    for (kind, name), (original, ours) in list(_originals.items()):
        if vars(kind).get(name) is ours:  # else it stays behind somebody's, and does nothing
            setattr(kind, name, original)
            del _originals[kind, name]


def _replace(kind: Any, name: str, make: Any) -> None:
    original = getattr(kind, name)
    ours = functools.wraps(original)(make(original))
    _originals[kind, name] = original, ours
    setattr(kind, name, ours)


def _watched_hook(original: Any) -> Any:
    """Triton calls its hook before and after it compiles, set or not, with all that it needs."""
    signature = inspect.signature(original)

    def call_hook(*args: Any, **kwargs: Any) -> Any:
        if _watches and not _tuning.depth:
            given = signature.bind(*args, **kwargs).arguments
            jit, device = given["self"], given["device"]
            if given["key"] not in jit.device_caches[device][0]:  # else it is the hook after
                _report(jit, "compilation", _variant_changes(jit, device, given))
        return original(*args, **kwargs)

    return call_hook


def _variant_changes(
    jit: Any, device: int, given: Mapping[str, Any]
) -> list[ArgumentChange] | None:
    new = variants.variant_of(
        jit, given["signature"], given["constants"], given["configs"][0], given["options"]
    )
    return variants.nearest(map(new.changes_from, variants.compiled_variants(jit, device)))


def _watched_bench(original: Any) -> Any:
    """Triton's Autotuner calls this for each config of a key that it does not know."""

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        if not _watches:
            return original(self, *args, config=config, **meta)
        # A run makes nargs anew; kept as it is, it would keep the tensors.
        run = id(self), id(self.nargs), autotune_key(self, args, meta)
        if run == _tuning.seen:
            _tuning.depth += 1
            try:
                return original(self, *args, config=config, **meta)
            finally:
                _tuning.depth -= 1
        with tuning(self, args, meta):
            _tuning.seen = run
            return original(self, *args, config=config, **meta)

    return bench
