"""Times of an operator of another library: in all, in its launches, and in Triton's ``run``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from launchkit import clock, hostonly
from launchkit.benchmarks.libraries.ops import PreparedOperator

_KERNEL_CLASSES = (JITFunction, Autotuner, Heuristics)


class OperatorTimes:
    """Times of one operator in one state, a value per round in microseconds."""

    def __init__(self) -> None:
        self._host_us: list[float] = []
        self._launch_us: list[float] = []
        self._run_us: list[float] = []
        self.launches = 0
        """Launches of one call."""

    @property
    def host_us(self) -> float:
        """Of a call, median."""
        return round(median(self._host_us), 2)

    @property
    def launch_us(self) -> float:
        """The part of a call that is spent in ``kernel[grid](...)``, median."""
        return round(median(self._launch_us), 2)

    @property
    def run_us(self) -> float:
        """The part of a call that is spent in a ``run`` of Triton's, median."""
        return round(median(self._run_us), 2)

    def add(self, prepared: PreparedOperator, calls: int) -> None:
        """Time a round: calls as they are, then calls with their launches timed."""
        for _ in range(3):
            prepared()
        drain()
        self._host_us.append(_time_calls(prepared, calls) / 1e3)
        with LaunchTimer() as timer:
            _time_calls(prepared, calls)
        self._launch_us.append(timer.spent_ns / calls / 1e3)
        self.launches = timer.launches // calls

    def add_run(self, prepared: PreparedOperator, calls: int, timer: RunTimer) -> None:
        """Time a round of calls while Triton's ``run`` functions are timed by ``timer``."""
        for _ in range(3):
            prepared()
        drain()
        timer.spent_ns = 0
        _time_calls(prepared, calls)
        self._run_us.append(timer.spent_ns / calls / 1e3)


def _time_calls(prepared: PreparedOperator, calls: int) -> float:
    """Return the host nanoseconds of a call, the GPU idle before each."""
    spent_ns = 0
    for _ in range(calls):
        start_ns = clock.now_ns()
        prepared()
        spent_ns += clock.now_ns() - start_ns
        drain()
    return spent_ns / calls


def drain() -> None:
    """Wait for the GPU, if there is one."""
    if not hostonly.is_active():
        torch.cuda.synchronize()


class _Replacing:
    """Puts functions into Triton's kernel classes, and what was there back at the end."""

    name: str

    def __init__(self) -> None:
        self.spent_ns = 0
        self._undo = ExitStack()

    def __enter__(self) -> Any:
        for kind in _KERNEL_CLASSES:
            own = vars(kind).get(self.name)
            setattr(kind, self.name, self.timed(getattr(kind, self.name)))
            self._undo.callback(_put_back, kind, self.name, own)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what stands for ``function`` meanwhile."""
        raise NotImplementedError


def _put_back(kind: Any, name: str, own: Any) -> None:
    if own is None:
        delattr(kind, name)
    else:
        setattr(kind, name, own)


class LaunchTimer(_Replacing):
    """Times every ``kernel[grid](...)`` from outside, whoever launches beneath it.

    Its own share, a call more with all arguments, is in the time of both states alike.
    """

    name = "__getitem__"

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a subscript whose launches are timed."""
        now_ns = clock.now_ns

        def getitem(kernel: Any, grid: Any) -> Callable[..., Any]:
            def launch(*args: Any, **kwargs: Any) -> Any:
                start_ns = now_ns()
                result = function(kernel, grid)(*args, **kwargs)
                self.spent_ns += now_ns() - start_ns
                self.launches += 1
                return result

            return launch

        return getitem


class RunTimer(_Replacing):
    """Times Triton's own ``run`` functions, the outermost of each launch.

    To be entered before ``install()``, which then takes the timed ones for Triton's.
    """

    name = "run"

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a ``run`` that is timed where no other one is around it."""
        now_ns = clock.now_ns

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            start_ns = now_ns()
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.spent_ns += now_ns() - start_ns

        return run
