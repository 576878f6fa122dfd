"""The kinds of Launcher: how the layers of decorators around a kernel are launched.

``fast`` is the generated front of the core and returns MISS when no plan holds; ``slow`` then
chooses a config, lets Triton compile and launch, and keeps a plan for the next time where that
is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.native.guard import ParamSpec, generable
from launchkit.dispatch.native.python_core import MISS, PythonCore
from launchkit.dispatch.plan import ConfigPin, LaunchPlan
from launchkit.errors import UnfingerprintableError, VerifyError

LaunchFn = Callable[..., Any]
"""Called as ``fn(grid, *args, **kwargs)``; returns the compiled kernel, as Triton does."""


class Launcher:
    """The launch of one kernel object: ``fast(grid, *args, **kwargs)`` may return MISS, then
    ``slow(grid, args, kwargs)`` launches."""

    autotuned = False

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        self.kernel = kernel
        self.name = seam.kernel_name(kernel)
        self._parts = parts
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
        if self.fast == self.direct:
            self.fast = direct
        self.direct = direct

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

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._core = make_core(parts.jit, (), frozenset(), relink=self.link)
        if self._core is not None:
            self.link(self._core.launch)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        compiled = self._plain(grid, *args, **kwargs)
        keep_plan(self._core, self._parts.jit, compiled, args, kwargs, None)
        return compiled

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        verify_plan(self._core, self._parts.jit, self.name, args, kwargs)


def _always_miss(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    return MISS


class AutotunedLauncher(Launcher):
    """Launches of an autotuned kernel whose plan is implied by the arguments alone."""

    autotuned = True

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._tuner: Any = parts.autotuner
        self._chooser = ConfigChooser(
            self._tuner, parts.jit, getattr(kernel, "declared_name", None)
        )
        self._core = self._make_core()
        self.link(_always_miss if self._core is None else self._core.launch)

    def _make_core(self) -> PythonCore | None:
        keys = tuple(self._tuner.keys)
        return make_core(self._parts.jit, keys, self._supplied(), self._tuner, relink=self.link)

    def _supplied(self) -> frozenset[str]:
        return frozenset(name for config in self._tuner.configs for name in config.kwargs)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        config = self._config(grid, args, kwargs)
        if config is None:
            return self._autotuner_run(grid, args, kwargs)
        chosen = config.all_kwargs()
        if config.pre_hook is not None:
            positional = dict(zip(self._tuner.arg_names, args, strict=False))
            config.pre_hook({**positional, **kwargs, "grid": grid, "warmup": False, **chosen})
        compiled = self._tuner.fn.run(*args, grid=grid, warmup=False, **kwargs, **chosen)
        if config.pre_hook is None:
            keep_plan(self._core, self._parts.jit, compiled, args, kwargs, config)
        return compiled

    def _config(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any | None:
        """Return the config to launch with; None: Triton's Autotuner has to find it."""
        if self._supplied() & kwargs.keys():
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


