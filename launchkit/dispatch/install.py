"""``install`` and ``uninstall``: every Triton kernel of the process launches through us. Above launcher.py.

What changes is ``__getitem__`` and ``run`` of Triton's three kernel classes, and nothing else of
Triton's; a kernel object gets attributes when it is first launched, and loses them again.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from launchkit import settings
from launchkit.dispatch import launch_counts
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.launcher import adopt
from launchkit.dispatch.layers import kernel_name, layers_of, take_apart, triton_run
from launchkit.dispatch.native import entries
from launchkit.errors import UsageError

logger = logging.getLogger("launchkit")

LaunchFn = Callable[..., Any]
"""Called as ``fn(kernel, grid, *args, **kwargs)``."""

_CLASSES = (seam.JITFunction, seam.Autotuner, seam.Heuristics)


@dataclass(frozen=True)
class _Route:
    """How ``kernel[grid]`` launches under one installation."""

    installation: _Installation
    launch: LaunchFn

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied kernel gets a route of its own.
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None


class _Installation:
    """One pair of pattern lists in force; ``active`` ends with it."""

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self.include = include
        self.exclude = exclude
        self.active = True
        self.adopted = _Route(self, entries.launch_installed)
        self._replaced = _replaced_runs()
        # By id: the hash of a kernel is that of its source, which it takes milliseconds to read.
        self._touched: dict[tuple[int, str], weakref.ref[Any]] = {}

    def covers(self, name: str) -> bool:
        """Tell whether a kernel of this module-qualified name launches through launchkit."""
        included = any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def route_of(self, kernel: Any) -> LaunchFn:
        """Decide how a kernel launches, and remember it on the kernel."""
        with _lock:
            if not self.active:
                return _launch_with_triton
            launch, lasting = self._decide(kernel)
            if lasting:
                route = self.adopted if launch is entries.launch_installed else _Route(self, launch)
                self._attach(kernel, "_launchkit_route", route)
            return launch

    def _decide(self, kernel: Any) -> tuple[LaunchFn, bool]:
        reason = self._why_triton(kernel)
        if reason is not None:
            return functools.partial(_launch_left_out, reason), True
        bare = [layer for layer in layers_of(kernel) if "_launchkit_entry" not in vars(layer)]
        try:
            adopt(kernel)
        except UsageError:  # no GPU driver yet: Triton says what is wrong
            return _launch_with_triton, False
        for layer in bare:
            if "_launchkit_entry" in vars(layer):
                self._note(layer, "_launchkit_entry")
        return entries.launch_installed, True

    def _why_triton(self, kernel: Any) -> str | None:
        if not self.covers(kernel_name(kernel)):
            return launch_counts.EXCLUDED
        try:
            take_apart(kernel)
        except UsageError as error:
            return str(error)
        return self._replaced

    def _attach(self, kernel: Any, name: str, value: Any) -> None:
        setattr(kernel, name, value)
        self._note(kernel, name)

    def _note(self, kernel: Any, name: str) -> None:
        place = (id(kernel), name)
        self._touched[place] = weakref.ref(kernel, lambda _: self._touched.pop(place, None))

    def leave(self) -> None:
        """Take from every kernel what was put on it."""
        self.active = False
        for (_, name), reference in self._touched.copy().items():
            kernel = reference()
            if kernel is not None:
                vars(kernel).pop(name, None)
        self._touched.clear()


_lock = threading.RLock()
_current: _Installation | None = None
# What stood in Triton's classes where functions of ours are now.
_originals: dict[tuple[type, str], Any] = {}


def install(*, include: str | Sequence[str] = "*", exclude: str | Sequence[str] = ()) -> None:
    """Let every Triton kernel of the process launch through launchkit.

    Covers plain, autotuned and heuristics kernels, imported before or after, launched as
    ``kernel[grid](...)`` or ``kernel.run(...)``. What launchkit does not shorten goes through
    Triton, as without ``install``; ``stats()`` says what and why. Autotuned kernels take their
    configs from the config store and tune into it; what Triton tuned in this process before
    is kept. Under torch.compile nothing changes: Dynamo traces the kernels as before, and the
    launches that Inductor generates are its own.

    Calling it again with the same patterns does nothing, with others they take the place of
    the first. Threads may launch meanwhile. With LAUNCHKIT_DISABLE=1 it does nothing.

    Args:
        include: one shell-style pattern or several, over ``module.qualname`` of the kernels'
            functions: ``"fla.*"``. Case matters.
        exclude: kernels to leave to Triton although ``include`` has them.

    Raises:
        UsageError: a pattern is no text, or ``include`` is empty.
    """
    global _current
    wanted = _patterns("include", include), _patterns("exclude", exclude)
    if not wanted[0]:
        raise UsageError("include is empty, so nothing would be installed. Leave it out, or give "
                         "patterns such as 'fla.*'.", include=())  # fmt: skip
    if settings.current().disable:
        logger.warning("LAUNCHKIT_DISABLE is set: launchkit.install() does nothing.")
        return
    with _lock:
        if _current is not None:
            if (_current.include, _current.exclude) == wanted:
                return
            _current.leave()
        _current = _Installation(*wanted)
        entries.set_route(_subscript, _current.adopted)
        for kind in _CLASSES:
            _replace(kind, "__getitem__", _subscript)
            _replace(kind, "run", _make_run(kind))


def uninstall() -> None:
    """Take ``install`` back: Triton's classes and every kernel object are as before.

    A ``kernel[grid]`` that was taken before and kept still launches through launchkit. Without
    ``install`` before, does nothing.
    """
    global _current
    with _lock:
        if _current is None:
            return
        for (kind, name), before in list(_originals.items()):
            _restore(kind, name, before)
        entries.set_route(_subscript, None)
        _current.leave()
        _current = None


def install_in_vllm() -> None:
    """Install in a vLLM process: the entry point of vLLM's group of general plugins.

    vLLM calls it in each of its processes. LAUNCHKIT_INSTALL=0 and VLLM_PLUGINS keep it out.
    """
    wanted = settings.current()
    if wanted.install is not False and not wanted.disable:
        install_as_set()


def install_as_set() -> None:
    """Install with the patterns that LAUNCHKIT_INSTALL_INCLUDE and _EXCLUDE give."""
    wanted = settings.current()
    install(include=wanted.install_include, exclude=wanted.install_exclude)
    logger.info("Triton kernels of this process launch through launchkit.")


def _patterns(option: str, given: str | Sequence[str]) -> tuple[str, ...]:
    patterns: tuple[Any, ...] = (given,) if isinstance(given, str) else _listed(given)
    wrong = [pattern for pattern in patterns if type(pattern) is not str or not pattern]
    if wrong:
        raise UsageError(
            f"{option} holds {wrong[0]!r}. Give patterns over module.qualname, such as 'fla.*'.",
            option=option,
        )
    return patterns


def _listed(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, Iterable) else (given,)


# -- what stands in Triton's classes

_ABSENT = object()


def _replace(kind: type, name: str, function: Any) -> None:
    now = vars(kind).get(name, _ABSENT)
    # Ours is still there: the patterns change, or somebody's function, which calls ours, stood in
    # the way of uninstall(). It is gone where somebody has put back Triton's own since.
    back = getattr(now, "__module__", None) == kind.__module__
    if now is _originals.get((kind, name), now) or (back and not _is_ours(now)):
        _originals[kind, name] = now
        setattr(kind, name, function)


def _is_ours(function: Any) -> bool:
    return function is _subscript or hasattr(function, "launchkit_original")


def _restore(kind: type, name: str, before: Any) -> None:
    now = vars(kind).get(name)
    if not _is_ours(now):
        # Theirs calls ours, which now lets everything through to Triton.
        logger.warning(
            "%s.%s was replaced after launchkit.install() by %r, which stays. Take it away before "
            "launchkit.uninstall() to have Triton's own back.", kind.__name__, name, now,
        )  # fmt: skip
        return
    del _originals[kind, name]
    if before is _ABSENT:
        delattr(kind, name)
    else:
        setattr(kind, name, before)


def _getitem(kernel: Any, grid: Any) -> LaunchFn:
    """Return the launch of ``kernel`` over ``grid``."""
    route = getattr(kernel, "_launchkit_route", None)
    if route is not None and route.installation is _current:
        return functools.partial(route.launch, kernel, grid)
    installation = _current
    launch = _launch_with_triton if installation is None else installation.route_of(kernel)
    return functools.partial(launch, kernel, grid)


_subscript = entries.installed_subscript(_getitem)


def _make_run(kind: type) -> LaunchFn:
    original: LaunchFn = kind.run  # type: ignore[attr-defined]

    @functools.wraps(original)
    def run(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
        # A subclass whose own run calls this one has made its choice: the rest is Triton's.
        ours = type(kernel).run is run and _current is not None
        if not ours or kwargs.get("warmup", True) or "grid" not in kwargs:
            return original(kernel, *args, **kwargs)
        grid = kwargs.pop("grid")
        del kwargs["warmup"]
        return _subscript(kernel, grid)(*args, **kwargs)

    run.launchkit_original = original  # type: ignore[attr-defined]
    return run


def _launch_with_triton(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    return triton_run(kernel)(*args, grid=grid, warmup=False, **kwargs)


def _launch_left_out(reason: str, kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    run = getattr(type(kernel).run, "launchkit_original", type(kernel).run)
    result = run(kernel, *args, grid=grid, warmup=False, **kwargs)
    if isinstance(kernel, seam.JITFunction):  # where the other layers' runs come to
        launch_counts.through_triton(kernel_name(kernel), reason)
    return result


def _replaced_runs() -> str | None:
    """Return who else has replaced a launch function of Triton's, or None."""
    for kind in _CLASSES:
        run = kind.run
        if run.__module__ != kind.__module__:
            return f"{kind.__name__}.run was replaced by {run.__module__}.{run.__qualname__}"
    return None
