"""What a decorated kernel is made of: heuristics, autotuner, heuristics, the jitted function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.errors import UsageError

_AUTOTUNER_BEHAVIOUR = ("run", "_bench", "check_disk_cache", "do_bench")
_JIT_BEHAVIOUR = ("run", "create_binder", "_do_compile")


@dataclass(frozen=True)
class KernelParts:
    """The layers of decorators around one ``@triton.jit`` function, outermost first."""

    outer_heuristics: tuple[Any, ...]
    autotuner: Any
    inner_heuristics: tuple[Any, ...]
    jit: Any
    """A JITFunction, or an interpreted function under TRITON_INTERPRET=1."""


def take_apart(kernel: Any) -> KernelParts:
    """Split a decorated kernel into its layers.

    Raises:
        UsageError: the object is no Triton kernel, or has a layer that is not Triton's.
    """
    outer: list[Any] = []
    inner: list[Any] = []
    autotuner: Any = None
    layer = kernel
    while isinstance(layer, (seam.Heuristics, seam.Autotuner)):
        if isinstance(layer, seam.Autotuner):
            if autotuner is not None:
                raise UsageError(
                    f"{kernel_name(kernel)} is autotuned twice. Keep one @triton.autotune.",
                    kernel=kernel_name(kernel),
                )
            autotuner = layer
        else:
            (outer if autotuner is None else inner).append(layer)
        layer = layer.fn
    if not hasattr(layer, "run") or (not hasattr(layer, "params") and not seam.interpreting()):
        raise UsageError(
            f"{kernel!r} is not a Triton kernel. Pass the object that @triton.jit, "
            "@triton.autotune or @launchkit.autotuned returned.",
            kernel=repr(kernel),
        )
    return KernelParts(tuple(outer), autotuner, tuple(inner), layer)


def kernel_name(kernel: Any) -> str:
    """Return ``module.qualname`` of the Python function under a kernel."""
    function = kernel
    while hasattr(function, "fn"):
        function = function.fn
    return (
        f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(kernel))}"
    )


def has_own_launch(parts: KernelParts) -> bool:
    """Tell whether a layer launches or tunes in a way of its own.

    Such a subclass (one that reads configs from files, say) must not be shortened: what it
    would choose is not known here.
    """
    heuristics = (*parts.outer_heuristics, *parts.inner_heuristics)
    if any(_overrides(layer, seam.Heuristics, ("run",)) for layer in heuristics):
        return True
    # An interpreted function is no JITFunction; Triton 3.4 gives each a run of its own.
    own_jit = not seam.interpreting() and _overrides(parts.jit, seam.JITFunction, _JIT_BEHAVIOUR)
    return own_jit or (
        parts.autotuner is not None
        and _overrides(parts.autotuner, seam.Autotuner, _AUTOTUNER_BEHAVIOUR)
    )


def _overrides(layer: Any, base: type, names: tuple[str, ...]) -> bool:
    """Tell whether ``layer`` has one of these methods from below ``base``, ours left out."""
    below = [
        vars(cls)
        for cls in type(layer).__mro__
        if issubclass(cls, base)
        and cls is not base
        and "launches_through_launchkit" not in vars(cls)
    ]
    on_itself = set(vars(layer)) - {"do_bench"}
    return any(name in on_itself or any(name in cls for cls in below) for name in names)


def autotune_key(
    autotuner: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the key that Triton's Autotuner makes for a launch: values, then dtypes in call order."""
    named = {**dict(zip(autotuner.arg_names, args, strict=False)), **kwargs}
    named = {name: value for name, value in named.items() if name in autotuner.arg_names}
    values = [named[name] for name in autotuner.keys if name in named]
    dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return (*values, *dtypes)


def autotuner_knows(autotuner: Any, key: tuple[Any, ...]) -> bool:
    """Tell whether Triton's Autotuner has a config for a key, or will refuse the key."""
    try:
        return key in autotuner.cache
    except TypeError:  # an unhashable value: Triton raises the same, before it measures
        return True
