"""Triton's private runtime, the only file of dispatch that touches it.

Whatever differs between Triton versions is decided here: how a compiled kernel is launched
without ``JITFunction.run``, which global state changes a launch, and where a compiled kernel
lives in Triton's own cache. Read in Triton 3.4 to 3.9; what is not known takes Triton's path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.language import dtype as triton_dtype
from triton.runtime import driver as driver_config
from triton.runtime import errors as triton_errors
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.autotuner import Config as TritonConfig
from triton.runtime.jit import JITFunction

from launchkit.errors import UsageError
from launchkit.keys import DeviceId, Toolchain

__all__ = [
    "Autotuner",
    "CompiledKernel",
    "Heuristics",
    "JITFunction",
    "TritonConfig",
    "triton_dtype",
]

CONFIG_ERRORS: tuple[type[BaseException], ...] = tuple(
    error
    for error in (
        triton_errors.OutOfResources,
        CompileTimeAssertionFailure,
        getattr(triton_errors, "PTXASError", None),
    )
    if error is not None
)
"""What Triton's Autotuner counts as «this config does not fit»; anything else ends the tuning."""

VERSION: tuple[int, ...] = tuple(int(part) for part in triton.__version__.split(".")[:2])

BINDS_KEYWORD_ONLY = VERSION >= (3, 9)
"""Whether Triton refuses a keyword-only argument given by position, as Python does."""

# How the compiled C launcher takes its arguments, per proven version. {args} are the kernel's
# arguments in signature order, folded ones included: the launcher skips those itself.
_C_LAUNCH: dict[tuple[int, ...], str] = {
    (3, 6): "__call(__x, __y, __z, __stream, __plan.function, __plan.cooperative, __plan.pdl, "
    "None, None, __plan.metadata, None, None, None{args})",
    (3, 9): "__call(__x, __y, __z, __stream, __plan.function, __plan.cooperative, __plan.pdl, "
    "__plan.metadata, None, None, None, None, None, __plan.annotations, __plan.signature, ({tuple}))",
}
_RUN_LAUNCH = (
    "__call(__x, __y, __z, __stream, __plan.function, __plan.metadata, None, None, None{args})"
)

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
        raise UsageError(
            f"Triton has no GPU to launch on ({error}). Launch on a machine with a GPU and its "
            "driver, or call launchkit.hostonly.activate() to launch without executing.",
        ) from error


def current_device() -> int:
    """Return the ordinal of the current device."""
    return int(driver_config.active.get_current_device())


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


@dataclass(frozen=True)
class _Chain:
    """Stands for a launch hook that is no HookChain: None, or a plain function."""

    calls: tuple[Any, ...]


def _chain(hook: Any) -> Any:
    """Return an object whose ``calls`` are what a launch hook would call."""
    return hook if hasattr(hook, "calls") else _Chain(() if hook is None else (hook,))


def _fast_device(active: Any) -> Callable[[], int]:
    # torch's Python function checks for a lazy start on each call; a plan exists only after one.
    if active.get_current_device is torch.cuda.current_device:
        raw: Callable[[], int] = torch._C._cuda_getDevice
        return raw
    current: Callable[[], int] = active.get_current_device
    return current


def expected_device_attribute() -> str:
    """Return the tensor attribute that is true for a tensor of the active driver's device type."""
    kind: str = getattr(driver_config.active, "expected_device_type", "cuda")
    return f"is_{kind}"


