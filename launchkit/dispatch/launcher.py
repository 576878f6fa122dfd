"""``launch_autotuned`` and ``launch``: a hit takes its plan, a miss goes the long way.

One ``Launcher`` per kernel object hangs on the kernel itself. ``fast`` is the generated front
of the core and returns MISS when no plan holds; ``slow`` then chooses a config, lets Triton
compile and launch, and keeps a plan for the next time where that is allowed.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch.compiler import is_compiling

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.native.guard import ParamSpec, generable
from launchkit.dispatch.native.python_core import MISS, PythonCore
from launchkit.dispatch.plan import ConfigPin, LaunchPlan
from launchkit.errors import NotAutotunedError, UnfingerprintableError, VerifyError

LaunchFn = Callable[..., Any]
"""Called as ``fn(grid, *args, **kwargs)``; returns the compiled kernel, as Triton does."""


def launch_autotuned(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Launch an autotuned Triton kernel with its tuned config, at a fraction of the host cost.

    The first launch with new autotune-key values and dtypes takes the config from the store or
    tunes it as Triton would; later ones launch the compiled kernel directly, without
    ``Autotuner.run`` and ``JITFunction.run``. Whatever a shortcut does not cover goes through
    Triton with the same config.

    Args:
        kernel: what ``@triton.autotune`` or ``@launchkit.autotuned`` returned, with
            ``@triton.heuristics`` above or below it or not.
        grid: a tuple of one to three ints, or a callable that gets Triton's mapping of all
            kernel arguments, config values included, and returns such a tuple.
        args, kwargs: the kernel's arguments, as for ``kernel[grid](...)``.

    Returns:
        The ``CompiledKernel`` that was launched, or None where Triton returns None.

    Raises:
        NotAutotunedError: the kernel has no configs; use ``launch``.
        CaptureError: the key is not tuned yet and a CUDA graph is being captured.
        TuningFailedError: no config could be run.
    """
    if is_compiling():
        return kernel[grid](*args, **kwargs)
    launcher = getattr(kernel, "_launchkit_entry", None)
    if launcher is None or launcher.kernel is not kernel:
        launcher = adopt(kernel)
    if not launcher.autotuned:
        raise NotAutotunedError(launcher.name)
    result = launcher.fast(grid, *args, **kwargs)
    return launcher.slow(grid, args, kwargs) if result is MISS else result


