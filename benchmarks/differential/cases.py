"""The kernels that ``launchkit bench differential`` launches both ways."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch
import triton
from triton.runtime.jit import KernelInterface

import launchkit
from launchkit import hostonly
from launchkit.benchmarks import noop_kernels
from launchkit.benchmarks.differential import arguments, kernels
from launchkit.benchmarks.differential.draws import DrawnCall, Values, spelled
from launchkit.benchmarks.mode import installed

Launch = Callable[..., Any]
"""Called as ``launch(grid, *args, **kwargs)``."""
Draw = Callable[[Random], DrawnCall]


@dataclass
class Pair:
    """One kernel under launchkit and under Triton, and a source of calls for both."""

    ours: Launch
    theirs: Launch
    draw: Draw
    block: int = 1
    """Calls that launchkit makes before Triton makes the same."""
    during_ours: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """What is in force while launchkit makes a block."""
    before_block: Callable[[], None] = lambda: None
    """Called before a block is drawn."""


def _subscript(kernel: Any) -> Launch:
    return lambda grid, /, *args, **kwargs: kernel[grid](*args, **kwargs)


def _triton(kernel: Any) -> Launch:
    subscript = KernelInterface.__getitem__
    return lambda grid, /, *args, **kwargs: subscript(kernel, grid)(*args, **kwargs)


def _plain(jit: Any, draw: Draw) -> Pair:
    kernel = kernels.fresh(jit)
    return Pair(partial(launchkit.launch, kernel), _triton(kernel), draw)


def _configs(*blocks: int) -> list[Any]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


def _autotuned(launch: Callable[[Any], Launch]) -> Pair:
    jit, configs = kernels.fresh(kernels.blocked), _configs(16, 32)
    ours = launchkit.autotuned(configs=configs, key=["n"])(jit)
    theirs = triton.autotune(configs=configs, key=["n"])(jit)
    return Pair(launch(ours), _triton(theirs), arguments.blocked)


def _function(kernel: Any) -> Launch:
    return partial(launchkit.launch_autotuned, kernel)


def _with_heuristics(jit: Any, outside: bool, autotune: Callable[..., Any]) -> Any:
    heuristic = triton.heuristics({"SIZE": lambda args: 16 if args["n"] % 2 else 32})
    configs = [triton.Config({"MODE": mode}, num_warps=2) for mode in ("shift", "plain")]
    tuned = autotune(configs=configs, key=["n"])
    return heuristic(tuned(jit)) if outside else tuned(heuristic(jit))


def _heuristics(outside: bool) -> Pair:
    jit = kernels.fresh(kernels.scalars)
    ours = _with_heuristics(jit, outside, launchkit.autotuned)
    theirs = _with_heuristics(jit, outside, triton.autotune)
    return Pair(_function(ours), _triton(theirs), arguments.under_heuristics)


_SUPPLIED: tuple[tuple[Values, ...], ...] = (
    ({"MODE": "plain"}, {"MODE": "shift"}),
    ({"MODE": "plain", "alpha": 0.25}, {"MODE": "plain", "alpha": 0.5}),
    ({"MODE": "shift", "alpha": 1, "SIZE": 32},),
    ({"MODE": "shift", "alpha": 0.5}, {"MODE": "shift", "alpha": 0.5, "SIZE": 32}),
    ({"MODE": "shift", "flag": True, "alpha": -0.0}, {"MODE": "plain", "flag": 3, "alpha": 0.5}),
)
"""Lists of configs, by what each supplies; alpha and flag are no constants."""


class _ChangingConfigs:
    """An autotuned kernel whose list of configs is another one every hundred calls."""

    def __init__(self) -> None:
        jit, configs = kernels.fresh(kernels.scalars), [triton.Config({"MODE": "plain"})]
        self.ours = launchkit.autotuned(configs=configs, key=["n"])(jit)
        self.theirs = triton.autotune(configs=configs, key=["n"])(jit)
        self._turn = 0
        self._supplied: set[str] = set()

    def change(self) -> None:
        self._turn += 1
        supplied = _SUPPLIED[self._turn % len(_SUPPLIED)]
        self._supplied = {name for values in supplied for name in values}
        self.ours.configs = self.theirs.configs = [triton.Config(values) for values in supplied]
        self.theirs.cache.clear()  # Triton would go on with what the old list gave

    def draw(self, rng: Random) -> DrawnCall:
        values = {**arguments.scalar_values(rng), "n": rng.choice((1, 16, 7))}
        # What comes behind a supplied parameter cannot be passed by position.
        leading = [name in self._supplied for name in values].index(True)
        given = {name: value for name, value in values.items() if name not in self._supplied}
        return spelled(rng, given, most=leading, told_apart=(self._turn, values["n"]))

    def pair(self) -> Pair:
        return Pair(
            _subscript(self.ours),
            _triton(self.theirs),
            self.draw,
            block=100,
            before_block=self.change,
        )


class _FrozenHandles:
    """Freezes a kernel once per kind of call, and then calls the handle with what varies."""

    def __init__(self) -> None:
        self.kernel = kernels.fresh(kernels.scalars)
        self._handles: dict[Any, Any] = {}

    def launch(self, grid: Any, /, **named: Any) -> Any:
        varying = [name for name in ("a_ptr", "b_ptr", "n", "flag", "alpha")
                   if named[name] is not None]  # fmt: skip
        kinds = tuple(_kind(named[name]) for name in varying)
        fixed = (named["MODE"], named.get("num_warps"))
        key = (grid, hostonly.current_device(), tuple(varying), kinds, fixed)
        if key not in self._handles:
            self._handles[key] = launchkit.freeze(self.kernel, grid, varying=varying, **named)
        return self._handles[key](*(named[name] for name in varying))


def _kind(value: Any) -> Any:
    """Return what a handle is frozen for in one argument: what Triton compiles for."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    return type(value), type(value) is int and (value == 1, value % 16 == 0)


