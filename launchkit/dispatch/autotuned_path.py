"""Launches of autotuned kernels: a config is chosen, then Triton launches. Above launch_path.py.

What is chosen is remembered by a second core, so that a launch that can have no plan (a config with
a pre_hook, say) still costs no more than Triton's own Autotuner.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from launchkit.dispatch import launch_counts, permissions
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.keeping import keep_plan, make_core, renew
from launchkit.dispatch.launch_path import Launcher, LaunchFn, always_miss, loaded
from launchkit.dispatch.layers import (
    KernelParts,
    declared_name,
    is_plain_config,
    named_arguments,
    supplied_names,
    triton_run,
)
from launchkit.dispatch.native.fronts import MISS
from launchkit.dispatch.native.interface import Core
from launchkit.dispatch.plan import ConfigPin
from launchkit.dispatch.verifying import verify_launch
from launchkit.errors import UnfingerprintableError, UsageError
from launchkit.store import Explanation


class AutotunedLauncher(Launcher):
    """Launches of an autotuned kernel whose plan is implied by the arguments alone."""

    counts_fast = True
    premises: tuple[tuple[str, Any, dict[str, Any]], ...] = ()
    """More (name, value, namespace) that a plan rests on, as the globals that a kernel reads."""

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__(kernel, parts)
        self.autotuned = True
        self._tuner: Any = parts.autotuner
        self.chooser = self._chooser = ConfigChooser(self._tuner, parts.jit, declared_name(kernel))
        self._core: Core | None = None
        self._choices: Core | None = None
        self._supplied: frozenset[str] = frozenset()
        self._fitted: tuple[Any, ...] = ()
        self._fit_cores()

    def _fit_cores(self) -> None:
        """Make the cores for the keys and for what the config list supplies today."""
        configs, keys = self._tuner.configs, tuple(self._tuner.keys)
        supplied = frozenset(name for config in configs for name in config.kwargs)
        plain = all(is_plain_config(config) for config in configs)
        if (supplied, keys, plain) == self._fitted:
            return
        self._supplied = supplied
        make = functools.partial(make_core, self.parts.jit, keys, autotuner=self._tuner)
        # A config of a class of its own may say anything anew at each launch.
        self._choices = make(supplied_names(self.parts), choose_only=True) if plain else None
        self._core = self._make_core(keys, supplied) if plain else None
        self._fitted = (supplied, keys, plain)
        self.link(self._front())

    def _make_core(self, keys: tuple[str, ...], supplied: frozenset[str]) -> Core | None:
        def relink(launch: LaunchFn) -> None:
            # A core that was replaced meanwhile must not come back.
            if core is self._core:
                self.link(launch)

        core = make_core(self.parts.jit, keys, supplied, self._tuner, relink=relink)
        return core

    def _front(self) -> LaunchFn:
        return always_miss if self._core is None else self._core.launch

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        choice = self._known_choice(grid, args, kwargs)
        if choice is not None:
            return self._launch_chosen(choice, grid, args, kwargs)
        self._fit_cores()
        choice = self._choose(grid, args, kwargs)
        if choice is None:
            return self._autotuner_run(grid, args, kwargs)
        compiled = self._launch_chosen(choice, grid, args, kwargs)
        self._remember(choice, args, kwargs)
        return compiled

    def forget_plans(self) -> None:
        """Forget every plan and choice: launches ask the chooser again."""
        for core in (self._core, self._choices):
            if core is not None:
                core.clear()

    def _known_choice(
        self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ConfigPin | None:
        """Return the choice of an earlier launch with the same keys and dtypes, or None.

        What gets no plan (a config with a pre_hook, an argument of a type that the guard does
        not know) comes here each time, and must not cost more than Triton's own Autotuner.
        """
        choices = self._choices
        found: Any = MISS if choices is None else choices.launch(grid, *args, **kwargs)
        if found is MISS or clash(found.config, kwargs):
            return None
        self._tuner.best_config = found.config
        choice: ConfigPin = found
        return choice

    def choice(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ConfigPin | None:
        """Return the config of a launch without launching; one that is new is tuned.

        None: Triton's Autotuner has to find it.
        """
        choice = self._known_choice(grid, args, kwargs)
        if choice is not None:
            return choice
        self._fit_cores()
        choice = self._choose(grid, args, kwargs)
        if choice is not None:
            self._remember(choice, args, kwargs)
        return choice

    def _remember(
        self, choice: ConfigPin, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if self._choices is not None:
            renew(self._choices, args, kwargs, choice.configs, lambda: choice)

    def warm(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile and load what a launch would launch, and keep its plan; launch nothing."""
        with permissions.tuning_forbidden():
            choice = self.choice(grid, args, kwargs)
        if choice is None:
            raise UsageError(
                f"{self.name}: {launch_counts.NO_CONFIG}. Launch it once before serving."
            )
        self.warm_chosen(choice, grid, args, kwargs)

    def warm_chosen(
        self, choice: ConfigPin, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Compile and load the variant of a config, and keep its plan; launch nothing."""
        self._run_pre_hook(choice.config, grid, args, kwargs)
        chosen = choice.config.all_kwargs()
        compiled = loaded(seam.compiled_variant(self.parts.jit, args, {**kwargs, **chosen}))
        self._keep(compiled, choice, args, kwargs)

    def _launch_chosen(
        self, choice: ConfigPin, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._run_pre_hook(choice.config, grid, args, kwargs)
        # Asked after the hook, which may change its config.
        chosen = choice.config.all_kwargs()
        run = triton_run(self._tuner.fn)
        compiled = run(*args, grid=grid, warmup=False, **kwargs, **chosen)
        launch_counts.through_triton(self.name, self._keep(compiled, choice, args, kwargs))
        return compiled

    def _run_pre_hook(
        self, config: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if config.pre_hook is not None:
            passed = {**kwargs, "grid": grid, "warmup": False}
            config.pre_hook(named_arguments(self._tuner, config, args, passed))

    def _keep(
        self, compiled: Any, choice: ConfigPin, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Keep a plan where that is allowed; return why the launch went through Triton."""
        if choice.config.pre_hook is not None:
            return launch_counts.PRE_HOOK
        return keep_plan(
            self._core, self.parts.jit, compiled, args, kwargs, choice, premises=self.premises
        )

    def _choose(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ConfigPin | None:
        """Return the config to launch with; None: Triton's Autotuner has to find it."""
        if not self._supplied.isdisjoint(kwargs):
            return None  # Triton says what is wrong with it
        if not isinstance(self.parts.jit, seam.JITFunction):  # interpreted: nothing is measured
            return ConfigPin(self._tuner.configs[0], None)
        passed = {**kwargs, "grid": grid, "warmup": False}
        try:
            return self._chooser.choose(args, passed)
        except UnfingerprintableError:
            self._chooser.refuse_tuning(args, passed)
            return None

    def explain(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        """Return what the store has for a launch; see ``launchkit.explain``."""
        return self._chooser.explain(args, {**kwargs, "grid": grid, "warmup": False})

    def _autotuner_run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = triton_run(self._tuner)(*args, grid=grid, warmup=False, **kwargs)
        launch_counts.through_triton(self.name, launch_counts.NO_CONFIG)
        return compiled

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        runner = self._tuner.fn
        verify_launch(self._core, runner, self.parts.jit, self.name, grid, args, kwargs)


def clash(config: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a caller gives what the config gives; Triton says what is wrong with it."""
    return not kwargs.keys().isdisjoint(config.all_kwargs())
