"""A front for heuristics that only ask whether an argument is None. Below heuristic_path.py.

Nearly all heuristics of public kernels are of this kind. Such a function reads nothing but the
one argument, so its value is computed in place; no mapping is built and nothing is called. The C
core does it by itself; in front of the Python one stands a generated function.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

from launchkit.dispatch.layers import KernelParts, supplied_names
from launchkit.dispatch.native import extension, premises
from launchkit.dispatch.native.fronts import compile_function
from launchkit.dispatch.native.guard import generable

_NOISE = {"RESUME", "NOP", "CACHE", "PRECALL", "NOT_TAKEN"}


def none_test(function: Any) -> tuple[str, bool] | None:
    """Return (argument, value for None) of ``lambda args: args["x"] is not None`` and ``is None``.

    None for any other function: what it does must be left to itself.
    """
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    if (code.co_argcount, code.co_kwonlyargcount, code.co_nlocals) != (1, 0, 1):
        return None
    found = [each for each in dis.get_instructions(function) if each.opname not in _NOISE]
    if len(found) != 6:
        return None
    mapping, name, subscript, none, test, leave = found
    fits = (
        mapping.opname in ("LOAD_FAST", "LOAD_FAST_BORROW")
        and type(name.argval) is str
        and name.opname == none.opname == "LOAD_CONST"
        and (subscript.opname == "BINARY_SUBSCR" or subscript.argrepr == "[]")
        and none.argval is None
        and test.opname == "IS_OP"
        and leave.opname == "RETURN_VALUE"
    )
    return (name.argval, not test.arg) if fits else None


def heuristic_front(parts: KernelParts, below: Any) -> Callable[..., Any] | None:
    """Return a function that launches like the outer heuristics of a kernel, or None.

    ``below`` is the launcher under the heuristics. The function returns MISS where that one
    does, and for what it was not made for: missing arguments, values of today's configs given
    by the caller, heuristics that have changed.
    """
    names = list(parts.jit.arg_names)
    tests = _tests(parts.outer_heuristics, names)
    kinds = {p.kind for p in parts.jit.signature.parameters.values()}
    if tests is None or kinds != {Parameter.POSITIONAL_OR_KEYWORD} or not generable(names):
        return None
    asked = [name for name in names if name not in tests]
    later = supplied_names(parts) & set(asked)
    if any(argument not in set(asked) - later for argument, _ in tests.values()):
        return None
    front = _generate(parts, below, asked, later, tests)
    native = extension.active()
    return front if native is None else _in_c(native, parts, below, tests, front)


def derived_values(
    parts: KernelParts, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, bool]:
    """Return what a front computes for the heuristics of a call, as far as it is given their
    arguments; nothing where there is no front."""
    tests = _tests(parts.outer_heuristics, list(parts.jit.arg_names)) or {}
    named = {**dict(zip(parts.jit.arg_names, args, strict=False)), **kwargs}
    return {
        name: (named[argument] is None) == for_none
        for name, (argument, for_none) in tests.items()
        if argument in named
    }


def _in_c(
    native: types.ModuleType,
    parts: KernelParts,
    below: Any,
    tests: dict[str, tuple[str, bool]],
    front: Callable[..., Any],
) -> Callable[..., Any]:
    """Return the C core's front; ``front`` serves where what is below is not the C core."""
    index = {name: number for number, name in enumerate(parts.jit.arg_names)}
    derived = tuple(
        (index[name], index[argument], for_none) for name, (argument, for_none) in tests.items()
    )
    try:
        watched = native.WatchSet(*premises.of_heuristics(parts.outer_heuristics))
    except TypeError:  # no plain dictionary
        return front
    made: Callable[..., Any] = native.HeuristicFront(below, derived, watched, front)
    return made


def _tests(layers: Sequence[Any], names: list[str]) -> dict[str, tuple[str, bool]] | None:
    tests: dict[str, tuple[str, bool]] = {}
    for layer in layers:
        for name, function in layer.values.items():
            test = none_test(function)
            if test is None or name in tests or name not in names or layer.arg_names != names:
                return None
            tests[name] = test
    return tests


def _generate(
    parts: KernelParts,
    below: Any,
    asked: list[str],
    later: frozenset[str],
    tests: dict[str, tuple[str, bool]],
) -> Callable[..., Any]:
    names = parts.jit.arg_names
    # Behind a name that a heuristic gives, a caller can only speak of an argument by its own;
    # and so can this function behind one that a config gives.
    gap = next(i for i, name in enumerate(names) if name in tests)
    prefix = next(i for i, name in enumerate(names) if name in tests or name in later)
    signature = [f"{name}=__unset" for name in asked]
    signature[gap:gap] = ["*"] if gap < len(asked) else []
    given = [name for name in asked if name not in later]
    unfit = [f"{name} is {'not ' if name in later else ''}__unset" for name in asked]
    layers = {f"__layer{i}": layer for i, layer in enumerate(parts.outer_heuristics)}
    unfit += [f"{layer}.values != {layer}_values" for layer in layers]
    values = [
        f"{name}={argument} is {'' if for_none else 'not '}None"
        for name, (argument, for_none) in tests.items()
    ]
    arguments = ", ".join(
        [*given[:prefix], *(f"{name}={name}" for name in given[prefix:]), *values]
    )
    lines = [
        f"def front({', '.join(['__grid', '/', *signature, '**__options'])}):",
        f"    if {' or '.join(unfit)}:",
        "        return __miss",
        "    if __options:",
        "        if not __options.keys().isdisjoint(__tested):",
        "            return __miss",
        f"        return __below.direct(__grid, {arguments}, **__options)",
        f"    return __below.direct(__grid, {arguments})",
    ]
    namespace = {
        "__below": below,
        "__tested": frozenset(tests),
        **layers,
        **{f"{name}_values": dict(layer.values) for name, layer in layers.items()},
    }
    front = compile_function(lines, namespace, "front")
    front.__qualname__ = front.__name__ = parts.jit.__name__
    return front