def _frozen() -> Pair:
    handles = _FrozenHandles()
    return Pair(handles.launch, _triton(handles.kernel), arguments.frozen)


def _installed(kernel: Any, draw: Draw) -> Pair:
    launch = _subscript(kernel)
    return Pair(
        launch, launch, draw, block=1000, during_ours=partial(installed, f"{kernels.__name__}.*")
    )


def _installed_autotuned() -> Pair:
    tuned = triton.autotune(configs=_configs(16, 32), key=["n"])(kernels.fresh(kernels.blocked))
    return _installed(tuned, arguments.blocked)


def _installed_heuristics() -> Pair:
    kernel = _with_heuristics(kernels.fresh(kernels.scalars), True, triton.autotune)
    return _installed(kernel, arguments.under_heuristics)


CASES: dict[str, Callable[[], Pair]] = {
    "tensors": lambda: _plain(kernels.tensors, arguments.tensors),
    "integers": lambda: _plain(kernels.integers, arguments.integers),
    "scalars": lambda: _plain(kernels.scalars, arguments.scalars),
    "unspecialized": lambda: _plain(kernels.unspecialized, arguments.unspecialized),
    "typed": lambda: _plain(kernels.typed, arguments.typed),
    "options": lambda: _plain(kernels.reduced, arguments.options),
    "clusters": lambda: _plain(kernels.blocked, arguments.clusters),
    "many": lambda: _plain(noop_kernels.noop_46, arguments.many),
    "constants": lambda: _plain(kernels.constants, arguments.constants),
    "anything": lambda: _plain(kernels.anything, arguments.anything),
    "autotuned": lambda: _autotuned(_function),
    "autotuned_subscript": lambda: _autotuned(_subscript),
    "heuristics_outside": lambda: _heuristics(outside=True),
    "heuristics_inside": lambda: _heuristics(outside=False),
    "changing_configs": lambda: _ChangingConfigs().pair(),
    "frozen": _frozen,
    "installed": lambda: _installed(kernels.fresh(kernels.scalars), arguments.scalars),
    "installed_autotuned": _installed_autotuned,
    "installed_heuristics": _installed_heuristics,
}
"""By name; each makes its kernels anew."""
