"""The ways to launch one case, as loops to be timed: plain Triton, caches in front, launchkit.

Every loop is generated with its call spelled out, so that the call forms cost what they cost in a
user's file: ``positional`` and ``keywords`` (literal keywords) with a tuple grid, ``kwargs`` (a
``**dict``) with a callable grid, ``declared`` the same with a ``launchkit.grid``; ``frozen`` is a
handle of ``launchkit.freeze`` that takes the tensors, and only launchkit's.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

import launchkit
from launchkit.benchmarks.launch.cases import LaunchCase
from launchkit.benchmarks.timing import Loop

FORMS = ("positional", "keywords", "kwargs", "declared", "frozen")
RECORDED = "launchkit_recorded"
"""launchkit's launches while ``profile_launches`` records them."""

VARIANTS = ("triton_jit", "triton_autotuner", "config_cache", "launchkit", RECORDED)


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


_CALLS = {
    "triton_jit": "kernel[{grid}]({args})",
    "triton_autotuner": "kernel[{grid}]({args})",
    "config_cache": "config_cache(kernel, {grid}, {args})",
    "launchkit": "launch_autotuned(kernel, {grid}, {args})",
    RECORDED: "launch_autotuned(kernel, {grid}, {args})",
}
_GRIDS = {"kwargs": "lambda meta: the_grid", "declared": "declared"}


def has_form(variant: str, form: str) -> bool:
    """Tell whether a variant can be called in a form."""
    if form == "frozen":
        return variant in ("launchkit", RECORDED)
    return (variant, form) != ("config_cache", "positional")


def build(case: LaunchCase, variant: str, form: str) -> Loop | None:
    """Return a loop that launches ``case`` n times, or None where a variant lacks a call form."""
    if not has_form(variant, form):
        return None
    values = dict(case.arguments)
    kernel: Any = case.jit
    if variant == "triton_jit":
        values |= case.configs[0].all_kwargs()
    else:
        kernel = triton.autotune(configs=list(case.configs), key=list(case.keys))(case.jit)
    if form == "frozen":
        return _frozen_loop(case, kernel)
    call = _CALLS[variant].format(
        grid=_GRIDS.get(form, "the_grid"), args=_argument_text(case, values, form)
    )
    parameters = ", ".join(["n", "kernel", "the_grid", "everything", *values])
    source = f"def loop({parameters}):\n    for _ in range(n):\n        {call}\n"
    namespace: dict[str, Any] = {
        "launch_autotuned": launchkit.launch_autotuned,
        "config_cache": ConfigCache().launch,
        "declared": case.declared,
    }
    exec(source, namespace)
    inner = namespace["loop"]
    return lambda n: inner(n, kernel, case.grid, dict(values), **values)


def _frozen_loop(case: LaunchCase, kernel: Any) -> Loop:
    tensors = {name: v for name, v in case.arguments.items() if isinstance(v, torch.Tensor)}
    handle = launchkit.freeze(kernel, case.grid, **case.arguments, varying=tensors)
    parameters = ", ".join(["n", "handle", *tensors])
    call = f"handle({', '.join(tensors)})"
    namespace: dict[str, Any] = {}
    exec(f"def loop({parameters}):\n    for _ in range(n):\n        {call}\n", namespace)
    inner = namespace["loop"]
    return lambda n: inner(n, handle, **tensors)


def _argument_text(case: LaunchCase, values: dict[str, Any], form: str) -> str:
    if form in ("kwargs", "declared"):
        return "**everything"
    # A config's own options can only be keywords.
    by_position = case.arguments if form == "positional" else {}
    return ", ".join(name if name in by_position else f"{name}={name}" for name in values)
