"""Launches with ``@triton.heuristics`` above or below the autotuner. Above autotuned_path.py.

A heuristic may read any argument and the config, so its values are computed at each launch; see
heuristic_front.py for those that need not be called.
"""

from __future__ import annotations

from typing import Any

from launchkit.dispatch import launch_notes, placing
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.autotuned_path import AutotunedLauncher, clash
from launchkit.dispatch.heuristic_front import derived_values, heuristic_front
from launchkit.dispatch.launch_path import Launcher, LaunchFn
from launchkit.dispatch.layers import KernelParts
from launchkit.dispatch.native.fronts import MISS
from launchkit.dispatch.native.interface import Core
from launchkit.dispatch.plan import ConfigPin
from launchkit.dispatch.verifying import compare_heuristics


class HeuristicLauncher(AutotunedLauncher):
    """Launches of ``@triton.autotune`` above ``@triton.heuristics``.

    First the config is looked up, then the inner kernel is launched with the heuristics' values.
    """

    counts_fast = False  # the inner kernel's launcher does

    def __init__(self, kernel: Any, parts: KernelParts, inner: Launcher) -> None:
        self._inner = inner
        super().__init__(kernel, parts)

    def _front(self) -> LaunchFn:
        return self._launch

    def _make_core(self, keys: tuple[str, ...], supplied: frozenset[str]) -> Core | None:
        return None  # the inner kernel's launcher has the plans

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        if placing.several_devices() and self._other_device(args, kwargs) is not None:
            return MISS  # what is chosen for the current device is not for that one
        choice = self._known_choice(grid, args, kwargs)
        if choice is None or choice.config.pre_hook is not None:
            return MISS
        return self._launch_with(choice.config, grid, args, kwargs)

    def _launch_with(
        self, config: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        full = {**kwargs, **config.all_kwargs()}
        apply_heuristics(self.parts.inner_heuristics, grid, args, full)
        result = self._inner.direct(grid, *args, **full)
        if result is not MISS:
            return result
        # Noted as what was launched: the config is not the caller's.
        if launch_notes.active is not None:
            launch_notes.active(self, grid, args, kwargs)
        return self._inner.unnoted(grid, args, full)

    def _launch_chosen(
        self, choice: ConfigPin, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        config = choice.config
        interpreted = not isinstance(self.parts.jit, seam.JITFunction)
        if config.pre_hook is not None or interpreted or clash(config, kwargs):
            return super()._launch_chosen(choice, grid, args, kwargs)
        return self._launch_with(config, grid, args, kwargs)

    def warm_chosen(
        self, choice: ConfigPin, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Compile and load the variant of a config, and keep its plan; launch nothing."""
        self._run_pre_hook(choice.config, grid, args, kwargs)
        full = {**kwargs, **choice.config.all_kwargs()}
        apply_heuristics(self.parts.inner_heuristics, grid, args, full)
        self._inner.warm(grid, args, full)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        plan = None if self._choices is None else self._choices.find(args, kwargs)
        if plan is not None:
            full = {**kwargs, **plan.config.all_kwargs()}
            apply_heuristics(self.parts.inner_heuristics, grid, args, full)
            self._inner.verify(grid, args, full)


class OuterHeuristicLauncher(Launcher):
    """Launches of ``@triton.heuristics`` above another kernel, autotuned or plain."""

    noted = False

    def __init__(self, kernel: Any, parts: KernelParts, below: Launcher) -> None:
        super().__init__(kernel, parts)
        self._below = below
        self.autotuned = below.autotuned
        self.chooser = below.chooser
        front = None if seam.interpreting() else heuristic_front(parts, below)
        self.link(front or self._launch)

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        apply_heuristics(self.parts.outer_heuristics, grid, args, kwargs)
        return self._below.whole(grid, *args, **kwargs)

    def forget_plans(self) -> None:
        """Forget what was chosen below, and what rests on it."""
        self._below.forget_plans()

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call every heuristic, and launch what is below, fast or slow."""
        return self._launch(grid, *args, **kwargs)

    def warm(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile and load what a launch would launch, and keep its plan; launch nothing."""
        full = dict(kwargs)
        apply_heuristics(self.parts.outer_heuristics, grid, args, full)
        self._below.warm(grid, args, full)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        full = dict(kwargs)
        apply_heuristics(self.parts.outer_heuristics, grid, args, full)
        compare_heuristics(self.name, derived_values(self.parts, args, kwargs), full)
        self._below.verify(grid, args, full)


def apply_heuristics(layers: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add each heuristic's value to ``kwargs``, from the mapping that Triton would give it."""
    for layer in layers:
        # A mapping of its own for each, as Triton makes; copying one is cheaper than merging it.
        named = {**dict(zip(layer.arg_names, args, strict=False)), "grid": grid, "warmup": False}
        named.update(kwargs)
        for name, heuristic in layer.values.items():
            named[name] = kwargs[name] = heuristic(named.copy())
