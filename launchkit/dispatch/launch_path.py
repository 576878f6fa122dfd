"""A kernel's Launcher: ``fast`` may return MISS, then ``slow`` launches the long way. Below launcher.py.

``fast`` is the front of a core. ``slow`` lets Triton compile and launch, and keeps a plan for the
next time where that is allowed. autotuned_path.py and heuristic_path.py have the other kinds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from launchkit import settings
from launchkit.dispatch import launch_counts, launch_notes, placing
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.choosing import ConfigChooser
from launchkit.dispatch.keeping import keep_plan, make_core
from launchkit.dispatch.layers import KernelParts, shown_name, triton_run
from launchkit.dispatch.native.entries import Entry, begun_by_install
from launchkit.dispatch.native.fronts import MISS
from launchkit.dispatch.verifying import verify_launch
from launchkit.errors import LaunchkitError, UsageError

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

    def __init__(self, kernel: Any, parts: KernelParts, name: str | None = None) -> None:
        super().__init__()
        self.kernel = kernel
        self.autotuned = False
        self.name = name or shown_name(kernel)
        self.parts = parts
        """The layers of the kernel."""
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
            counts = self.counts_fast and launch is not always_miss
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
        return placing.other_device(self.name, self.parts.jit.arg_names, args, kwargs)

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

    def __init__(
        self, kernel: Any, parts: KernelParts, reason: str, name: str | None = None
    ) -> None:
        super().__init__(kernel, parts, name)
        self.reason = reason
        if reason != launch_counts.DISABLED:
            self.link(always_miss)

    def _why_cold(self) -> str:
        return self.reason

    def _plain(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        result = super()._plain(grid, *args, **kwargs)
        launch_counts.through_triton(self.name, self.reason)
        return result


class JitLauncher(Launcher):
    """Launches of a plain ``@triton.jit`` kernel."""

    counts_fast = True

    def __init__(self, kernel: Any, parts: KernelParts, name: str | None = None) -> None:
        super().__init__(kernel, parts, name)
        self._core = make_core(parts.jit, (), frozenset(), relink=self.link)
        self.link(always_miss if self._core is None else self._core.launch)

    def slow(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Launch the long way, and keep a plan where that is allowed."""
        compiled = self._plain(grid, *args, **kwargs)
        reason = keep_plan(self._core, self.parts.jit, compiled, args, kwargs)
        launch_counts.through_triton(self.name, reason)
        return compiled

    def warm(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile and load what a launch would launch, and keep its plan; launch nothing."""
        jit = self.parts.jit
        compiled = loaded(seam.compiled_variant(jit, args, kwargs))
        keep_plan(self._core, jit, compiled, args, kwargs)

    def verify(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise VerifyError if the plan for these arguments is not what Triton would launch."""
        jit = self.parts.jit
        verify_launch(self._core, jit, jit, self.name, grid, args, kwargs)


def always_miss(grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Send every launch the long way."""
    return MISS


def loaded(compiled: Any) -> Any:
    """Return a compiled kernel with its code on the device, as its first launch would load it."""
    if compiled is not None:
        seam.bind_launch(compiled)
    return compiled