def launch(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Launch any Triton kernel directly; for a plain ``@triton.jit`` kernel nothing is tuned.

    As ``launch_autotuned``, but also takes kernels without configs, whose options
    (``num_warps``, ``num_stages``, ...) may be given as keywords.

    Returns:
        The ``CompiledKernel`` that was launched, or None where Triton returns None.
    """
    if is_compiling():
        return kernel[grid](*args, **kwargs)
    launcher = getattr(kernel, "_launchkit_entry", None)
    if launcher is None or launcher.kernel is not kernel:
        launcher = adopt(kernel)
    result = launcher.fast(grid, *args, **kwargs)
    return launcher.slow(grid, args, kwargs) if result is MISS else result


class Launcher:
    """The launch of one kernel object: ``fast(grid, *args, **kwargs)`` may return MISS, then
    ``slow(grid, args, kwargs)`` launches."""

    autotuned = False

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        self.kernel = kernel
        self.name = seam.kernel_name(kernel)
        self._parts = parts
        self.direct: LaunchFn = self._plain
        self.fast: LaunchFn = self._plain

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied kernel gets a launcher of its own.
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def _plain(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        return triton_run(self.kernel)(*args, grid=grid, warmup=False, **kwargs)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch through Triton."""
        return self._plain(grid, *args, **kwargs)

    def whole(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch, fast or slow: one function for a launch slot to wrap."""
        result = self.direct(grid, *args, **kwargs)
        return self.slow(grid, args, kwargs) if result is MISS else result


class JitLauncher(Launcher):
    """Launches of a plain ``@triton.jit`` kernel."""

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._core = make_core(parts.jit, (), frozenset())
        if self._core is not None:
            self.direct = self.fast = self._core.launch

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = self._plain(grid, *args, **kwargs)
        keep_plan(self._core, self._parts.jit, compiled, args, kwargs, None)
        return compiled

    def verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        verify_plan(self._core, self._parts.jit, self.name, args, kwargs)


class AutotunedLauncher(Launcher):
    """Launches of an autotuned kernel whose plan is implied by the arguments alone."""

    autotuned = True

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._tuner = parts.autotuner
        self._chooser = ConfigChooser(self._tuner, parts.jit, getattr(kernel, "declared_name", None))
        self._core = self._make_core()
        if self._core is not None:
            self.direct = self.fast = self._core.launch

    def _make_core(self) -> PythonCore | None:
        return make_core(self._parts.jit, tuple(self._tuner.keys), self._supplied(), self._tuner)

    def _supplied(self) -> frozenset[str]:
        return frozenset(name for config in self._tuner.configs for name in config.kwargs)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        try:
            return self._chooser.choose(args, {**kwargs, "grid": grid, "warmup": False})
        except UnfingerprintableError:
            return None

    def _autotuner_run(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return triton_run(self._tuner)(*args, grid=grid, warmup=False, **kwargs)

    def verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        verify_plan(self._core, self._tuner.fn, self.name, args, kwargs)


class HeuristicLauncher(AutotunedLauncher):
    """Launches of ``@triton.autotune`` above ``@triton.heuristics``.

    A heuristic may read any argument and the config, so its values are computed at each
    launch: first the config is looked up, then the inner kernel is launched with the values.
    """

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        self._inner = JitLauncher(parts.jit, seam.KernelParts((), None, (), parts.jit))
        self.direct = self.fast = self._launch

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

    def _launch_with(self, config: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        full = {**kwargs, **config.all_kwargs()}
        apply_heuristics(self._parts.inner_heuristics, args, full)
        return self._inner.whole(grid, *args, **full)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        config = self._config(grid, args, kwargs)
        if config is None or config.pre_hook is not None or seam.interpreting():
            return super().slow(grid, args, kwargs)
        slot = None if self._core is None else self._core.slot(args, kwargs)
        if self._core is not None and slot is not None:
            if self._core.holds(slot):
                self._core.clear()
                slot = self._core.slot(args, kwargs)
            self._core.insert(slot, ConfigPin(config))
        return self._launch_with(config, grid, args, kwargs)

    def verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        plan = None if self._core is None else self._core.find(args, kwargs)
        if plan is not None:
            full = {**kwargs, **plan.config.all_kwargs()}
            apply_heuristics(self._parts.inner_heuristics, args, full)
            self._inner.verify(args, full)


class OuterHeuristicLauncher(Launcher):
    """Launches of ``@triton.heuristics`` above another kernel, autotuned or plain."""

    def __init__(self, kernel: Any, parts: seam.KernelParts) -> None:
        super().__init__(kernel, parts)
        below = parts.autotuner or parts.jit
        self._below = make_launcher(below, seam.take_apart(below))
        self.autotuned = self._below.autotuned
        self.direct = self.fast = self._launch

    def _launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        apply_heuristics(self._parts.outer_heuristics, args, kwargs)
        return self._below.whole(grid, *args, **kwargs)

    def verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        full = dict(kwargs)
        apply_heuristics(self._parts.outer_heuristics, args, full)
        self._below.verify(args, full)  # type: ignore[attr-defined]


def apply_heuristics(layers: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add each heuristic's value to ``kwargs``, from the mapping that Triton would give it."""
    for layer in layers:
        for name, heuristic in layer.values.items():
            kwargs[name] = heuristic({**dict(zip(layer.arg_names, args, strict=False)), **kwargs})


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
) -> PythonCore | None:
    """Return a core for a kernel, or None for a signature or mode that it does not cover."""
    if seam.interpreting():
        return None
    signature = jit.signature.parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.values()):
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
        )
        for param in seam.runtime_params(jit)
    )
    if not generable(params) or not supplied <= {param.name for param in params}:
        return None
    return PythonCore(params, jit, autotuner, choose_only)


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
    slot = core.slot(args, kwargs)
    place = seam.cache_slot(jit, seam.current_device(), compiled)
    if slot is None or place is None:
        return
    if core.holds(slot):
        # A plan was there and its check failed: something that bodies hold on to has changed.
        core.clear()
        slot = core.slot(args, kwargs)
        if slot is None:
            return
    supplied = {} if config is None else config.kwargs
    core.insert(slot, LaunchPlan(compiled, place, seam.used_globals(jit), config, supplied))


def verify_plan(
    core: PythonCore | None, runner: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
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


def _verified(launcher: Any) -> LaunchFn:
    fast = launcher.direct

    def checked(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        launcher.verify(args, kwargs)
        return fast(grid, *args, **kwargs)

    return checked


# -- adoption and the launch slot

_adoption_lock = threading.RLock()
_launchers: weakref.WeakSet[Launcher] = weakref.WeakSet()
_slot: Callable[[LaunchFn, str], LaunchFn] | None = None


def make_launcher(kernel: Any, parts: seam.KernelParts) -> Launcher:
    """Return the launcher for a kernel's layers, not yet attached to it."""
    if settings.current().disable or seam.interpreting() and parts.autotuner is None:
        launcher = Launcher(kernel, parts)
        launcher.autotuned = parts.autotuner is not None
        return launcher
    if parts.outer_heuristics:
        return OuterHeuristicLauncher(kernel, parts)
    if parts.autotuner is None:
        return JitLauncher(kernel, parts)
    return (HeuristicLauncher if parts.inner_heuristics else AutotunedLauncher)(kernel, parts)


def adopt(kernel: Any) -> Launcher:
    """Return the kernel's launcher, making it on first use.

    Raises:
        UsageError: the object is no Triton kernel.
    """
    with _adoption_lock:
        launcher: Launcher | None = getattr(kernel, "_launchkit_entry", None)
        if launcher is not None and launcher.kernel is kernel:
            return launcher
        launcher = make_launcher(kernel, seam.take_apart(kernel))
        if settings.current().verify and hasattr(launcher, "verify"):
            launcher.direct = launcher.fast = _verified(launcher)
        if _slot is not None:
            launcher.fast = _slot(launcher.whole, launcher.name)
        _launchers.add(launcher)
        kernel._launchkit_entry = launcher
        return launcher


def set_launch_slot(wrap: Callable[[LaunchFn, str], LaunchFn] | None) -> None:
    """Put every launch through ``wrap(fn, kernel_name)``; None takes it away again.

    Without a slot nothing is tested per launch: each kernel's own function is called.
    """
    global _slot
    with _adoption_lock:
        _slot = wrap
        for launcher in list(_launchers):
            launcher.fast = launcher.direct if wrap is None else wrap(launcher.whole, launcher.name)
