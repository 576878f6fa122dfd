"""Generated functions that bind a kernel's arguments as Python does. Below both cores.

The twin launches through them; the C core has them say what is wrong with a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from launchkit.dispatch.native import guard
from launchkit.dispatch.native.guard import ParamSpec

MISS = type("Miss", (), {"__repr__": lambda self: "MISS", "__slots__": ()})()
"""What a core returns when a launch has to go the long way."""

_UNSET = type("Unset", (), {"__repr__": lambda self: "UNSET", "__slots__": ()})()


def make_front(
    params: Sequence[ParamSpec],
    name: str,
    optional: bool,
    tail: Sequence[str],
    first: Sequence[str] = (),
    extra: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., Any]:
    """Return a function with the kernel's own signature after a ``__grid``.

    It returns MISS for an argument that the config gives and for options that are not simple,
    and goes on with ``tail``, which finds ``__types`` and ``__options`` made. ``optional``: a
    missing argument is no error, but of a type of its own. Python names it ``name`` where a
    call does not fit.
    """
    signature, namespace = _signature(params, optional)
    types = "".join(f"__type({param.name}), " for param in params if not param.supplied)
    supplied = [f"{param.name} is not __unset" for param in params if param.supplied]
    lines = [
        f"def front({signature}):",
        *(miss_if(" or ".join(supplied)) if supplied else []),
        *first,
        "    __options = __option_key(__given_options) if __given_options else ()",
        *miss_if("__options is None"),
        f"    __types = ({types})",
        *tail,
    ]
    front = compile_function(
        lines, {**namespace, "__option_key": guard.option_key, **extra}, "front"
    )
    front.__qualname__ = front.__name__ = name
    return front


def _signature(params: Sequence[ParamSpec], optional: bool) -> tuple[str, dict[str, Any]]:
    parts, namespace = ["__grid", "/"], {}
    for param in params:
        if param.keyword_only and "*" not in parts:
            parts.append("*")
        optional = optional or param.supplied or param.has_default
        if not optional:
            parts.append(param.name)
            continue
        # A required parameter behind an optional one: its type Unset gets no plan.
        default = param.default if param.has_default and not param.supplied else _UNSET
        namespace[f"__default_{param.name}"] = default
        parts.append(f"{param.name}=__default_{param.name}")
    return ", ".join([*parts, "**__given_options"]), namespace


def miss_if(condition: str) -> list[str]:
    """Return the lines that return MISS where a condition holds."""
    return [f"    if {condition}:", "        return __miss"]


def compile_function(
    lines: Sequence[str], namespace: Mapping[str, Any], name: str
) -> Callable[..., Any]:
    """Return the function ``name`` that the lines define, over a namespace."""
    scope: dict[str, Any] = {
        "__callable": callable,
        "__len": len,
        "__miss": MISS,
        "__nothing": (None,),
        "__type": type,
        "__unset": _UNSET,
        **namespace,
    }
    exec(compile("\n".join(lines), f"<launchkit {name}>", "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return function
