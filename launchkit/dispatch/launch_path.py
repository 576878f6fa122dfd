"""A kernel's Launcher: ``fast`` may return MISS, then ``slow`` launches the long way.

``fast`` is the generated front of the core. ``slow`` chooses a config, lets Triton compile and
launch, and keeps a plan for the next time where that is allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.keeping import keep_plan, make_core, renew, verify_plan
from launchkit.dispatch.layers import KernelParts, kernel_name
from launchkit.dispatch.native.python_core import MISS, PythonCore
from launchkit.dispatch.plan import ConfigPin
from launchkit.errors import UnfingerprintableError

LaunchFn = Callable[..., Any]
"""Called as ``fn(grid, *args, **kwargs)``; returns the compiled kernel, as Triton does."""

# Held for two assignments: a launch slot may come while a core puts a new front in.
_link_lock = threading.Lock()


class Launcher:
    """The launch of one kernel object: ``fast(grid, *args, **kwargs)`` may return MISS, then
    ``slow(grid, args, kwargs)`` launches."""

    autotuned = False

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        self.kernel = kernel
        self.name = getattr(kernel, "declared_name", None) or kernel_name(kernel)
        self._parts = parts
        self._wrapped: LaunchFn | None = None
        self.direct: LaunchFn = self._plain
        self.fast: LaunchFn = self.direct

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied kernel gets a launcher of its own.
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def link(self, launch: LaunchFn) -> None:
        """Take ``launch`` as the kernel's own function; a launch slot in front stays there."""
        direct = self._checked(launch) if settings.current().verify else launch
        with _link_lock:
            self.direct = direct
            self.fast = self._wrapped or direct

    def wrap(self, wrap: Callable[[LaunchFn, str], LaunchFn] | None) -> None:
        """Put ``wrap(fn, name)`` in front of the launch, or take it away with None."""
        wrapped = None if wrap is None else wrap(self.whole, self.name)
        with _link_lock:
            self._wrapped = wrapped
            self.fast = wrapped or self.direct

    def _checked(self, launch: LaunchFn) -> LaunchFn:
        def checked(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
            self.verify(grid, args, kwargs)
            return launch(grid, *args, **kwargs)

        return checked

    def _plain(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return triton_run(self.kernel)(*args, grid=grid, warmup=False, **kwargs)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch through Triton."""
        return self._plain(grid, *args, **kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the shortcut for these arguments is not what Triton would launch."""

    def whole(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch, fast or slow: one function for a launch slot to wrap."""
        result = self.direct(grid, *args, **kwargs)
        return self.slow(grid, args, kwargs) if result is MISS else result


class JitLauncher(Launcher):
    """Launches of a plain ``@triton.jit`` kernel."""

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__(kernel, parts)
        self._core = make_core(parts.jit, (), frozenset(), relink=self.link)
        if self._core is not None:
            self.link(self._core.launch)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        compiled = self._plain(grid, *args, **kwargs)
        keep_plan(self._core, self._parts.jit, compiled, args, kwargs)
        return compiled

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        verify_plan(self._core, self._parts.jit, self.name, args, kwargs)


def _always_miss(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    return MISS


class AutotunedLauncher(Launcher):
    """Launches of an autotuned kernel whose plan is implied by the arguments alone."""

    autotuned = True

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__(kernel, parts)
        self._tuner: Any = parts.autotuner
        self._chooser = ConfigChooser(
            self._tuner, parts.jit, getattr(kernel, "declared_name", None)
        )
        self._core: PythonCore | None = None
        self._choices: PythonCore | None = None
        self._fitted: frozenset[str] | None = None
        self._fit_cores()

    def _fit_cores(self) -> None:
        """Make the cores for the parameters that the config list supplies today."""
        supplied = frozenset(name for config in self._tuner.configs for name in config.kwargs)
        if supplied == self._fitted:
            return
        heuristic = supplied.union(*(layer.values for layer in self._parts.inner_heuristics))
        keys = tuple(self._tuner.keys)
        self._choices = make_core(self._parts.jit, keys, heuristic, self._tuner, choose_only=True)
        self._core = self._make_core(keys, supplied)
        self._fitted = supplied
        self.link(self._front())

    def _make_core(self, keys: tuple[str, ...], supplied: frozenset[str]) -> PythonCore | None:
        def relink(launch: LaunchFn) -> None:
            # A core that was replaced meanwhile must not come back.
            if core is self._core:
                self.link(launch)

        core = make_core(self._parts.jit, keys, supplied, self._tuner, relink=relink)
        return core

    def _front(self) -> LaunchFn:
        return _always_miss if self._core is None else self._core.launch

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        configs = self._tuner.configs[:]
        known = self._known_choice(grid, args, kwargs)
        if known is not None:
            return self._launch_chosen(known, configs, grid, args, kwargs)
        self._fit_cores()
        config = self._config(grid, args, kwargs)
        if config is None:
            return self._autotuner_run(grid, args, kwargs)
        if self._choices is not None:
            renew(self._choices, args, kwargs, configs, lambda: ConfigPin(config))
        return self._launch_chosen(config, configs, grid, args, kwargs)

    def _known_choice(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | None:
        """Return the config of an earlier launch with the same keys and dtypes, or None.

        What gets no plan (a config with a pre_hook, an argument of a type that the guard does
        not know) comes here each time, and must not cost more than Triton's own Autotuner.
        """
        choices = self._choices
        plan = MISS if choices is None else choices.launch(grid, *args, **kwargs)
        if plan is MISS or clash(plan.config, kwargs):
            return None
        self._tuner.best_config = plan.config
        return plan.config

    def _launch_chosen(
        self, config: Any, configs: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        core = self._core
        chosen = config.all_kwargs()
        if config.pre_hook is not None:
            positional = dict(zip(self._tuner.arg_names, args, strict=False))
            config.pre_hook({**positional, **kwargs, "grid": grid, "warmup": False, **chosen})
        compiled = self._tuner.fn.run(*args, grid=grid, warmup=False, **kwargs, **chosen)
        if config.pre_hook is None:
            keep_plan(core, self._parts.jit, compiled, args, kwargs, config, configs)
        return compiled

    def _config(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | None:
        """Return the config to launch with; None: Triton's Autotuner has to find it."""
        if self._fitted and not self._fitted.isdisjoint(kwargs):
            return None  # Triton says what is wrong with it
        if seam.interpreting():
            return self._tuner.configs[0]
        passed = {**kwargs, "grid": grid, "warmup": False}
        try:
            return self._chooser.choose(args, passed)
        except UnfingerprintableError:
            self._chooser.refuse_capture(args, passed)
            return None

    def _autotuner_run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return triton_run(self._tuner)(*args, grid=grid, warmup=False, **kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        verify_plan(self._core, self._tuner.fn, self.name, args, kwargs)


def clash(config: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a caller gives what the config gives; Triton says what is wrong with it."""
    return not kwargs.keys().isdisjoint(config.all_kwargs())


def triton_run(kernel: Any) -> Callable[..., Any]:
    """Return the kernel's own launch function; for ``@autotuned`` kernels Triton's Autotuner's."""
    run: Callable[..., Any] = getattr(kernel, "triton_run", None) or kernel.run
    return run
