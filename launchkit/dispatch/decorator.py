"""``@launchkit.autotuned``: triton.autotune whose kernels launch fast. Above launcher.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.launcher import launch_adopted
from launchkit.dispatch.native.entries import Subscript
from launchkit.dispatch.tuning.options import L2, Measure, Protect, TuningOptions
from launchkit.errors import UsageError
from launchkit.keys import DevicePolicy, ToolchainPolicy
from launchkit.store.lookup import KernelPolicies, Policies
from launchkit.store.shapes import Buckets, Nearest, Shape


class AutotunedKernel(Subscript, seam.Autotuner):  # type: ignore[misc]
    """A Triton Autotuner whose ``kernel[grid](...)`` takes launchkit's fast path.

    A subclass of Triton's, so that torch.compile, ``wrap_triton`` and code that reads
    ``configs``, ``cache`` or ``best_config`` see what they expect.
    """

    declared_name: str | None = None
    policies = KernelPolicies()
    tuning_options = TuningOptions()
    launches_through_launchkit = True

    def __repr__(self) -> str:
        return f"<AutotunedKernel {self.declared_name or self.base_fn.__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: a kernel is launched with a grid."""
        raise UsageError(f"{self!r} was called without a grid. Write kernel[grid](...).")

    def run(self, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or with ``warmup`` compile only, as Triton's Autotuner does."""
        if warmup:
            return super().run(*args, grid=grid, warmup=True, **kwargs)
        return launch_adopted(self, grid, *args, **kwargs)

    def triton_run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch through Triton's own Autotuner, without any shortcut."""
        # launchkit.install() lets this through: the class of the kernel has a run of its own.
        return super().run(*args, **kwargs)


def autotuned(
    configs: Sequence[Any],
    key: Sequence[str],
    *,
    name: str | None = None,
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    device: DevicePolicy | None = None,
    toolchain: ToolchainPolicy | None = None,
    shapes: Mapping[str, Shape] | None = None,
    measure: Measure | None = None,
    l2: L2 | None = None,
    protect: Protect = "auto",
    check_outputs: bool | tuple[float, float] = False,
    **options: Any,
) -> Callable[[Any], AutotunedKernel]:
    """Decorate a ``@triton.jit`` kernel so that ``kernel[grid](...)`` tunes once and launches fast.

    Takes every option of the installed ``triton.autotune``, with the same meaning.

    Args:
        configs: the ``triton.Config`` objects to choose from.
        key: names of the arguments whose values select a config; dtypes always do.
        name: the kernel's name in stored configs, stable when the function moves to another
            module; default ``module.qualname``.
        device, toolchain: whose stored configs this kernel takes where there are none of its own
            GPU and Triton, as in ``use_store``; None: as the process does.
        shapes: key argument → ``launchkit.buckets(...)`` or ``launchkit.nearest(...)``: which other
            values' stored configs it takes; a numeric argument that is no constexpr. Default: none.
        measure: ``"eager"`` times launches one by one, ``"graph"`` replays of a CUDA graph, for
            kernels that are launched so; by default as Triton does, or as LAUNCHKIT_MEASURE says.
        l2: ``"cold"`` empties the L2 cache before each timed launch, ``"warm"`` leaves it; by
            default what the way of measuring does (Triton's empties it, a graph leaves it).
        protect: what keeps arguments as they were while configs are tried. ``"auto"`` copies and
            restores those that the kernel changes, ``"copies"`` tries configs on clones of all,
            ``"none"`` leaves it to ``restore_value`` and ``reset_to_zero``.
        check_outputs: compare what the configs write on equal inputs, and exclude those that
            differ from most; or the (relative, absolute) tolerance to do it with.
        options: further options of ``triton.autotune``, such as ``do_bench``.

    Raises:
        UsageError: ``configs`` holds something else, a name in ``key``, ``reset_to_zero`` or
            ``restore_value`` is no argument of the kernel, one in ``shapes`` is not in ``key`` or is a
            constexpr, an option is none of its values or unknown to the installed Triton, or
            ``do_bench`` is given beside ``measure`` or ``l2``.
    """
    known = inspect.signature(seam.Autotuner.__init__).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UsageError(
            f"triton.autotune of the installed Triton has no option {', '.join(unknown)}. "
            f"Give those that it has: {', '.join(list(known)[1:])}.",
            options=unknown,
        )

    if options.get("do_bench") is not None and (measure is not None or l2 is not None):
        raise UsageError(
            "do_bench measures in a way of its own. Give it, or measure and l2.", option="do_bench"
        )
    tuning = TuningOptions(measure, l2, protect, check_outputs)
    _check_configs(configs)
    policies = KernelPolicies(device, toolchain, dict(shapes or {}))
    policies.over(Policies())  # raises for one that does not exist

    def decorate(fn: Any) -> AutotunedKernel:
        _check_names(fn, key=key, reset_to_zero=reset_to_zero, restore_value=restore_value)
        _check_shapes(fn, key, policies.shapes)
        kernel = AutotunedKernel(
            fn,
            fn.arg_names,
            list(configs),
            list(key),
            reset_to_zero,
            restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            prune_configs_by=prune_configs_by,
            **options,
        )
        kernel.declared_name = name
        kernel.policies = policies
        kernel.tuning_options = tuning
        return kernel

    return decorate


def _check_configs(configs: Sequence[Any]) -> None:
    wrong = next((config for config in configs if not hasattr(config, "all_kwargs")), None)
    if wrong is not None:
        raise UsageError(
            f"configs holds {wrong!r}, which is no config. Give triton.Config objects.",
            config=repr(wrong),
        )


def _check_names(fn: Any, **lists: Sequence[str] | None) -> None:
    if not hasattr(fn, "arg_names"):
        raise UsageError(
            f"{fn!r} is not a Triton kernel. Put @triton.jit below @launchkit.autotuned.",
            kernel=repr(fn),
        )
    for option, names in lists.items():
        if isinstance(names, str):
            raise UsageError(
                f"{option} is the text {names!r}. Give a list of names: {option}=[{names!r}].",
                option=option,
            )
        unknown = [name for name in names or () if name not in fn.arg_names]
        if unknown:
            raise UsageError(
                f"{option} names {', '.join(unknown)}, which the kernel does not have. "
                f"Give those that it has: {', '.join(fn.arg_names)}.",
                option=option,
                unknown=unknown,
            )


def _check_shapes(fn: Any, key: Sequence[str], shapes: Mapping[str, Shape]) -> None:
    jit = fn
    while not hasattr(jit, "params") and hasattr(jit, "fn"):
        jit = jit.fn
    constants = {param.name for param in getattr(jit, "params", ()) if param.is_constexpr}
    for name, shape in shapes.items():
        if name not in key or name in constants:
            raise UsageError(
                f"shapes names {name}, which is {'a constexpr' if name in constants else 'not in key'}. "
                "Give numeric key arguments alone: only their values may stand for each other.",
                name=name,
            )
        if not isinstance(shape, (Buckets, Nearest)):
            raise UsageError(
                f"shapes holds {shape!r} for {name}. Give launchkit.buckets(...) or "
                "launchkit.nearest(within=...).",
                name=name,
            )
