"""The ways into a launch: the C extension's if there is one, else Python's. Below launcher.py."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from launchkit.dispatch.native import extension

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

_extension = extension.load()


if TYPE_CHECKING or _extension is None:

    class Entry:
        """Base of a kernel's launcher: what a launch reads of it."""

        kernel: Any
        fast: Callable[..., Any]
        """Called as ``fast(grid, *args, **kwargs)``; may return MISS."""
        direct: Callable[..., Any]
        """The same without a launch slot in front."""
        autotuned: bool

    class Subscript:
        """Gives a kernel its ``kernel[grid](...)``."""

        def __getitem__(self, grid: Any) -> Callable[..., Any]:
            """Return what launches over ``grid`` when it is called."""
            return functools.partial(_launch_adopted, self, grid)

    class Frozen:
        """Base of a frozen handle: launches when called, or calls ``_call``."""

        _through: Callable[..., Any] | None = None
        """What a launch slot put in front, called as ``_through(None, *args, **kwargs)``."""

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Launch with these varying arguments."""
            through = self._through
            return (self._call if through is None else through)(None, *args, **kwargs)

        def _call(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

        def _direct(self, ignored: Any, /, *args: Any, **kwargs: Any) -> Any:
            return self._call(None, *args, **kwargs)

        def _preview(self, *args: Any, **kwargs: Any) -> Any:
            return None

        def _lay_out(self, *args: Any) -> bool:
            return False

        def _set_grid(self, grid: Any) -> bool:
            return False

        def _arm(self, *args: Any) -> bool:
            return False

        def _holds(self) -> bool:
            return False

else:
    Entry, Subscript = _extension.Entry, _extension.Subscript
    Frozen = _extension.Frozen


def _launch_adopted(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    raise AssertionError("configure() was not called")


def configure(
    launch_adopted: Callable[..., Any],
    adopt: Callable[[Any], Any],
    refuse: Callable[[Any], Any],
) -> None:
    """Tell the ways in what they go by.

    ``launch_adopted(kernel, grid, ...)`` launches without asking whether torch.compile is
    tracing; ``adopt(kernel)`` returns a kernel's launcher, making it on the first launch;
    ``refuse(launcher)`` raises for a kernel without configs.
    """
    global _launch_adopted
    _launch_adopted = launch_adopted
    if _extension is not None:
        extension.configure(_extension, adopt, refuse)


class _Begun(threading.local):
    by_install = False
    """Whether the thread's innermost launch through the Python core is one of install()'s."""


_begun = _Begun()


def _begun_by_install() -> bool:
    return _begun.by_install


def _launch_installed(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    before, _begun.by_install = _begun.by_install, True
    try:
        return _launch_adopted(kernel, grid, *args, **kwargs)
    finally:
        _begun.by_install = before


begun_by_install: Callable[[], bool] = (
    _begun_by_install if _extension is None else _extension.begun_by_install
)
"""Tells whether the thread's innermost launch is one of ``install()``'s ``kernel[grid]``."""

launch_installed: Callable[..., Any] = (
    _launch_installed if _extension is None else _extension.launch_installed
)
"""Called as ``launch_installed(kernel, grid, ...)``: launches as ``install()``'s ``kernel[grid]``,
which stays on the current device."""


def installed_subscript(decide: Callable[[Any, Any], Any]) -> Any:
    """Return a ``__getitem__`` for kernels that are not launchkit's; ``decide(kernel, grid)``
    returns what launches.

    With the extension, a kernel whose ``_launchkit_route`` is the one given to ``set_route`` does
    not come to ``decide`` any more: its entry launches.
    """
    return decide if _extension is None else _extension.InstalledSubscript(decide)


def set_route(subscript: Any, route: Any) -> None:
    """Tell an installed subscript which route leads to a kernel's entry; None: none does."""
    if _extension is not None:
        subscript.route = route


def adopted_launch(function: _FunctionT) -> _FunctionT:
    """Decorate ``launch_adopted``: the extension has it, too, and torch.compile never enters it."""
    made: _FunctionT = function if _extension is None else _extension.launch_adopted
    return made


def launch_function(*, autotuned: bool) -> Callable[[_FunctionT], _FunctionT]:
    """Decorate ``launch`` or ``launch_autotuned``: called, it goes straight into the extension.

    torch.compile takes it for a partial of the Python function, which it can trace.
    """

    def decorate(function: _FunctionT) -> _FunctionT:
        if _extension is None:
            return function
        made = _extension.make_launch_function(functools.partial, function, autotuned)
        functools.update_wrapper(made, function)
        direct: _FunctionT = made
        return direct

    return decorate
