"""``launch_autotuned`` and ``launch``: a hit takes its plan, a miss the long way. Above the paths.

One ``Launcher`` per kernel object hangs on the kernel itself; launch_path.py, autotuned_path.py and
heuristic_path.py have its kinds.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch.compiler import is_compiling

from launchkit import settings
from launchkit.dispatch import adapters, launch_counts
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.grids import traceable
from launchkit.dispatch.heuristic_path import HeuristicLauncher, OuterHeuristicLauncher
from launchkit.dispatch.launch_path import (
    JitLauncher,
    Launcher,
    LaunchFn,
    TritonLauncher,
)
from launchkit.dispatch.layers import KernelParts, declared_name, own_layer, take_apart
from launchkit.dispatch.manifest import recording as manifest_recording
from launchkit.dispatch.native import entries, extension
from launchkit.dispatch.native.fronts import MISS
from launchkit.errors import NotAutotunedError


@entries.launch_function(autotuned=True)
def launch_autotuned(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Launch an autotuned Triton kernel with its tuned config, at a fraction of the host cost.

    The first launch with new autotune-key values and dtypes takes the config from the store or
    tunes it as Triton would; later ones launch the compiled kernel directly, without
    ``Autotuner.run`` and ``JITFunction.run``. Whatever a shortcut does not cover goes through
    Triton with the same config.

    Launches on the GPU that the tensors are on, on that GPU's current stream, whichever is the
    current one.

    Args:
        kernel: what ``@triton.autotune`` or ``@launchkit.autotuned`` returned, with
            ``@triton.heuristics`` above or below it or not.
        grid: a tuple of one to three ints, a ``launchkit.grid``, or a callable that gets
            Triton's mapping of all kernel arguments, config values included, and returns such a
            tuple.
        args, kwargs: the kernel's arguments, as for ``kernel[grid](...)``.

    Returns:
        The ``CompiledKernel`` that was launched, or None where Triton returns None.

    Raises:
        NotAutotunedError: the kernel has no configs; use ``launch``.
        CaptureError: the key is not tuned yet and a CUDA graph is being captured.
        TuningFailedError: no config could be run.
        MixedDevicesError: tensors are on several GPUs.
    """
    if is_compiling():
        return kernel[traceable(grid)](*args, **kwargs)
    launcher = getattr(kernel, "_launchkit_entry", None)
    if launcher is None or launcher.kernel is not kernel:
        launcher = adopt(kernel)
    if not launcher.autotuned:
        _refuse(launcher)
    result = launcher.fast(grid, *args, **kwargs)
    return launcher.missed(grid, args, kwargs) if result is MISS else result


