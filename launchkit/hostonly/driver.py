"""Triton's side of host-only mode: the driver object, entering and leaving. Uses stub.py.

With dispatch/triton_seam.py the only code that touches Triton's private runtime. Imports
triton and torch, so launchkit.hostonly imports it only when the mode is entered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any
from weakref import WeakKeyDictionary

import torch
import triton
import triton.testing
from triton import knobs
from triton.backends.nvidia import driver as nvidia
from triton.compiler import CompiledKernel
from triton.compiler import compiler as triton_compiler
from triton.runtime import driver as active_driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, KernelInterface

from launchkit import settings
from launchkit.errors import HostOnlyError, UsageError
from launchkit.hostonly import stub as stub_library
from launchkit.hostonly.cubin import CubinError, param_layout
from launchkit.hostonly.devices import DeviceFacts
from launchkit.hostonly.instances import Instances
from launchkit.hostonly.records import LABEL
from launchkit.hostonly.stub import Stub

_MODULE_GLOBALS = ("PyCUtensorMap", "PyKernelArg", "ARG_CONSTEXPR", "ARG_KERNEL", "ARG_TUPLE")
_TUNING_RESULTS = ("best_config", "configs_timings", "bench_time", "do_bench")
_DISPATCH_ENTRY = "_launchkit_entry"
_COMPILERS_OF_TRITON = {"gcc", "clang"}
_MISSING = object()


class _NothingToTime:
    """Stands for ``torch.cuda`` where Triton synchronizes with the device or times it."""

    def synchronize(self, *_: Any) -> None:
        """Return at once: nothing runs."""

    def current_device(self) -> int:
        """Return the current device of the host-only driver."""
        return int(active_driver.active.get_current_device())

    def __getattr__(self, name: str) -> Any:
        raise HostOnlyError(
            f"{name} was asked of the device, and {LABEL} mode executes and measures nothing. "
            "Give the kernel one config, a stored config, or a do_bench of its own.",
            reason="measure",
            attribute=name,
        )


def measure_nothing(
    kernel_call: Callable[[], Any], *_: Any, quantiles: Sequence[float] | None = None, **__: Any
) -> float | list[float]:
    """Return infinite times without calling the kernel: the first config is chosen."""
    return [float("inf")] * len(quantiles) if quantiles else float("inf")


class HostOnlyDriver(nvidia.CudaDriver):  # type: ignore[misc]  # triton is untyped
    """Triton's CUDA driver with a device, a stream and a capability that are only numbers."""

    host_only = True
    expected_device_type = "cpu"
    """Where tensors live that stand for tensors of the device."""

    def __init__(self, facts: DeviceFacts, devices: int, stub: Stub) -> None:
        super().__init__()
        for name in ("capability", "stream", "device"):
            for verb in ("get_device_", "get_current_", "set_current_"):
                self.__dict__.pop(verb + name, None)  # torch.cuda's, set by the base class
        self.facts = facts
        self.devices = devices
        self.device = 0
        self.stream = 0
        self.capturing = False
        self._stub = stub
        self._load_binary = self.utils.load_binary
        self.utils.load_binary = self._load_and_describe

    def __repr__(self) -> str:
        return f"<{LABEL} CUDA driver sm_{self.facts.arch}, {self.devices} device(s)>"

    def _load_and_describe(self, name: str, cubin: bytes, shared: int, device: int) -> Any:
        loaded = self._load_binary(name, cubin, shared, device)
        try:
            layout = param_layout(cubin, name)
        except CubinError as error:
            raise HostOnlyError(
                f"the parameters of {name} cannot be read from its cubin: {error}. "
                "Use a Triton version that launchkit's README lists as tested.",
                reason="cubin",
                kernel=name,
            ) from error
        self._stub.describe(loaded[1], device, layout)
        return loaded

    @staticmethod
    def is_active() -> bool:
        """Whether this driver can be used: it is only made while it can."""
        return True

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        """Return (major, minor), the same for every device."""
        return divmod(self.facts.arch, 10)

    def get_current_device(self) -> int:
        """Return the device that ``hostonly.set_device`` chose."""
        return self.device

    def set_current_device(self, device: int) -> None:
        """Choose the current device."""
        if type(device) is not int or not 0 <= device < self.devices:
            raise HostOnlyError(
                f"there is no device {device!r}: host-only mode has {self.devices}. "
                f"Use 0 to {self.devices - 1}, or activate it with more devices.",
                reason="device",
                device=device,
                devices=self.devices,
            )
        self.device = device

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the handle that ``hostonly.set_stream`` chose, on every device."""
        return self.stream

    def is_capturing(self, stream: int) -> bool:
        """Whether ``hostonly.capturing()`` is in effect, for every stream."""
        return self.capturing

    def set_capturing(self, on: bool) -> None:
        """Make this driver and cuStreamIsCapturing say that a graph is being captured."""
        self.capturing = on
        self._stub.set_capturing(on)

    def get_active_torch_device(self) -> torch.device:
        """Return the CPU, where the tensors are."""
        return torch.device(self.expected_device_type)

    def get_device_interface(self) -> _NothingToTime:
        """Return an object that synchronizes with nothing and refuses to time."""
        return _NothingToTime()

    def get_benchmarker(self) -> Callable[..., float | list[float]]:
        """Return ``measure_nothing``."""
        return measure_nothing

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Return an empty tensor: there is no L2 cache to flush."""
        return torch.empty(0, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        """Do nothing."""

    def allocate_default_profile_scratch(self, size: int, alignment: int, stream: Any) -> Any:
        """Return ``size`` zero bytes in host memory."""
        return torch.zeros(size, dtype=torch.int8)


def enter(facts: DeviceFacts, devices: int, cache_dir: Path | None, undo: ExitStack) -> Any:
    """Make the host-only driver Triton's active one; return it.

    Everything that leaving has to do is pushed on ``undo``, also when entering fails.
    Raises HostOnlyError where the mode cannot work.
    """
    _refuse_real_device()
    compiler = stub_library.find_compiler()
    cache_dir = cache_dir or default_cache_dir()
    directory = stub_library.build(cache_dir, compiler)
    stub = stub_library.load(directory)
    stub.configure(facts, devices)
    undo.enter_context(_clean_triton())
    _swap(undo, knobs.nvidia, libcuda_path=str(directory))
    _swap(undo, knobs.cache, dir=str(cache_dir / "triton"), manager_class=None)
    _swap(undo, knobs.autotuning, cache=False)
    _swap(undo, triton.testing, do_bench=measure_nothing, do_bench_cudagraph=measure_nothing)
    if Path(compiler).name not in _COMPILERS_OF_TRITON:
        # Triton reads CC itself, so this one knob has to reach the environment.
        undo.enter_context(knobs.build.scope())
        knobs.build.cc = compiler
    stub.set_active(True)
    undo.callback(stub.set_active, False)
    driver = _make_driver(facts, devices, stub)
    undo.callback(driver.set_capturing, False)
    active_driver.set_active(driver)
    return driver


def default_cache_dir() -> Path:
    """Return where the stub and the kernels compiled for it are kept between runs.

    Raises HostOnlyError for a user without a home directory.
    """
    try:
        found = settings.cache_home() / f"hostonly-triton-{triton.__version__}"
    except UsageError as error:
        raise HostOnlyError(f"{error} Or pass cache_dir=.", reason="cache_dir") from None
    # Triton's keys hold this path: the same directory by way of a link compiles nothing anew.
    return found.resolve()


def _refuse_real_device() -> None:
    if knobs.runtime.interpret:
        raise HostOnlyError(
            "TRITON_INTERPRET is set, so kernels are interpreted and never compiled. "
            "Unset it to use host-only mode.",
            reason="interpreter",
        )
    # A loaded driver is reported by its path; asking torch first would load it.
    mapped = stub_library.mapped_driver()
    if mapped is None and torch.cuda.device_count() > 0:
        raise HostOnlyError(
            f"this process sees {torch.cuda.device_count()} GPU(s), and host-only mode would hide "
            "its driver. Set CUDA_VISIBLE_DEVICES to nothing before the process starts.",
            reason="real_device",
            device_count=torch.cuda.device_count(),
        )


def _make_driver(facts: DeviceFacts, devices: int, stub: Stub) -> HostOnlyDriver:
    try:
        return HostOnlyDriver(facts, devices, stub)
    except (CalledProcessError, RuntimeError, OSError, ImportError) as error:
        raise HostOnlyError(
            f"Triton could not build its CUDA driver module for host-only mode: {error}. The "
            "compiler's own message stands above. Install a C compiler and Python's headers (for "
            "example: apt-get install gcc python3-dev).",
            reason="triton_driver",
        ) from error


def _swap(undo: ExitStack, owner: Any, **values: Any) -> None:
    """Set attributes of ``owner``, and put back on ``undo`` what it had.

    Written to its dictionary: a knob assigned the usual way is exported to the environment,
    and child processes would take the stub for a driver.
    """
    attributes = vars(owner)
    for name, value in values.items():
        undo.callback(_put_back, attributes, name, attributes.get(name, _MISSING))
        attributes[name] = value


def _put_back(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is _MISSING:
        attributes.pop(name, None)
    else:
        attributes[name] = value


@contextmanager
def _clean_triton() -> Iterator[None]:
    """Take Triton's process-wide state away on entering, and give it back on leaving."""
    saved_driver = dict(vars(active_driver))
    saved_globals = {name: vars(nvidia).get(name, _MISSING) for name in _MODULE_GLOBALS}
    saved_utils = vars(nvidia.CudaUtils).get("instance", _MISSING)
    if saved_utils is not _MISSING:
        del nvidia.CudaUtils.instance
    saved_tuning = _tuning_results()
    _forget_kernels(saved_tuning)
    _clear_caches()
    try:
        yield
    finally:
        _forget_kernels(saved_tuning)
        vars(active_driver).clear()
        vars(active_driver).update(saved_driver)
        for name, value in saved_globals.items():
            _put_back(vars(nvidia), name, value)
        if "instance" in vars(nvidia.CudaUtils):
            del nvidia.CudaUtils.instance
        if saved_utils is not _MISSING:
            nvidia.CudaUtils.instance = saved_utils
        _clear_caches()


def _clear_caches() -> None:
    for cached in (nvidia.libcuda_dirs, nvidia.library_dirs, triton_compiler.max_shared_mem):
        cached.cache_clear()


@functools.cache
def _kernels() -> Instances:
    return Instances(KernelInterface, CompiledKernel)


def _tuning_results() -> WeakKeyDictionary[Any, dict[str, Any]]:
    results: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
    for tuner in _kernels().alive():
        if not isinstance(tuner, Autotuner):
            continue
        kept = {name: vars(tuner)[name] for name in _TUNING_RESULTS if name in vars(tuner)}
        results[tuner] = {**kept, "cache": dict(getattr(tuner, "cache", {}))}
    return results


def _forget_kernels(tuning: WeakKeyDictionary[Any, dict[str, Any]]) -> None:
    """Drop what every kernel of the process learnt from the driver that is going."""
    for found in _kernels().alive():
        if isinstance(found, CompiledKernel):
            _forget_handles(found)
            continue
        vars(found).pop(_DISPATCH_ENTRY, None)
        if isinstance(found, JITFunction):
            found.device_caches.clear()
        elif isinstance(found, Autotuner):
            _restore_tuning(found, tuning.get(found, {}))


def _forget_handles(kernel: Any) -> None:
    # As it was before its first launch: the next one loads it into the driver of that time.
    for name in ("module", "function", "_run", "_module_pid"):
        if name in vars(kernel):
            setattr(kernel, name, None)


def _restore_tuning(tuner: Any, saved: dict[str, Any]) -> None:
    if hasattr(tuner, "cache"):  # not while it is being made
        tuner.cache.clear()
        tuner.cache.update(saved.get("cache", {}))
    for name in _TUNING_RESULTS:
        _put_back(vars(tuner), name, saved.get(name, _MISSING))
