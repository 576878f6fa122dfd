"""A CUDA driver that executes nothing: launches are tested without a GPU. Imports leaves only.

While the mode is active Triton compiles real cubins and launches them through its own
launcher onto a stub libcuda, which records the launch. CPU tensors stand for tensors of
the device. Nothing is measured: tuning takes the first config, and nothing is stored.

    with hostonly.activate(arch=90):
        kernel[(4,)](x, y, 1024)
        launch = hostonly.launches()[-1]

Importing this package imports neither torch nor triton.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchkit.errors import HostOnlyError
from launchkit.hostonly import devices as _devices
from launchkit.hostonly import stub as _stub
from launchkit.hostonly.records import LABEL, AttributeValue, HostLaunch

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "LABEL",
    "AttributeValue",
    "HostLaunch",
    "HostOnlySession",
    "activate",
    "capturing",
    "clear",
    "current_arch",
    "current_device",
    "deactivate",
    "dropped",
    "is_active",
    "launches",
    "recording",
    "set_device",
    "set_stream",
    "unwatch_mode",
    "watch_mode",
]


class _Mode:
    """The active mode: its driver, how deep activations are nested, how to leave."""

    def __init__(self, arch: int, devices: int, driver: Any, undo: ExitStack) -> None:
        self.arch = arch
        self.devices = devices
        self.driver = driver
        self.undo = undo
        self.depth = 0
        self.recording = True


_lock = threading.RLock()
_mode: _Mode | None = None
_watchers: list[Callable[[bool], object]] = []


class HostOnlySession:
    """One activation. Leave it with ``deactivate()``, or use it as a context manager."""

    def __init__(self, mode: _Mode) -> None:
        self._mode: _Mode | None = mode
        self.arch = mode.arch
        self.devices = mode.devices

    def __repr__(self) -> str:
        state = "left" if self._mode is None else "active"
        return f"<{LABEL} session sm_{self.arch}, {self.devices} device(s), {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.deactivate()

    def deactivate(self) -> None:
        """End this activation; the outermost one leaves the mode. Again: does nothing."""
        with _lock:
            mode, self._mode = self._mode, None
            if mode is None or mode is not _mode:
                return
            mode.depth -= 1
            if mode.depth == 0:
                deactivate()


def activate(
    arch: int = 90,
    devices: int = 1,
    *,
    cache_dir: str | PathLike[str] | None = None,
) -> HostOnlySession:
    """Enter host-only mode for ``devices`` devices of compute capability ``arch`` / 10.

    Works as a plain call and as a context manager. Activations of the same arch and number
    of devices nest; the outermost one leaves the mode. The outermost one's ``cache_dir`` keeps
    the compiled stub and kernels; the default is in the user's cache directory.
    Recorded launches of an earlier activation are forgotten.

    Raises HostOnlyError: unknown arch or number, another arch or number is active, no C
    compiler, a real CUDA driver or GPU in this process, no Triton with its NVIDIA backend,
    TRITON_INTERPRET set. Its field ``reason`` says which.
    """
    global _mode
    facts = _devices.find(arch, devices)
    with _lock:
        if _mode is None:
            _mode = _enter(facts, devices, Path(cache_dir).absolute() if cache_dir else None)
            _tell()
        elif (_mode.arch, _mode.devices) != (arch, devices):
            raise HostOnlyError(
                f"host-only mode is active for sm_{_mode.arch} with {_mode.devices} device(s), "
                f"so sm_{arch} with {devices} cannot be activated. Call hostonly.deactivate() "
                "first.",
                reason="active",
                arch=_mode.arch,
                devices=_mode.devices,
            )
        _mode.depth += 1
        return HostOnlySession(_mode)


def _enter(facts: _devices.DeviceFacts, devices: int, cache_dir: Path | None) -> _Mode:
    try:
        from launchkit.hostonly import driver as triton_side
    except ImportError as error:
        raise HostOnlyError(
            f"host-only mode needs torch and Triton with its NVIDIA backend: {error}. "
            "Install launchkit-triton[torch].",
            reason="no_triton",
        ) from error
    with ExitStack() as undo:
        driver = triton_side.enter(facts, devices, cache_dir, undo)
        mode = _Mode(facts.arch, devices, driver, undo.pop_all())
    stub = _loaded_stub()
    stub.clear()
    stub.set_recording(True)
    return mode


def deactivate() -> None:
    """Leave host-only mode, however deep its activations are nested; else do nothing.

    Kernels forget what they compiled for it, Triton's driver, knobs and caches are as they
    were before. Recorded launches can still be read.
    """
    global _mode
    with _lock:
        mode, _mode = _mode, None
        _tell()
        if mode is not None:
            mode.undo.close()


# Triton's kernels unload themselves when they die; they need a driver that still works.
atexit.register(deactivate)


def is_active() -> bool:
    """Whether host-only mode is active in this process."""
    return _mode is not None


def watch_mode(callback: Callable[[bool], object]) -> None:
    """Call ``callback`` now and at each change with whether the mode is active."""
    with _lock:
        _watchers.append(callback)
        callback(_mode is not None)


def unwatch_mode(callback: Callable[[bool], object]) -> None:
    """Take back one ``watch_mode``; of a callback that does not watch: does nothing."""
    with _lock, suppress(ValueError):
        _watchers.remove(callback)


def _tell() -> None:
    for callback in tuple(_watchers):
        callback(_mode is not None)


def launches() -> list[HostLaunch]:
    """Return the recorded launches, oldest first: the last 65,536 since ``clear()``."""
    stub = _stub.loaded()
    return stub.launches() if stub else []


def dropped() -> int:
    """Return how many recorded launches were dropped because there were too many."""
    stub = _stub.loaded()
    return stub.dropped() if stub else 0


def clear() -> None:
    """Forget the recorded launches."""
    if stub := _stub.loaded():
        stub.clear()


@contextmanager
def recording(on: bool) -> Iterator[None]:
    """Record launches, or let them pass unseen, within a block.

    An unrecorded launch costs the stub some nanoseconds. Raises HostOnlyError when the mode
    is not active.
    """
    mode, stub = _active(), _loaded_stub()
    before, mode.recording = mode.recording, on
    stub.set_recording(on)
    try:
        yield
    finally:
        mode.recording = before
        stub.set_recording(before)


@contextmanager
def capturing() -> Iterator[None]:
    """Pretend within a block that every stream is being captured into a CUDA graph."""
    driver = _active().driver
    before = driver.capturing
    driver.set_capturing(True)
    try:
        yield
    finally:
        driver.set_capturing(before)


def set_device(index: int) -> None:
    """Make ``index`` the current device, from 0 to one less than the active devices."""
    _active().driver.set_current_device(index)


def current_device() -> int:
    """Return the current device of the active mode."""
    return int(_active().driver.device)


def current_arch() -> int:
    """Return the compute capability, times ten, of the devices of the active mode.

    Raises HostOnlyError when the mode is not active.
    """
    return _active().arch


def set_stream(handle: int) -> None:
    """Make ``handle`` the current stream of every device; 0 is the default stream.

    Raises HostOnlyError for what is not a handle: an int of 64 bits without a sign.
    """
    driver = _active().driver
    if type(handle) is not int or not 0 <= handle < 2**64:
        raise HostOnlyError(
            f"{handle!r} is not a stream's handle. Pass its cuda_stream, or 0.",
            reason="stream",
            handle=handle,
        )
    driver.stream = handle


def _active() -> _Mode:
    if _mode is None:
        raise HostOnlyError(
            "host-only mode is not active. Call hostonly.activate() first.", reason="inactive"
        )
    return _mode


def _loaded_stub() -> _stub.Stub:
    stub = _stub.loaded()
    assert stub is not None, "entering the mode loads the stub"
    return stub