@entries.launch_function(autotuned=False)
def launch(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Launch any Triton kernel directly; for a plain ``@triton.jit`` kernel nothing is tuned.

    As ``launch_autotuned``, but also takes kernels without configs, whose options
    (``num_warps``, ``num_stages``, ...) may be given as keywords.

    Returns:
        The ``CompiledKernel`` that was launched, or None where Triton returns None.
    """
    if is_compiling():
        return kernel[traceable(grid)](*args, **kwargs)
    launcher = getattr(kernel, "_launchkit_entry", None)
    if launcher is None or launcher.kernel is not kernel:
        launcher = adopt(kernel)
    result = launcher.fast(grid, *args, **kwargs)
    return launcher.missed(grid, args, kwargs) if result is MISS else result


@entries.adopted_launch
def launch_adopted(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Launch without asking whether torch.compile is tracing: what ``kernel[grid]`` of our own
    kernels does, which Dynamo traces by itself and never calls.
    """
    launcher = getattr(kernel, "_launchkit_entry", None)
    if launcher is None or launcher.kernel is not kernel:
        launcher = adopt(kernel)
    result = launcher.fast(grid, *args, **kwargs)
    return launcher.missed(grid, args, kwargs) if result is MISS else result


def _make_launcher(kernel: Any, parts: KernelParts, name: str | None) -> Launcher:
    """Return the launcher for a kernel's layers, not yet attached to it.

    That of a kernel below is adopted, so that both share choices and plans.
    """
    adapter = adapters.find(parts)
    reason = _why_triton(parts, adapted=adapter is not None)
    if reason is not None:
        launcher = TritonLauncher(kernel, parts, reason, name)
        launcher.autotuned = parts.autotuner is not None
        return launcher
    if parts.outer_heuristics:
        return OuterHeuristicLauncher(kernel, parts, adopt(parts.autotuner or parts.jit))
    if parts.autotuner is None:
        return JitLauncher(kernel, parts, name)
    if parts.inner_heuristics:
        return HeuristicLauncher(kernel, parts, adopt(parts.jit, declared_name(kernel)))
    return (adapter or AutotunedLauncher)(kernel, parts)


def _why_triton(parts: KernelParts, adapted: bool) -> str | None:
    """Return why every launch of a kernel is Triton's, or None if launchkit may shorten some."""
    if settings.current().disable:
        return launch_counts.DISABLED
    if seam.interpreting() and parts.autotuner is None:
        return launch_counts.INTERPRETED
    own = own_layer(parts, adapted)
    if own is not None:
        return f"{type(own).__module__}.{type(own).__qualname__} launches in a way of its own"
    return None


_adoption_lock = threading.RLock()
_launchers: weakref.WeakSet[Any] = weakref.WeakSet()
_slot: Callable[[LaunchFn, str], LaunchFn] | None = None


def adopt(kernel: Any, name: str | None = None) -> Launcher:
    """Return the kernel's launcher, making it on first use.

    Its launches are counted under ``name``: that of the kernel whose layer it is; default its own.

    Raises:
        UsageError: the object is no Triton kernel, or no GPU driver is active.
    """
    with _adoption_lock:
        launcher: Launcher | None = getattr(kernel, "_launchkit_entry", None)
        if launcher is not None and launcher.kernel is kernel:
            return launcher
        parts = take_apart(kernel)
        if not seam.interpreting():
            seam.require_driver()
        manifest_recording.start_as_set()
        launcher = _make_launcher(kernel, parts, name)
        launcher.wrap(_slot)
        _launchers.add(launcher)
        kernel._launchkit_entry = launcher
        return launcher


def _refuse(launcher: Launcher) -> None:
    raise NotAutotunedError(launcher.name)


entries.configure(launch_adopted, adopt, _refuse)


def is_interpreting() -> bool:
    """Tell whether kernels run in Python, under TRITON_INTERPRET=1."""
    return seam.interpreting()


def recording_extension() -> ModuleType | None:
    """Return the C extension if it can record all launches; else they need a launch slot."""
    return extension.active()


def launch_slot_is_set() -> bool:
    """Tell whether launches go through a function that ``set_launch_slot`` was given."""
    return _slot is not None


def set_launch_slot(wrap: Callable[[LaunchFn, str], LaunchFn] | None) -> None:
    """Put every launch through ``wrap(fn, kernel_name)``; None takes it away again.

    Without a slot nothing is tested per launch: each kernel's own function is called.
    """
    global _slot
    with _adoption_lock:
        _slot = wrap
        for launcher in list(_launchers):
            launcher.wrap(wrap)


def all_launchers() -> list[Launcher]:
    """Return the launchers of the kernels that were launched so far."""
    with _adoption_lock:
        return [each for each in _launchers if isinstance(each, Launcher)]


def add_handle(handle: Any) -> None:
    """Give a frozen handle the launch slot of now, and of later."""
    with _adoption_lock:
        handle.wrap(_slot)
        _launchers.add(handle)


def relink_all() -> None:
    """Let every launcher take its function again: whether launches are counted has changed."""
    with _adoption_lock:
        for launcher in list(_launchers):
            launcher.relink()
