"""What a frozen handle fixes: config, arguments, compiled kernel. Below frozen.py.

Found as a launch would find it, without launching: heuristics, config, heuristics, then Triton
compiles. Where a launch has to go through Triton each time the reason says why.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import Parameter
from typing import Any

from launchkit.dispatch import launch_counts, launch_notes
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.heuristic_path import apply_heuristics
from launchkit.dispatch.launch_path import TritonLauncher
from launchkit.dispatch.launcher import adopt
from launchkit.dispatch.layers import KernelParts, take_apart
from launchkit.dispatch.native.fronts import compile_function
from launchkit.dispatch.native.guard import TAKEN_BY_TRITON, TENSORS
from launchkit.dispatch.native.launcher_text import launch_text
from launchkit.dispatch.plan import LaunchPlan
from launchkit.errors import UsageError


class FrozenPlan:
    """One launch with everything fixed: config, arguments, options and compiled kernel."""

    def __init__(
        self,
        parts: KernelParts,
        config: Any,
        values: dict[str, Any],
        options: dict[str, Any],
        compiled: Any,
    ) -> None:
        self.jit = parts.jit
        self.config = config
        self.values = values
        """Every parameter's value, in the order of the signature."""
        self.pinned = {name: _pinned(value) for name, value in values.items()}
        """The same for launches: of tensors the memory that they had, whatever they get later."""
        self._addresses = {
            name: value.data_ptr() for name, value in values.items() if type(value) in TENSORS
        }
        self.options = options
        self.compiled = compiled
        self.driver = seam.active_driver()
        self.device = seam.current_device()
        place = seam.cache_place(self.jit, self.device, compiled)
        self.launch: LaunchPlan | None = None
        if place is not None:
            used = seam.used_globals(self.jit)
            self.launch = LaunchPlan(compiled, place, used, None, {})
            self._call = _caller(len(values), self.launch.direct)
        layers = (*parts.outer_heuristics, *parts.inner_heuristics)
        self.heuristics = tuple(item for layer in layers for item in layer.values.items())

    def obstacle(self) -> str | None:
        """Return why the next launch has to be Triton's, or None."""
        if seam.active_driver() is not self.driver:
            return "another driver is active than when it was frozen"
        if self.launch is None:
            return "Triton's cache does not hold the compiled kernel"
        if self.launch.globals_changed():
            return "a global that the kernel reads has changed"
        return seam.launch_obstacle(self.jit)

    def heuristics_hold(self, values: Mapping[str, Any]) -> bool:
        """Tell whether the heuristics of the kernel give for these arguments what was frozen."""
        return self.changed_heuristic(values) is None

    def changed_heuristic(self, values: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Return the name and value of a heuristic that gives another value than was frozen."""
        mapping = {**values, **self.options}
        for name, heuristic in self.heuristics:
            found, frozen = heuristic(dict(mapping)), self.values.get(name, self.options.get(name))
            if type(found) is not type(frozen) or found != frozen:
                return name, found
        return None

    def moved(self, given: Mapping[str, Any]) -> str | None:
        """Return the name of a tensor, not among those given, that has other memory than then."""
        for name, address in self._addresses.items():
            if name not in given and self.values[name].data_ptr() != address:
                return name
        return None

    def run(self, grid: Any, values: Mapping[str, Any]) -> Any:
        """Launch through Triton's run, which compiles, checks and calls hooks as it will."""
        run = getattr(self.jit.run, "launchkit_original", None)
        run = self.jit.run if run is None else functools.partial(run, self.jit)
        return run(grid=grid, warmup=False, **values, **self.options)

    def call(self, grid: Any, stream: int, values: Mapping[str, Any]) -> None:
        """Launch the compiled kernel with Triton's own launcher."""
        arguments = tuple(values.values())
        plan = self.launch
        if plan is None or not plan.direct or seam.launch_obstacle(self.jit) is not None:
            seam.finish_launch(self.compiled, grid, stream, arguments)
            return
        size = len(grid)
        x, y, z = grid[0], grid[1] if size > 1 else 1, grid[2] if size > 2 else 1
        self._call(plan, x, y, z, stream, *arguments)


@functools.lru_cache(maxsize=256)
def _caller(count: int, direct: bool) -> Callable[..., Any]:
    """Return a function that calls a plan's launcher with ``count`` arguments."""
    arguments = [f"a{i}" for i in range(count)]
    text = launch_text(arguments)[0 if direct else 1]
    head = f"def call({', '.join(['__plan', '__x', '__y', '__z', '__stream', *arguments])}):"
    return compile_function([head, "    __call = __plan.call", f"    {text}"], {}, "call")


def named_params(
    compiled: Any,
    named: Iterable[tuple[str, str]],
    values: Mapping[str, Any],
    places: Mapping[str, int],
) -> Iterator[tuple[str, str, Any, int]]:
    """Yield (name, type, value, place among the varying or -1) of each parameter of a compiled kernel.

    ``named``: the parameters' names and types in Triton's signature, where a tensor descriptor
    stands for several: a tensor map, or the tensor, its shape, strides and flags; then 32-bit
    shape and 64-bit strides.
    """
    metadata = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    for name, kind in named:
        if not kind.startswith("tensordesc"):
            yield name, kind, values[name], places.get(name, -1)
            continue
        expanded = seam.expand_descriptor(values[name], next(metadata, None))
        dimensions = len(values[name].shape)
        head = len(expanded) - 2 * dimensions
        for place, value in enumerate(expanded):
            yield name, _descriptor_type(value, place - head, dimensions), value, -1


def _descriptor_type(value: Any, after_head: int, dimensions: int) -> str:
    if after_head >= 0:
        return "i32" if after_head < dimensions else "i64"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i64"
    return "*" if hasattr(value, "data_ptr") else "nvTmaDesc"


def freeze_plan(
    kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> FrozenPlan | str:
    """Return the plan of a launch with these arguments, or why its launches stay Triton's.

    A config that is not known yet is tuned. Raises what such a launch would raise.
    """
    launcher = adopt(kernel)
    if isinstance(launcher, TritonLauncher):
        return launcher.reason
    if seam.interpreting():
        return launch_counts.INTERPRETED
    parts = take_apart(kernel)
    given = dict(kwargs)
    apply_heuristics(parts.outer_heuristics, grid, args, given)
    if launch_notes.active is not None:
        launch_notes.active(adopt(parts.autotuner or parts.jit), grid, args, dict(given))
    config = None
    if parts.autotuner is not None:
        config = _config(parts.autotuner, grid, args, given)
        if config is None:
            return launch_counts.NO_CONFIG
        if config.pre_hook is not None:
            return launch_counts.PRE_HOOK
        given |= config.all_kwargs()
    apply_heuristics(parts.inner_heuristics, grid, args, given)
    bound = _bind(parts.jit, args, given)
    if bound is None:
        return launch_counts.SIGNATURE
    compiled = seam.compiled_variant(parts.jit, (), {**bound[0], **bound[1]})
    if type(compiled) is not seam.CompiledKernel:
        return launch_counts.NOT_COMPILED
    if compiled.metadata.target.backend != "cuda":
        return f"backend {compiled.metadata.target.backend}"
    return FrozenPlan(parts, config, *bound, compiled)


def _config(autotuner: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    supplied = {name for config in autotuner.configs for name in config.all_kwargs()}
    clashing = sorted(supplied & kwargs.keys())
    if clashing:
        raise UsageError(
            f"{', '.join(clashing)} comes from the kernel's configs. Leave it out.",
            names=clashing,
        )
    launcher = adopt(autotuner)
    if not isinstance(launcher, AutotunedLauncher):
        return None
    choice = launcher.choice(grid, args, kwargs)
    return None if choice is None else choice.config


def _bind(
    jit: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return every parameter's value and the options; None for signatures that stay Triton's."""
    parameters = jit.signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    odd = kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.POSITIONAL_ONLY}
    if odd or TAKEN_BY_TRITON & parameters.keys():
        return None
    if Parameter.KEYWORD_ONLY in kinds and not seam.BINDS_KEYWORD_ONLY:
        return None
    named = {name: value for name, value in kwargs.items() if name in parameters}
    options = {name: value for name, value in kwargs.items() if name not in parameters}
    bound = jit.signature.bind(*args, **named)
    bound.apply_defaults()
    return {name: _snapshot(bound.arguments[name]) for name in parameters}, options


def _pinned(value: Any) -> Any:
    """Return a tensor of the memory that a tensor has now, which it keeps from being freed."""
    if type(value) in TENSORS:
        return value.detach()
    if _is_descriptor(value):
        kept = copy.copy(value)
        kept.base = _pinned(value.base)
        return kept
    return value


def _is_descriptor(value: Any) -> bool:
    return hasattr(value, "base") and hasattr(value, "block_shape")


def _snapshot(value: Any) -> Any:
    """Return a tensor descriptor of its own for one that its owner may change."""
    if not _is_descriptor(value):
        return value
    kept = copy.copy(value)
    for name, field in vars(value).items():
        if isinstance(field, list):
            setattr(kept, name, list(field))
    return kept
