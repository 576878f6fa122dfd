"""Triton's private runtime, the only file of dispatch that touches it.

Whatever differs between Triton versions is decided here: how a compiled kernel is launched
without ``JITFunction.run``, which global state changes a launch, and where a compiled kernel
lives in Triton's own cache. Read in Triton 3.4 to 3.9; what is not known takes Triton's path.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import torch
import triton
from triton import knobs
from triton.backends.nvidia import driver as nvidia_driver
from triton.compiler import CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.language import constexpr as triton_constexpr
from triton.language import dtype as triton_dtype
from triton.runtime import driver as driver_config
from triton.runtime import errors as triton_errors
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from launchkit import settings
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, Toolchain

__all__ = [
    "Autotuner", "CompiledKernel", "Heuristics", "JITFunction", "knobs", "triton_constexpr",
    "triton_dtype",
]  # fmt: skip

CONFIG_ERRORS: tuple[type[BaseException], ...] = (
    triton_errors.OutOfResources,
    CompileTimeAssertionFailure,
    *((triton_errors.PTXASError,) if hasattr(triton_errors, "PTXASError") else ()),
)
"""What Triton's Autotuner counts as «this config does not fit»; anything else ends the tuning."""

VERSION: tuple[int, ...] = tuple(int(part) for part in triton.__version__.split(".")[:2])

PROVEN = ((3, 6), (3, 7), (3, 8), (3, 9))
"""Versions whose compiled C launcher and parameter layout tests have proven."""

GENERATES_LAUNCHERS = VERSION < (3, 7)  # one in C for each kind of kernel; later one for all

BINDS_KEYWORD_ONLY = VERSION >= (3, 9)
"""Whether Triton refuses a keyword-only argument given by position, as Python does."""

_KNOB = vars(type(knobs.compilation)).get("fpsan_homomorphic_casts")
LAUNCH_VARIABLE = settings.variable(_KNOB.key) if hasattr(_KNOB, "key") else None
"""The environment variable that Triton reads at each launch, as a key of
``settings.environment()``; others it reads when it is imported, decorates or compiles."""

# What Triton itself reads at each launch and what sends the launch back to Triton when in use.
LAUNCH_GUARD = " or ".join(
    condition
    for condition, exists in [
        ("__runtime.launch_enter_hook is not __enter or __enter_chain.calls", True),
        ("__runtime.launch_exit_hook is not __exit or __exit_chain.calls", True),
        ("__runtime.debug or __jit.debug or __jit.pre_run_hooks", True),
        ("__compilation.instrumentation_mode", hasattr(knobs.compilation, "instrumentation_mode")),
        # Its own reader costs a launch 0.3 us; a value that was set stands in the dictionary.
        (
            "__compilation_values.get('fpsan_homomorphic_casts')",
            hasattr(knobs.compilation, "fpsan_homomorphic_casts"),
        ),
        ("__environment.get(__variable) is not __variable_value", LAUNCH_VARIABLE is not None),
        (
            "__runtime.add_stages_inspection_hook is not None",
            hasattr(knobs.runtime, "add_stages_inspection_hook"),
        ),
    ]
    if exists
)
# Also what a choice of config rests on.
DRIVER_GUARD = (
    f"__drivers.{'_active' if hasattr(driver_config, '_active') else 'active'} is not __driver"
)


def interpreting() -> bool:
    """Tell whether TRITON_INTERPRET=1 is in force: kernels run in Python, nothing is compiled."""
    return bool(knobs.runtime.interpret)


def executes() -> bool:
    """Tell whether launches run on a GPU, so that measuring them says something."""
    return not getattr(driver_config.active, "host_only", False)


def is_capturing() -> bool:
    """Tell whether the current stream is being captured into a CUDA graph."""
    active = driver_config.active
    if getattr(active, "host_only", False):
        stream = active.get_current_stream(active.get_current_device())
        return bool(active.is_capturing(stream))
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def active_driver() -> Any:
    """Return the driver that launches go to."""
    return driver_config.active


def require_driver() -> None:
    """Raise UsageError if Triton has no GPU to launch on."""
    try:
        # The first use makes it: of the driver, or in Triton 3.4 of what it can do.
        driver_config.active.get_current_device  # noqa: B018
    except RuntimeError as error:
        why = "no driver finds one" if "0 active drivers" in str(error) else error
        raise UsageError(
            f"Triton has no GPU to launch on ({why}). Launch on a machine with a GPU and its "
            "driver; a program may call launchkit.hostonly.activate() first, to launch without one.",
        ) from error


def current_device() -> int:
    """Return the ordinal of the current device."""
    return int(driver_config.active.get_current_device())


@contextlib.contextmanager
def on_device(device: int) -> Iterator[None]:
    """Make a device of the active driver the current one inside the block."""
    active = driver_config.active
    before = active.get_current_device()
    active.set_current_device(device)
    try:
        yield
    finally:
        active.set_current_device(before)


