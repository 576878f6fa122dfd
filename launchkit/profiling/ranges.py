"""NVTX ranges in the domain ``launchkit``. A leaf: no torch, no triton, no dispatch.

What the two ends of a range do is decided when that changes, not each time they run:
``annotate.__enter__`` and ``annotate.__exit__`` are replaced when a tool listens and while
a recorder has set its callbacks. With neither, they only return.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from launchkit.errors import UsageError
from launchkit.profiling import nvtx_tool
from launchkit.profiling.names import DOMAIN
from launchkit.profiling.nvtx_tool import Domain
from launchkit.when_imported import when_imported

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_P = ParamSpec("_P")
_R = TypeVar("_R")


class annotate:  # noqa: N801 (lower case, as nvtx.annotate and contextlib's managers)
    """Name a range of host work, as a context manager or as a decorator.

    >>> with annotate("ssd", layer=3):
    ...     pass

    A profiler that reads NVTX sees ``name`` in the domain ``launchkit``, ``op`` as its
    category (the name where none is given) and ``layer`` as its int64 payload;
    ``profile_launches`` groups launches by the ranges that are open around them. One object
    may be entered many times, also within itself and from several threads. NVTX keeps what
    it is told for the life of the process: name the kind of work, not its number.

    A range must be left on the thread that entered it, the last one entered first, so do
    not hold one open over an ``await`` or a ``yield``. Where torch.compile traces, a range
    does nothing; Dynamo takes decorated functions and ``with annotate(...)`` written in
    place, but breaks its graph at a range object made outside the traced code.

    Raises ``UsageError`` for a name or op that is not text, for a layer that is not an
    int64, and as the decorator of what is no function, or suspends itself as one.
    """

    __slots__ = ("_attributes", "layer", "name", "op")

    def __init__(self, name: str, layer: int | None = None, *, op: str | None = None) -> None:
        if not (
            (type(name) is str and name)
            and (layer is None or (type(layer) is int and _INT64_MIN <= layer <= _INT64_MAX))
            and (op is None or (type(op) is str and op))
        ):
            _check(name, layer, op)
        self.name = name
        self.layer = layer
        self.op = op
        self._attributes: object | None = None

    def __enter__(self) -> annotate:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Decorate ``function`` with this range.

        Raises:
            UsageError: it is a coroutine or generator function, a class, or not callable.
        """
        _check_function(function, self.name)

        @functools.wraps(function)
        def annotated(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            # Not `with self`: Dynamo takes no context manager from outside the traced code.
            leave = self.__exit__
            self.__enter__()
            try:
                return function(*args, **kwargs)
            finally:
                leave()

        return annotated

    def __repr__(self) -> str:
        return f"annotate({self.name!r}, layer={self.layer!r}, op={self.op!r})"


RangeCallback = Callable[[annotate], object]
_Enter = Callable[[annotate], annotate]
_Exit = Callable[..., None]


def _is_tracing() -> bool:
    """Return whether Dynamo (torch.compile, torch.export) is tracing the calling code."""
    # Dynamo folds this to True; nothing can be tracing before torch was imported.
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_dynamo_compiling()


def set_range_slot(
    callbacks: tuple[RangeCallback, RangeCallback] | None, slot: str = "recorder"
) -> None:
    """Call ``callbacks`` (enter, exit) for each range on its own thread; None ends it.

    Each ``slot`` has callbacks of its own. Exit may also be called for a range that was entered
    before the callbacks were set.
    """
    global _on_enter, _on_exit
    _slots.pop(slot, None)
    if callbacks is not None:
        _slots[slot] = callbacks
    pairs = tuple(_slots.values())
    _on_enter = _each_of([enter for enter, _ in pairs])
    _on_exit = _each_of([leave for _, leave in reversed(pairs)])
    _install((_enter_observed, _exit_observed) if pairs else _plain_ends)


def _each_of(callbacks: list[RangeCallback]) -> RangeCallback:
    if len(callbacks) < 2:
        return callbacks[0] if callbacks else _ignore

    def call_each(entered: annotate) -> None:
        for callback in callbacks:
            callback(entered)

    return call_each


def _check(name: object, layer: object, op: object) -> None:
    if not (isinstance(name, str) and name):
        raise UsageError(f"a range needs a name, not {name!r}. Pass a short text.", name=name)
    if not (layer is None or (isinstance(layer, int) and not isinstance(layer, bool))):
        raise UsageError(f"layer={layer!r} is not an int. Pass int(layer).", layer=layer)
    if layer is not None and not _INT64_MIN <= layer <= _INT64_MAX:
        raise UsageError(f"layer={layer} does not fit int64. Pass the layer's index.", layer=layer)
    if not (op is None or (isinstance(op, str) and op)):
        raise UsageError(f"op={op!r} is not a name. Pass a short text or None.", op=op)


def _check_function(function: object, name: str) -> None:
    if not callable(function) or isinstance(function, type):
        raise UsageError(
            f"{function!r} is not a function. Decorate a function or a method; where that has "
            "@classmethod or @property too, below it.",
            name=name,
        )
    if _suspends(function):
        raise UsageError(
            f"{getattr(function, '__qualname__', function)} suspends itself, and its range "
            "would be left open meanwhile. Use `with annotate(...)` between its suspensions.",
            name=name,
        )


def _suspends(function: Callable[..., object]) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


def _ignore(_: annotate) -> None:
    return None


# The ends of ranges are module functions over module state, not closures: Dynamo inlines them,
# and it cannot look into a closure over bound methods.


def _enter_with_tool(self: annotate) -> annotate:
    if not _is_tracing():
        _push(self._attributes or _attributes_of(self))
    return self


def _exit_with_tool(self: annotate, *exc_info: object) -> None:
    if not _is_tracing():
        _pop()


def _enter_observed(self: annotate) -> annotate:
    if not _is_tracing():
        _on_enter(self)
    return _plain_ends[0](self)


def _exit_observed(self: annotate, *exc_info: object) -> None:
    _plain_ends[1](self)
    if not _is_tracing():
        _on_exit(self)


def _install(ends: tuple[_Enter, _Exit]) -> None:
    for name, end in zip(("__enter__", "__exit__"), ends, strict=True):
        setattr(annotate, name, end)


def _attributes_of(self: annotate) -> object:
    key = (self.name, self.layer, self.op)
    self._attributes = found = _attributes_memo.get(key) or _new_attributes(key)
    return found


def _new_attributes(key: tuple[str, int | None, str | None]) -> object:
    name, layer, op = key
    # nvtx numbers categories and registers strings without a lock of its own.
    with _attributes_lock:
        return _attributes_memo.setdefault(
            key,
            _make_attributes(
                message=_text(name),
                category=_text(op or name),
                payload=None if layer is None else int(layer),
            ),
        )


def _text(name: str) -> str:
    """Return ``name`` as text that a C string can hold."""
    return name.encode("utf-8", "replace").decode().replace("\0", "?")


def _use_domain(domain: Domain | None) -> None:
    """Send ranges to ``domain`` from now on; None is no tool. For this module and its tests."""
    global _plain_ends, _push, _pop, _make_attributes
    _attributes_memo.clear()
    _plain_ends = _absent_ends
    if domain is not None:
        _plain_ends = (_enter_with_tool, _exit_with_tool)
        _push, _pop = domain.push_range, domain.pop_range
        _make_attributes = domain.get_event_attributes
    observed = _on_enter is not _ignore
    _install((_enter_observed, _exit_observed) if observed else _plain_ends)


_absent_ends: tuple[_Enter, _Exit] = (annotate.__enter__, annotate.__exit__)
_plain_ends = _absent_ends
_on_enter: RangeCallback = _ignore
_on_exit: RangeCallback = _ignore
_slots: dict[str, tuple[RangeCallback, RangeCallback]] = {}
_push: Callable[[object], object]
_pop: Callable[[], object]
_make_attributes: Callable[..., object]
_attributes_memo: dict[tuple[str, int | None, str | None], object] = {}
_attributes_lock = threading.Lock()


def _begin() -> None:
    """Find out who listens."""
    _use_domain(nvtx_tool.listening_domain(DOMAIN))
    if nvtx_tool.drops_python_ranges(DOMAIN):
        nvtx_tool.warn_of_dropped_ranges()
        when_imported("torch", lambda: _use_domain(nvtx_tool.torch_domain()))


_begin()
