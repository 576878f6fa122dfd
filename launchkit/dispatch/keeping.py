"""Making a kernel's core, and keeping in it what Triton has just launched. Below launch_path.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

from launchkit.dispatch import launch_counts
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import extension
from launchkit.dispatch.native.c_core import MAX_PARAMS, CCore
from launchkit.dispatch.native.guard import ParamSpec, generable
from launchkit.dispatch.native.interface import Core
from launchkit.dispatch.native.python_core import PythonCore
from launchkit.dispatch.plan import ConfigPin, LaunchPlan


def make_core(
    jit: Any,
    keys: tuple[str, ...],
    supplied: frozenset[str],
    autotuner: Any = None,
    choose_only: bool = False,
    relink: Callable[[Callable[..., Any]], None] = lambda launch: None,
) -> Core | None:
    """Return a core for a kernel, or None for a signature or mode that it does not cover.

    Args:
        jit: the jitted function.
        keys: names of the parameters whose values select a config.
        supplied: names of those that a config gives, and a caller must not.
        autotuner: the Autotuner whose list the configs are of; None for a plain kernel.
        choose_only: the core finds the config, and launches nothing.
        relink: is told of each new front that the Python core makes for itself.
    """
    if seam.interpreting():
        return None
    signature = jit.signature.parameters
    kinds = {p.kind for p in signature.values()}
    if kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        return None
    if Parameter.KEYWORD_ONLY in kinds and not seam.BINDS_KEYWORD_ONLY:
        return None
    params = tuple(
        ParamSpec(
            name=param.name,
            constexpr=param.is_constexpr,
            specialize=not param.do_not_specialize,
            align=not param.do_not_specialize_on_alignment,
            in_key=param.name in keys,
            supplied=param.name in supplied,
            default=param.default,
            has_default=param.has_default,
            keyword_only=signature[param.name].kind is Parameter.KEYWORD_ONLY,
        )
        for param in jit.params
    )
    if not generable(param.name for param in params):
        return None
    native = extension.active() if len(params) <= MAX_PARAMS else None
    if native is not None:
        return CCore(native, params, jit, autotuner, choose_only)
    return PythonCore(params, jit, autotuner, choose_only, relink)


def keep_plan(
    core: Core | None,
    jit: Any,
    compiled: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    choice: ConfigPin | None = None,
    premises: tuple[tuple[str, Any, dict[str, Any]], ...] = (),
) -> str:
    """Keep what Triton just launched as a plan, if nothing stands against a shortcut.

    Returns why the launch went through Triton. ``compiled`` is what it returned for ``args`` and
    ``kwargs``; ``choice`` is the config, None for a plain kernel. ``premises`` are checked at each
    launch of the plan like the globals that the kernel reads.
    """
    if core is None:
        return launch_counts.INTERPRETED if seam.interpreting() else launch_counts.SIGNATURE
    if compiled is None:
        return launch_counts.NOT_COMPILED
    obstacle = seam.shortcut_obstacle(jit, compiled)
    if obstacle is not None:
        return obstacle
    # What this config leaves out, though another one gives it, has its default; what is no
    # parameter is an option of the compiler.
    given = {} if choice is None else choice.config.kwargs
    supplied = {**core.defaults, **{n: v for n, v in given.items() if n in core.parameters}}

    def make_plan() -> LaunchPlan | None:
        place = seam.cache_place(jit, seam.current_device(), compiled)
        if place is None:
            return None
        return LaunchPlan(compiled, place, (*seam.used_globals(jit), *premises), choice, supplied)

    if core.supplied >= supplied.keys():  # else the list changed while this launch was under way
        return renew(core, args, kwargs, None if choice is None else choice.configs, make_plan)
    return launch_counts.NOT_KEPT


def renew(
    core: Core,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    configs: Any,
    make_plan: Callable[[], ConfigPin | None],
) -> str:
    """Put a plan where these arguments will find it, if they can have one.

    ``configs``: the list that the plan's config was chosen from; ``make_plan`` is called only where
    the plan can be kept. Returns why the launch went through Triton.
    """
    slot = core.slot(args, kwargs)
    if slot is not None and core.holds(slot) and core.find(args, kwargs) is None:
        # A plan is there and its check fails: something that bodies hold on to has changed.
        core.clear()
        slot = core.slot(args, kwargs)
    if slot is None:
        return _why_no_slot(core, args, kwargs)
    # A choice from another state of the config list must not come under this one's guard.
    plan = make_plan() if core.accepts(slot, configs) else None
    if plan is None:
        return launch_counts.NOT_KEPT
    core.insert(slot, plan)
    return launch_counts.FIRST if core.watchable else launch_counts.UNWATCHED


def _why_no_slot(core: Core, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    if not core.watchable:
        return launch_counts.UNWATCHED
    unknown = core.unknown(args, kwargs)
    return launch_counts.VALUES if unknown is None else f"{launch_counts.UNKNOWN}: {unknown}"
