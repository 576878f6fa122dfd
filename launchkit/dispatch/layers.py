"""What a kernel is made of: heuristics, autotuner, heuristics, jitted function. Above the seam."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import triton

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


def supplied_names(parts: KernelParts) -> frozenset[str]:
    """Return the parameters that configs give, and the heuristics below them."""
    configs = () if parts.autotuner is None else parts.autotuner.configs
    of_configs = frozenset(name for config in configs for name in config.kwargs)
    return of_configs.union(*(layer.values for layer in parts.inner_heuristics))


def declared_name(kernel: Any) -> str | None:
    """Return the name that ``@autotuned`` was given for a kernel or a layer of it, or None."""
    names = (getattr(layer, "declared_name", None) for layer in layers_of(kernel))
    return next(filter(None, names), None)


def shown_name(kernel: Any) -> str:
    """Return what a kernel is called in counts and messages."""
    return declared_name(kernel) or kernel_name(kernel)


def layers_of(kernel: Any) -> list[Any]:
    """Return a kernel's layers, outermost first and the jitted function last."""
    found = [kernel]
    while isinstance(found[-1], (seam.Heuristics, seam.Autotuner)):
        found.append(found[-1].fn)
    return found


def triton_run(kernel: Any) -> Callable[..., Any]:
    """Return how Triton launches a kernel, whoever has put launchkit in front of it.

    For an ``@autotuned`` kernel that is Triton's Autotuner; for a subclass with a ``run`` of its
    own it is that one.
    """
    run: Callable[..., Any] = getattr(kernel, "triton_run", None) or kernel.run
    original = getattr(run, "launchkit_original", None)
    if original is None:
        return run
    if isinstance(kernel, seam.Heuristics):
        # Its own run would call the layer below through launchkit again.
        return functools.partial(_run_heuristics, kernel)
    return functools.partial(original, kernel)


def _run_heuristics(kernel: Any, /, *args: Any, **kwargs: Any) -> Any:
    for name, heuristic in kernel.values.items():
        kwargs[name] = heuristic({**dict(zip(kernel.arg_names, args, strict=False)), **kwargs})
    return triton_run(kernel.fn)(*args, **kwargs)


def own_layer(parts: KernelParts, adapted: bool = False) -> Any:
    """Return a layer that launches or tunes in a way of its own, or None if there is none.

    Such a subclass (one that reads configs from files, say) must not be shortened: what it
    would choose is not known here. ``adapted``: of the autotuner it is known.
    """
    behaviours: list[tuple[Any, type, tuple[str, ...]]] = [
        (layer, seam.Heuristics, ("run",))
        for layer in (*parts.outer_heuristics, *parts.inner_heuristics)
    ]
    if not seam.interpreting():
        # An interpreted function is no JITFunction; Triton 3.4 gives each a run of its own.
        behaviours.append((parts.jit, seam.JITFunction, _JIT_BEHAVIOUR))
    if parts.autotuner is not None and not adapted:
        behaviours.append((parts.autotuner, seam.Autotuner, _AUTOTUNER_BEHAVIOUR))
    return next(
        (layer for layer, base, names in behaviours if _overrides(layer, base, names)), None
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


def named_arguments(
    autotuner: Any, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what Triton gives hooks: a launch's arguments by name, and the config's values."""
    named = dict(zip(autotuner.arg_names, args, strict=False))
    return {**named, **kwargs, **config.all_kwargs()}


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


def is_plain_config(config: Any) -> bool:
    """Tell whether a config's keyword values are what Triton's own Config makes of its fields."""
    return getattr(type(config), "all_kwargs", None) is triton.Config.all_kwargs