def launch_text(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the source of the C launcher's call and of Triton's own launcher's, for one kernel.

    Names read: ``__call``, ``__x`` ``__y`` ``__z``, ``__stream``, ``__plan`` and the arguments.
    """
    separated = "".join(f", {argument}" for argument in arguments)
    as_tuple = "".join(f"{argument}, " for argument in arguments)
    direct = _C_LAUNCH.get(VERSION, _RUN_LAUNCH)
    return (
        direct.format(args=separated, tuple=as_tuple),
        _RUN_LAUNCH.format(args=separated),
    )


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
        VERSION not in _C_LAUNCH
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
    runtime, compilation = knobs.runtime, knobs.compilation
    if type(compiled) is not CompiledKernel:
        return "still being compiled"
    if compiled.metadata.target.backend != "cuda":
        return f"backend {compiled.metadata.target.backend}"
    if _chain(runtime.launch_enter_hook).calls or _chain(runtime.launch_exit_hook).calls:
        return "launch hook"
    if runtime.debug or jit.debug or getattr(compilation, "instrumentation_mode", None):
        return "debug or instrumentation"
    if getattr(compilation, "fpsan_homomorphic_casts", False):
        return "sanitizer option"
    if jit.pre_run_hooks or getattr(runtime, "add_stages_inspection_hook", None) is not None:
        return "pre_run or stages hook"
    return None


def cache_slot(jit: Any, device: int, compiled: Any) -> tuple[dict[Any, Any], Any] | None:
    """Return Triton's cache and the key under which it holds ``compiled``, or None."""
    entry = jit.device_caches.get(device)
    if entry is None:
        return None
    for key, kernel in list(entry[0].items()):  # another thread may compile meanwhile
        if kernel is compiled:
            return entry[0], key
    return None


def is_plain_config(config: Any) -> bool:
    """Tell whether a config's keyword values are what Triton's own Config makes of its fields."""
    return getattr(type(config), "all_kwargs", None) is TritonConfig.all_kwargs


def used_globals(jit: Any) -> tuple[tuple[str, Any, dict[str, Any]], ...]:
    """Return (name, value at compile time, namespace) of each global that the kernel reads."""
    return tuple(
        (name, value, namespace) for (name, _), (value, namespace) in jit.used_global_vals.items()
    )


def compiled_variant(runner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the compiled kernel that Triton would launch, without launching it."""
    return runner.run(*args, grid=(1,), warmup=True, **kwargs)


def labelled_autotune_key(
    autotuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Return what Triton's Autotuner makes its key of: values, then dtypes in call order."""
    named = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    named = {name: value for name, value in named.items() if name in autotuner.arg_names}
    values = [(name, named[name]) for name in autotuner.keys if name in named]
    typed = [(name, value) for name, value in named.items() if hasattr(value, "dtype")]
    return [*values, *((f"dtype of {name}", str(value.dtype)) for name, value in typed)]


def autotune_key(
    autotuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the key that Triton's Autotuner makes for a launch."""
    return tuple(value for _, value in labelled_autotune_key(autotuner, args, kwargs))


def autotuner_knows(autotuner: Any, key: tuple[Any, ...]) -> bool:
    """Tell whether Triton's Autotuner has a config for a key, or will refuse the key."""
    try:
        return key in autotuner.cache
    except TypeError:  # an unhashable value: Triton raises the same, before it measures
        return True


def autotuner_choice(autotuner: Any, key: tuple[Any, ...]) -> Any:
    """Return the config that Triton's Autotuner holds for a key, or None."""
    try:
        return autotuner.cache.get(key)
    except TypeError:
        return None


def announce_choice(
    autotuner: Any,
    jit: Any,
    key: tuple[Any, ...],
    config: Any,
    timings: Mapping[Any, Any] | None,
    seconds: float | None,
) -> None:
    """Leave on the Autotuner what Triton's own tuning leaves there, and tell its listener.

    ``timings``: milliseconds per config, as Triton keeps them; None where there was no choice.
    ``seconds``: how long measuring took; None when the timings come from a store.
    """
    autotuner.cache[key] = config
    autotuner.best_config = config
    if timings is None:
        return
    autotuner.configs_timings = dict(timings)
    if seconds is not None:
        autotuner.bench_time = seconds
        _print_choice(autotuner, key, config, seconds)
    listener = getattr(knobs.autotuning, "listener", None)
    if listener is not None:
        listener(
            fn=jit,
            key=key,
            best_config=config,
            configs_timings=autotuner.configs_timings,
            duration=seconds,
            cache_hit=seconds is None,
        )


def _print_choice(autotuner: Any, key: tuple[Any, ...], config: Any, seconds: float) -> None:
    if knobs.autotuning.print:
        text = (
            f"Triton autotuning for function {autotuner.base_fn.__name__},\nwith key as {key},\n"
            f"finished after {seconds:.2f}s,\nbest config selected: {config};"
        )
        print(text)  # noqa: T201 - what Triton's own tuning prints with its knob on
