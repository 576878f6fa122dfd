"""Whether a config that was not measured here can run here. Below stored_choice.py."""

from __future__ import annotations

import functools
from typing import Any

import triton

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.layers import named_arguments, triton_run
from launchkit.dispatch.question import Arguments

ERRORS: tuple[type[BaseException], ...] = (*seam.CONFIG_ERRORS, triton.CompilationError)
"""What says that a config does not fit this GPU, this Triton or these arguments."""


def obstacle(autotuner: Any, config: Any, arguments: Arguments) -> str | None:
    """Return why a launch with a config cannot be, or None.

    The kernel is compiled for the current device and loaded there, which compares the shared
    memory, registers and threads that it needs with what the device has. Triton keeps what was
    compiled, so the launch that follows does not compile again. The config's own pre_hook runs
    first, as before a launch: it may shape what is compiled.
    """
    args, kwargs = arguments
    if config.pre_hook is not None:
        config.pre_hook(named_arguments(autotuner, config, args, kwargs))
    passed = {**kwargs, **config.all_kwargs(), "grid": (1,), "warmup": True}
    try:
        _load(triton_run(autotuner.fn)(*args, **passed))
    except ERRORS as error:
        return f"{type(error).__name__}: {error}"
    return None


def _load(compiled: Any) -> None:
    if type(compiled) is not seam.CompiledKernel:
        return  # still being compiled, or kept from it by a hook: the launch will tell
    run = compiled.run
    if isinstance(run, functools.partial):  # a kernel that could not be loaded keeps its error
        run()