@functools.lru_cache(maxsize=8)
def _device_identity(driver: Any, device: int) -> DeviceId:
    target = driver.get_current_target()
    cuda = target.backend == "cuda"
    limits = driver.utils.get_device_properties(device)
    name, memory_bytes = "host-only", 0
    if not getattr(driver, "host_only", False):
        facts = torch.cuda.get_device_properties(device)
        name, memory_bytes = facts.name, facts.total_memory
    return DeviceId(
        backend=target.backend,
        name=name,
        arch=f"sm_{target.arch}" if cuda else str(target.arch),
        multiprocessors=int(limits["multiprocessor_count"]),
        shared_bytes=int(limits["max_shared_mem"]),
        # Rounded: the driver keeps a varying part for itself.
        memory_gib=round(memory_bytes / 2**30),
    )


def device_identity(device: int) -> DeviceId:
    """Return the exact identity of a device of the active driver, remembered per driver."""
    return _device_identity(driver_config.active, device)


def toolchain() -> Toolchain:
    """Return the versions that a measured timing belongs to."""
    return Toolchain(triton=triton.__version__)


def launch_namespace(jit: Any) -> dict[str, Any]:
    """Return the names that LAUNCH_GUARD and the launch text read, bound for one kernel."""
    runtime = knobs.runtime
    active = driver_config.active
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return {
        "__runtime": runtime,
        "__environment": settings.environment(),
        "__variable": LAUNCH_VARIABLE,
        "__variable_value": settings.environment().get(LAUNCH_VARIABLE or b""),
        "__compilation": knobs.compilation,
        "__compilation_values": vars(knobs.compilation),
        "__enter": enter,
        "__exit": leave,
        "__enter_chain": _chain(enter),
        "__exit_chain": _chain(leave),
        "__drivers": driver_config,
        "__driver": active,
        "__jit": jit,
        "__device": _fast_device(active),
        "__stream_of": active.get_current_stream,
    }


Attributes: TypeAlias = "list[tuple[Any, list[str]]]"
"""Objects, and the names of attributes that are read of them."""


def launch_state(jit: Any) -> tuple[Attributes, Attributes, list[Any]]:
    """Return what Triton reads at each launch: attributes that must stay, switches that must be
    off, lists that must be empty. With None for the kernel: what a choice of config rests on.
    """
    active = "_active" if hasattr(driver_config, "_active") else "active"
    if jit is None:
        return [(driver_config, [active])], [], []
    hooks = ["launch_enter_hook", "launch_exit_hook"]
    state: Attributes = [
        (driver_config, [active]),
        (knobs.runtime, [*hooks, "add_stages_inspection_hook"]),
        (jit, ["pre_run_hooks", "device_caches"]),
    ]
    switches: Attributes = [
        (knobs.runtime, ["debug"]),
        (knobs.compilation, ["instrumentation_mode", "fpsan_homomorphic_casts"]),
        (jit, ["debug"]),
    ]
    chains = [hook for name in hooks if hasattr(hook := getattr(knobs.runtime, name), "calls")]
    state += [(chain, ["calls"]) for chain in chains]
    return state, switches, [jit.pre_run_hooks, *(chain.calls for chain in chains)]


@dataclass(frozen=True)
class DeviceSource:
    """Where the current device and stream are read, and which tensors are the device's."""

    device: Any
    """A function without arguments, or a dictionary and the key of the ordinal."""
    stream: Any
    """A function of the ordinal, or a dictionary and a key; None: torch's current stream."""
    tensors_on_cuda: bool
    """False: CPU tensors stand for the device's, as in host-only mode."""

    @property
    def dlpack_type(self) -> int:
        """The device's type as DLPack numbers them: CUDA's or the CPU's."""
        return 2 if self.tensors_on_cuda else 1


def device_source() -> DeviceSource:
    """Return how the active driver tells the current device and stream."""
    active = driver_config.active
    if getattr(active, "host_only", False):
        values = vars(active)
        on_cuda = active.expected_device_type == "cuda"
        return DeviceSource((values, "device"), (values, "stream"), on_cuda)
    torchs = active.get_current_stream is getattr(torch._C, "_cuda_getCurrentRawStream", None)
    stream = None if torchs else active.get_current_stream
    return DeviceSource(_fast_device(active), stream, tensors_on_cuda=True)


def launch_codes() -> tuple[Any, ...]:
    """Return the code of what every launch through Triton passes, and no shortcut does."""
    return (nvidia_driver.CudaLauncher.__call__.__code__,)


def current_stream(device: int) -> int:
    """Return the handle of the stream that launches on a device go to now."""
    return int(driver_config.active.get_current_stream(device))


def finish_launch(compiled: Any, grid: Any, stream: int, values: tuple[Any, ...]) -> None:
    """Launch with Triton's own launcher: the last steps of its run. ``values``: all arguments."""
    size = len(grid)
    x, y, z = grid[0], grid[1] if size > 1 else 1, grid[2] if size > 2 else 1
    metadata = compiled.launch_metadata(grid, stream, *values)
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    function, packed = compiled.function, compiled.packed_metadata
    compiled.run(x, y, z, stream, function, packed, metadata, enter, leave, *values)