class HeuristicLauncher(AutotunedLauncher):
    """Launches of ``@triton.autotune`` above ``@triton.heuristics``.

    A heuristic may read any argument and the config, so its values are computed at each
    launch: first the config is looked up, then the inner kernel is launched with the values.
    """

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._inner = JitLauncher(parts.jit, seam.KernelParts((), None, (), parts.jit))
        self.link(self._launch)

    def _make_core(self) -> PythonCore | None:
        supplied = self._supplied().union(*(layer.values for layer in self._parts.inner_heuristics))
        keys = tuple(self._tuner.keys)
        return make_core(self._parts.jit, keys, supplied, self._tuner, choose_only=True)

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        plan = MISS if self._core is None else self._core.launch(grid, *args, **kwargs)
        if plan is MISS:
            return MISS
        self._tuner.best_config = plan.config
        return self._launch_with(plan.config, grid, args, kwargs)

    def _launch_with(
        self, config: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        full = {**kwargs, **config.all_kwargs()}
        apply_heuristics(self._parts.inner_heuristics, grid, args, full)
        return self._inner.whole(grid, *args, **full)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        config = self._config(grid, args, kwargs)
        if config is None or config.pre_hook is not None or seam.interpreting():
            return super().slow(grid, args, kwargs)
        if self._core is not None:
            renew(self._core, args, kwargs, lambda: ConfigPin(config))
        return self._launch_with(config, grid, args, kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        plan = None if self._core is None else self._core.find(args, kwargs)
        if plan is not None:
            full = {**kwargs, **plan.config.all_kwargs()}
            apply_heuristics(self._parts.inner_heuristics, grid, args, full)
            self._inner.verify(grid, args, full)


class OuterHeuristicLauncher(Launcher):
    """Launches of ``@triton.heuristics`` above another kernel, autotuned or plain."""

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        below = parts.autotuner or parts.jit
        self._below = make_launcher(below, seam.take_apart(below))
        self.autotuned = self._below.autotuned
        self.link(self._launch)

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        apply_heuristics(self._parts.outer_heuristics, grid, args, kwargs)
        return self._below.whole(grid, *args, **kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        full = dict(kwargs)
        apply_heuristics(self._parts.outer_heuristics, grid, args, full)
        self._below.verify(grid, args, full)


def apply_heuristics(layers: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add each heuristic's value to ``kwargs``, from the mapping that Triton would give it."""
    for layer in layers:
        given = {**dict(zip(layer.arg_names, args, strict=False)), "grid": grid, "warmup": False}
        for name, heuristic in layer.values.items():
            kwargs[name] = heuristic({**given, **kwargs})


def triton_run(kernel: Any) -> Callable[..., Any]:
    """Return the kernel's own launch function; for ``@autotuned`` kernels Triton's Autotuner's."""
    run: Callable[..., Any] = getattr(kernel, "triton_run", None) or kernel.run
    return run


def make_core(
    jit: Any,
    keys: tuple[str, ...],
    supplied: frozenset[str],
    autotuner: Any = None,
    choose_only: bool = False,
    relink: Callable[[LaunchFn], None] = lambda launch: None,
) -> PythonCore | None:
    """Return a core for a kernel, or None for a signature or mode that it does not cover."""
    if seam.interpreting():
        return None
    signature = jit.signature.parameters
    kinds = {p.kind for p in signature.values()}
    if kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        return None
    if Parameter.KEYWORD_ONLY in kinds and not seam.BINDS_KEYWORD_ONLY:
        return None
    params = tuple(
        ParamSpec(
            name=param.name,
            constexpr=param.is_constexpr,
            specialize=not param.do_not_specialize,
            align=not param.do_not_specialize_on_alignment,
            in_key=param.name in keys,
            supplied=param.name in supplied,
            default=param.default,
            has_default=param.has_default,
            keyword_only=signature[param.name].kind is Parameter.KEYWORD_ONLY,
        )
        for param in seam.runtime_params(jit)
    )
    if not generable(params) or not supplied <= {param.name for param in params}:
        return None
    return PythonCore(params, jit, autotuner, choose_only, relink)


def keep_plan(
    core: PythonCore | None,
    jit: Any,
    compiled: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    config: Any,
) -> None:
    """Keep what Triton just launched as a plan, if nothing stands against a shortcut."""
    if core is None or compiled is None or seam.shortcut_obstacle(jit, compiled) is not None:
        return
    place = seam.cache_slot(jit, seam.current_device(), compiled)
    if place is None:
        return
    # What this config leaves out, though another one gives it, has its default.
    supplied = {} if config is None else {**core.defaults, **config.kwargs}
    used = seam.used_globals(jit)
    renew(core, args, kwargs, lambda: LaunchPlan(compiled, place, used, config, supplied))


def renew(
    core: PythonCore,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    make_plan: Callable[[], ConfigPin],
) -> None:
    """Put a plan where these arguments will find it, if they can have one."""
    slot = core.slot(args, kwargs)
    if slot is not None and core.holds(slot):
        # A plan was there and its check failed: something that bodies hold on to has changed.
        core.clear()
        slot = core.slot(args, kwargs)
    if slot is not None:
        core.insert(slot, make_plan())


def verify_plan(
    core: PythonCore | None,
    runner: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
    plan = None if core is None else core.find(args, kwargs)
    if not isinstance(plan, LaunchPlan):
        return
    chosen = {} if plan.config is None else plan.config.all_kwargs()
    expected = seam.compiled_variant(runner, args, {**kwargs, **chosen})
    if expected is not plan.compiled:
        raise VerifyError(
            f"the plan of {name} holds another compiled kernel than Triton would launch. "
            "Set LAUNCHKIT_DISABLE=1 to go on without shortcuts, and report the call.",
            kernel=name,
            planned=getattr(plan.compiled, "hash", None),
            expected=getattr(expected, "hash", None),
        )


def make_launcher(kernel: Any, parts: seam.KernelParts) -> Launcher:
    """Return the launcher for a kernel's layers, not yet attached to it."""
    if settings.current().disable or (seam.interpreting() and parts.autotuner is None):
        launcher = Launcher(kernel, parts)
        launcher.autotuned = parts.autotuner is not None
        return launcher
    if parts.outer_heuristics:
        return OuterHeuristicLauncher(kernel, parts)
    if parts.autotuner is None:
        return JitLauncher(kernel, parts)
    return (HeuristicLauncher if parts.inner_heuristics else AutotunedLauncher)(kernel, parts)
