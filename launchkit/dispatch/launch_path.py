"""A kernel's Launcher: ``fast`` may return MISS, then ``slow`` launches the long way.

``fast`` is the generated front of the core. ``slow`` chooses a config, lets Triton compile and
launch, and keeps a plan for the next time where that is allowed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

from launchkit import settings
from launchkit.dispatch import launch_counts, launch_notes, permissions, placing
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.keeping import keep_plan, make_core, renew
from launchkit.dispatch.layers import KernelParts, is_plain_config, kernel_name, triton_run
from launchkit.dispatch.native.entries import Entry, begun_by_install
from launchkit.dispatch.native.fronts import MISS
from launchkit.dispatch.native.interface import Core
from launchkit.dispatch.plan import ConfigPin
from launchkit.dispatch.verifying import verify_launch
from launchkit.errors import LaunchkitError, UnfingerprintableError, UsageError
from launchkit.store import Explanation

LaunchFn = Callable[..., Any]
"""Called as ``fn(grid, *args, **kwargs)``; returns the compiled kernel, as Triton does."""

# Held for two assignments: a launch slot may come while a core puts a new front in.
_link_lock = threading.RLock()


class Launcher(Entry):
    """The launch of one kernel object: ``fast(grid, *args, **kwargs)`` may return MISS, then
    ``slow(grid, args, kwargs)`` launches."""

    counts_fast = False
    """Whether a launch that does not miss is one: not one of a launcher below, which counts it."""
    noted = True
    """Whether a manifest has an entry of its misses: not where a launcher below has them."""
    chooser: ConfigChooser | None = None
    """What chooses the kernel's configs; None where Triton does, or nothing is to be chosen."""

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__()
        self.kernel = kernel
        self.autotuned = False
        self.name = getattr(kernel, "declared_name", None) or kernel_name(kernel)
        self._parts = parts
        self._wrapped: LaunchFn | None = None
        self._linked: LaunchFn | None = None
        self.direct = self.fast = self._plain

    def __reduce__(self) -> tuple[Any, ...]:
        # A copied kernel gets a launcher of its own.
        return type(None), ()

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def link(self, launch: LaunchFn) -> None:
        """Take ``launch`` as the kernel's own function; a launch slot in front stays there."""
        # Held until the lock is free: the last reference to an old one may run a finalizer.
        old = (self.direct, self.fast, self._linked)
        with _link_lock:
            self._linked = launch
            counts = self.counts_fast and launch is not _always_miss
            direct = launch_counts.counted(self.name, launch) if counts else launch
            if settings.current().verify:
                direct = self._checked(direct)
            self.direct = direct
            self.fast = self._wrapped or direct
        del old

    def relink(self) -> None:
        """Take the same function again: whether launches are counted has changed."""
        with _link_lock:
            if self._linked is not None:
                self.link(self._linked)

    def wrap(self, wrap: Callable[[LaunchFn, str], LaunchFn] | None) -> None:
        """Put ``wrap(fn, name)`` in front of the launch, or take it away with None."""
        wrapped = None if wrap is None else wrap(self.whole, self.name)
        old = (self._wrapped, self.fast)
        with _link_lock:
            self._wrapped = wrapped
            self.fast = wrapped or self.direct
        del old

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

    def missed(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch what took no shortcut, on the device that its tensors are on.

        Raises:
            MixedDevicesError: they are on several.
        """
        note = launch_notes.active
        if note is None or not self.noted:
            return self.unnoted(grid, args, kwargs)
        try:
            compiled = self.unnoted(grid, args, kwargs)
        except LaunchkitError:  # as where a config is missing that a later tuning will find
            note(self, grid, args, kwargs)
            raise
        note(self, grid, args, kwargs)
        return compiled

    def unnoted(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch what took no shortcut, and tell no manifest of it."""
        device = self._other_device(args, kwargs)
        if device is None:
            return self.slow(grid, args, kwargs)
        with seam.on_device(device):
            result = self.direct(grid, *args, **kwargs)
            return self.slow(grid, args, kwargs) if result is MISS else result

    def _other_device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
        if begun_by_install():
            return None
        return placing.other_device(self.name, self._parts.jit.arg_names, args, kwargs)

    def warm(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile and load what a launch would launch, and keep its plan; launch nothing.

        A config is looked up, never tuned.

        Raises:
            UsageError: only a launch can do that.
            NotTunedError: no config is known.
        """
        raise UsageError(f"{self.name}: {self._why_cold()}. Launch it once before serving.")

    def _why_cold(self) -> str:
        return launch_counts.INTERPRETED if seam.interpreting() else "its launches are Triton's own"

    @property
    def parts(self) -> KernelParts:
        """The layers of the kernel."""
        return self._parts

    def forget_plans(self) -> None:
        """Forget what was chosen, and what rests on it."""

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the shortcut for these arguments is not what Triton would launch."""

    def whole(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch, fast or slow: one function for a launch slot to wrap."""
        result = self.direct(grid, *args, **kwargs)
        return self.missed(grid, args, kwargs) if result is MISS else result


class TritonLauncher(Launcher):
    """Launches that are all Triton's, for a reason that is counted."""

    def __init__(self, kernel: Any, parts: KernelParts, reason: str) -> None:
        super().__init__(kernel, parts)
        self.reason = reason
        if reason != launch_counts.DISABLED:
            self.link(_always_miss)

    def _why_cold(self) -> str:
        return self.reason

    def _plain(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = super()._plain(grid, *args, **kwargs)
        launch_counts.through_triton(self.name, self.reason)
        return result


class JitLauncher(Launcher):
    """Launches of a plain ``@triton.jit`` kernel."""

    counts_fast = True

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__(kernel, parts)
        self._core = make_core(parts.jit, (), frozenset(), relink=self.link)
        self.link(_always_miss if self._core is None else self._core.launch)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        compiled = self._plain(grid, *args, **kwargs)
        reason = keep_plan(self._core, self._parts.jit, compiled, args, kwargs)
        launch_counts.through_triton(self.name, reason)
        return compiled

    def warm(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile and load what a launch would launch, and keep its plan; launch nothing."""
        jit = self._parts.jit
        compiled = loaded(seam.compiled_variant(jit, args, kwargs))
        keep_plan(self._core, jit, compiled, args, kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        jit = self._parts.jit
        verify_launch(self._core, jit, jit, self.name, grid, args, kwargs)


def _always_miss(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    return MISS


class AutotunedLauncher(Launcher):
    """Launches of an autotuned kernel whose plan is implied by the arguments alone."""

    counts_fast = True
    premises: tuple[tuple[str, Any, dict[str, Any]], ...] = ()
    """More (name, value, namespace) that a plan rests on, as the globals that a kernel reads."""

    def __init__(self, kernel: Any, parts: KernelParts) -> None:
        super().__init__(kernel, parts)
        self.autotuned = True
        self._tuner: Any = parts.autotuner
        self.chooser = self._chooser = ConfigChooser(
            self._tuner, parts.jit, getattr(kernel, "declared_name", None)
        )
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
        heuristic = supplied.union(*(layer.values for layer in self._parts.inner_heuristics))
        make = functools.partial(make_core, self._parts.jit, keys)
        # A config of a class of its own may say anything anew at each launch.
        self._choices = make(heuristic, self._tuner, choose_only=True) if plain else None
        self._core = self._make_core(keys, supplied) if plain else None
        self._fitted = (supplied, keys, plain)
        self.link(self._front())

    def _make_core(self, keys: tuple[str, ...], supplied: frozenset[str]) -> Core | None:
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
        choice = self._known_choice(grid, args, kwargs)
        if choice is not None:
            return self._launch_chosen(choice, grid, args, kwargs)
        self._fit_cores()
        choice = self._choose(grid, args, kwargs)
        if choice is None:
            return self._autotuner_run(grid, args, kwargs)
        compiled = self._launch_chosen(choice, grid, args, kwargs)
        if self._choices is not None:
            renew(self._choices, args, kwargs, choice.configs, lambda: choice)
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
        if choice is not None and self._choices is not None:
            renew(self._choices, args, kwargs, choice.configs, lambda: choice)
        return choice

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
        compiled = loaded(seam.compiled_variant(self._parts.jit, args, {**kwargs, **chosen}))
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
            named = {**dict(zip(self._tuner.arg_names, args, strict=False)), **kwargs}
            config.pre_hook({**named, "grid": grid, "warmup": False, **config.all_kwargs()})

    def _keep(
        self, compiled: Any, choice: ConfigPin, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Keep a plan where that is allowed; return why the launch went through Triton."""
        if choice.config.pre_hook is not None:
            return launch_counts.PRE_HOOK
        return keep_plan(
            self._core, self._parts.jit, compiled, args, kwargs, choice, premises=self.premises
        )

    def _choose(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ConfigPin | None:
        """Return the config to launch with; None: Triton's Autotuner has to find it."""
        if not self._supplied.isdisjoint(kwargs):
            return None  # Triton says what is wrong with it
        if not isinstance(self._parts.jit, seam.JITFunction):  # interpreted: nothing is measured
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
        verify_launch(self._core, runner, self._parts.jit, self.name, grid, args, kwargs)


def clash(config: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a caller gives what the config gives; Triton says what is wrong with it."""
    return not kwargs.keys().isdisjoint(config.all_kwargs())


def loaded(compiled: Any) -> Any:
    """Return a compiled kernel with its code on the device, as its first launch would load it."""
    compiled = getattr(compiled, "result", lambda: compiled)()  # of an asynchronous compilation
    if compiled is not None:
        seam.bind_launch(compiled)
    return compiled
