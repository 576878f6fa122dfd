"""``launchkit bench libraries``: operators of other libraries with and without install()."""

from __future__ import annotations

import contextlib
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

import launchkit
from launchkit import clock, hostonly
from launchkit.benchmarks import machine
from launchkit.benchmarks.library_ops import (
    OPERATORS,
    LibraryOperator,
    PreparedOperator,
    equal,
    pin_configs,
    pretended_gpu,
)
from launchkit.errors import UsageError

_KERNEL_CLASSES = (JITFunction, Autotuner, Heuristics)


def measure(
    operators: Sequence[str] = tuple(OPERATORS),
    rounds: int = 7,
    calls: int = 50,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Measure the named operators, forward and backward, and return the result as JSON values.

    Every autotuned kernel keeps its first config alone. Per operator: host microseconds of a
    call, the part of them that is spent in launches, and on a GPU whether outputs and gradients
    have the same bits with install() as without.

    Args:
        operators: names in ``library_ops.OPERATORS``.
        rounds: how often each row is timed, with and without install() in turn.
        calls: calls per round; the GPU is waited for after each.
        advance: called once an operator, for progress.

    Raises:
        UsageError: an unknown operator, or a library is not installed.
    """
    unknown = [name for name in operators if name not in OPERATORS]
    if unknown:
        raise UsageError(
            f"no operator named {', '.join(unknown)}. There are: {', '.join(OPERATORS)}."
        )
    if rounds < 1 or calls < 1:
        raise UsageError("rounds and calls must be at least 1. Give larger ones.")
    cuda = torch.cuda.is_available() and not hostonly.is_active()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # the libraries', and of no use here
        stack.enter_context(launchkit.use_store("memory:"))
        if not cuda:
            stack.enter_context(hostonly.activate())
            stack.enter_context(hostonly.recording(False))
            stack.enter_context(pretended_gpu())
        rows = []
        for name in operators:
            rows.append(_row(OPERATORS[name], cuda, rounds, calls))
            advance()
        return {
            "mode": "cuda" if cuda else hostonly.LABEL,
            "machine": machine.facts(),
            "libraries": _versions({OPERATORS[name].library for name in operators}),
            "method": {"rounds": rounds, "calls_per_round": calls, "statistic": "median"},
            "rows": rows,
        }


def _versions(libraries: set[str]) -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in sorted(libraries)}


def _prepare(operator: LibraryOperator, device: str) -> PreparedOperator:
    try:
        prepared = operator.prepare(device)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{operator.name} needs {error.name}. Install {operator.library}."
        ) from error
    pin_configs()
    return prepared


def _row(operator: LibraryOperator, cuda: bool, rounds: int, calls: int) -> dict[str, Any]:
    device = "cuda" if cuda else "cpu"
    prepared = _prepare(operator, device)
    before, after = _Timing(), _Timing()
    for _ in range(rounds):
        before.add(prepared, calls)
        with _installed():
            after.add(prepared, calls)
    row = {
        "operator": operator.name,
        "library": operator.library,
        "launches": before.launches,
        "host_us_before": before.host_us,
        "host_us_after": after.host_us,
        "launch_us_before": before.launch_us,
        "launch_us_after": after.launch_us,
        "launch_ratio": round(after.launch_us / before.launch_us, 4),
    }
    return {**row, **_checked(operator, device)} if cuda else row


def _checked(operator: LibraryOperator, device: str) -> dict[str, bool]:
    plain, again = operator.prepare(device)(), operator.prepare(device)()
    with _installed():
        operator.prepare(device)()
        fast = operator.prepare(device)()
    return {"equal": equal(plain, fast), "deterministic": equal(plain, again)}


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    launchkit.install()
    try:
        yield
    finally:
        launchkit.uninstall()


class _Timing:
    """Times of one operator in one state, a value per round in microseconds."""

    def __init__(self) -> None:
        self._host_us: list[float] = []
        self._launch_us: list[float] = []
        self.launches = 0
        """Launches of one call."""

    @property
    def host_us(self) -> float:
        return round(median(self._host_us), 2)

    @property
    def launch_us(self) -> float:
        return round(median(self._launch_us), 2)

    def add(self, prepared: PreparedOperator, calls: int) -> None:
        for _ in range(3):
            prepared()
        _drain()
        self._host_us.append(_time_calls(prepared, calls) / 1e3)
        with _LaunchTimer() as timer:
            _time_calls(prepared, calls)
        self._launch_us.append(timer.spent_ns / calls / 1e3)
        self.launches = timer.launches // calls


def _time_calls(prepared: PreparedOperator, calls: int) -> float:
    """Return the host nanoseconds of a call, the GPU idle before each."""
    spent_ns = 0
    for _ in range(calls):
        start_ns = clock.now_ns()
        prepared()
        spent_ns += clock.now_ns() - start_ns
        _drain()
    return spent_ns / calls


def _drain() -> None:
    if not hostonly.is_active():
        torch.cuda.synchronize()


class _LaunchTimer:
    """Times every ``kernel[grid](...)`` from outside, whoever launches beneath it.

    Its own share, a call more with all arguments, is in the time of both states alike.
    """

    def __init__(self) -> None:
        self.spent_ns = 0
        self.launches = 0
        self._undo = ExitStack()

    def __enter__(self) -> _LaunchTimer:
        for kind in _KERNEL_CLASSES:
            own = vars(kind).get("__getitem__")
            kind.__getitem__ = self._timed(kind.__getitem__)
            self._undo.callback(_put_back, kind, own)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _timed(self, subscript: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        now_ns = clock.now_ns

        def getitem(kernel: Any, grid: Any) -> Callable[..., Any]:
            def launch(*args: Any, **kwargs: Any) -> Any:
                start_ns = now_ns()
                result = subscript(kernel, grid)(*args, **kwargs)
                self.spent_ns += now_ns() - start_ns
                self.launches += 1
                return result

            return launch

        return getitem


def _put_back(kind: Any, own: Any) -> None:
    if own is None:
        del kind.__getitem__
    else:
        kind.__getitem__ = own
