"""The ways to launch one case, as loops to be timed: plain Triton, caches in front, launchkit.

Every loop is generated with its call spelled out, so that the three call forms cost what they
cost in a user's file: ``positional`` and ``keywords`` (literal keywords) with a tuple grid,
``kwargs`` (a ``**dict``) with a callable grid.
"""

from __future__ import annotations

from typing import Any

import triton
from triton import knobs

import launchkit
from launchkit.benchmarks.launch_cases import LaunchCase
from launchkit.benchmarks.timing import Loop

FORMS = ("positional", "keywords", "kwargs")
VARIANTS = ("triton_jit", "triton_autotuner", "config_cache", "launchkit")


class ConfigCache:
    """A plain cache of chosen configs in front of ``kernel.fn[grid]``, as inference engines use.

    Keyed on the kernel, its autotune-key values and the dtype of every keyword; the launch
    itself stays Triton's. Keywords only.
    """

    def __init__(self) -> None:
        self._configs: dict[Any, Any] = {}

    def launch(self, kernel: Any, grid: Any, **kwargs: Any) -> Any:
        """Launch with the remembered config; the first time through Triton's Autotuner."""
        key = (
            kernel,
            *(kwargs[name] for name in kernel.keys),
            *(getattr(value, "dtype", None) for value in kwargs.values()),
        )
        config = self._configs.get(key)
        if config is None:
            compiled = kernel[grid](**kwargs)
            self._configs[key] = kernel.best_config
            return compiled
        return kernel.fn[grid](**kwargs, **config.all_kwargs())


def build(case: LaunchCase, variant: str, form: str) -> Loop | None:
    """Return a loop that launches ``case`` n times, or None where a variant lacks a call form."""
    kernel: Any = case.jit
    call = "kernel[{grid}]({args})"
    values = dict(case.arguments)
    if variant == "triton_jit":
        values |= case.configs[0].all_kwargs()
    elif variant == "launchkit":
        kernel = _autotuned(case)
        call = "launch_autotuned(kernel, {grid}, {args})"
    elif variant == "config_cache":
        if form == "positional":
            return None
        kernel = _autotuned(case)
        call = "config_cache(kernel, {grid}, {args})"
    else:
        kernel = _autotuned(case)
    names = list(values)
    positional = ", ".join(
        name if name in case.arguments else f"{name}={name}" for name in names
    )
    arguments = {
        "positional": positional,
        "keywords": ", ".join(f"{name}={name}" for name in names),
        "kwargs": "**everything",
    }[form]
    grid = "lambda meta: the_grid" if form == "kwargs" else "the_grid"
    source = (
        f"def loop(n, {', '.join(['kernel', 'the_grid', 'everything', *names])}):\n"
        f"    for _ in range(n):\n        {call.format(grid=grid, args=arguments)}\n"
    )
    namespace: dict[str, Any] = {
        "launch_autotuned": launchkit.launch_autotuned,
        "config_cache": ConfigCache().launch,
    }
    exec(source, namespace)
    inner = namespace["loop"]
    everything = dict(values)
    return lambda n: inner(n, kernel, case.grid, everything, **values)


def _autotuned(case: LaunchCase) -> Any:
    tuner = triton.autotune(configs=list(case.configs), key=list(case.keys))
    return tuner(case.jit)


def quiet() -> None:
    """Make sure that no launch hook of another tool is timed along."""
    for hook in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        if getattr(hook, "calls", hook):
            raise launchkit.errors.UsageError(
                "a Triton launch hook is installed, whose cost would be measured as the launch's. "
                "Run the benchmark without the profiler that installed it."
            )