def expand_descriptor(descriptor: Any, metadata: Any) -> list[Any]:
    """Return what Triton's launcher passes for a tensor descriptor, in a version that is proven."""
    base_arguments = (None,) if VERSION >= (3, 8) else ()
    return list(nvidia_driver.make_tensordesc_arg(descriptor, metadata, *base_arguments))


def _chain(hook: Any) -> Any:
    """Return an object whose ``calls`` are what a launch hook would call."""
    if hasattr(hook, "calls"):
        return hook
    return SimpleNamespace(calls=() if hook is None else (hook,))


def _fast_device(active: Any) -> Callable[[], int]:
    # torch's Python function checks for a lazy start on each call; a plan exists only after one.
    if active.get_current_device is torch.cuda.current_device:
        raw: Callable[[], int] = torch._C._cuda_getDevice
        return raw
    current: Callable[[], int] = active.get_current_device
    return current


def expected_device_attribute() -> str:
    """Return the tensor attribute that is true for a tensor of the active driver's device type."""
    return f"is_{getattr(driver_config.active, 'expected_device_type', 'cuda')}"


@dataclass(frozen=True)
class BoundLaunch:
    """What a launch of one compiled kernel needs besides grid, stream and arguments."""

    direct: bool
    """True: ``call`` is the C launcher; False: Triton's Python launcher around it."""
    call: Callable[..., Any]
    function: int
    metadata: Any
    cooperative: Any = False
    pdl: Any = False
    annotations: Any = None
    signature: Any = None


def bind_launch(compiled: Any) -> BoundLaunch:
    """Return how to launch ``compiled``; scratch memory and unknown versions take Triton's launcher."""
    launcher = compiled.run
    if (
        VERSION not in PROVEN
        or launcher.global_scratch_size
        or launcher.profile_scratch_size
        or getattr(launcher, "gsan_enabled", False)
    ):
        return BoundLaunch(False, launcher, compiled.function, compiled.packed_metadata)
    return BoundLaunch(
        direct=True,
        call=launcher.launch,
        function=compiled.function,
        metadata=compiled.packed_metadata,
        cooperative=launcher.launch_cooperative_grid,
        pdl=launcher.launch_pdl,
        annotations=getattr(launcher, "arg_annotations", None),
        signature=getattr(launcher, "kernel_signature", None),
    )


def shortcut_obstacle(jit: Any, compiled: Any) -> str | None:
    """Return why a launch of ``compiled`` must go through Triton, or None if it may be shortened."""
    if type(compiled) is not CompiledKernel:
        return "still being compiled"
    if compiled.metadata.target.backend != "cuda":
        return f"backend {compiled.metadata.target.backend}"
    return launch_obstacle(jit)


def launch_obstacle(jit: Any) -> str | None:
    """Return why any launch of a kernel must go through Triton now, or None."""
    runtime, compilation = knobs.runtime, knobs.compilation
    if _chain(runtime.launch_enter_hook).calls or _chain(runtime.launch_exit_hook).calls:
        return "launch hook"
    if runtime.debug or jit.debug or getattr(compilation, "instrumentation_mode", None):
        return "debug or instrumentation"
    if getattr(compilation, "fpsan_homomorphic_casts", False):
        return "sanitizer option"
    if jit.pre_run_hooks or getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return "pre_run or stages hook"
    return None


class CachePlace(NamedTuple):
    """Where Triton keeps a compiled kernel: ``jit.device_caches[device] is entry`` and
    ``entry[0][key]`` is the kernel."""

    device: int
    entry: tuple[Any, ...]
    key: Any


def cache_place(jit: Any, device: int, compiled: Any) -> CachePlace | None:
    """Return where Triton keeps ``compiled`` for a device, or None."""
    entry = jit.device_caches.get(device)
    if entry is None:
        return None
    for key, kernel in list(entry[0].items()):  # another thread may compile meanwhile
        if kernel is compiled:
            return CachePlace(device, entry, key)
    return None


def used_globals(jit: Any) -> tuple[tuple[str, Any, dict[str, Any]], ...]:
    """Return (name, value at compile time, namespace) of each global that the kernel reads."""
    return tuple(
        (name, value, namespace) for (name, _), (value, namespace) in jit.used_global_vals.items()
    )


def compiled_variant(runner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the compiled kernel that Triton would launch, without launching it."""
    compiled = runner.run(*args, grid=(1,), warmup=True, **kwargs)
    return getattr(compiled, "result", lambda: compiled)()  # waits for an asynchronous compilation


def bound_arguments(jit: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return every parameter's value by name, as Triton's own binder makes them for a launch."""
    bound: dict[str, Any] = jit.device_caches[current_device()][-1](*args, **kwargs)[0]
    return bound


def tuning_knobs() -> Any:
    """Return Triton's knobs of autotuning: whether it prints, and who listens."""
    return knobs.autotuning
