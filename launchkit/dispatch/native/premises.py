"""What a plan of the C core rests on: what must stay as it is. Below c_core.py.

A watch is (dictionary, expected values by key, class whose attributes count too, whether there
may be no further keys, what else will do).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from launchkit import settings
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.plan import ConfigPin, LaunchPlan

ABSENT = type("Absent", (), {"__repr__": lambda self: "ABSENT", "__slots__": ()})()
"""Stands in a watch for a key that the dictionary does not have."""

# What will do besides the very object: nothing, an equal one, a switch that is off.
_SAME, _EQUAL, _OFF = 0, 1, 2

Watch = tuple[dict[Any, Any], dict[Any, Any], "type | None", bool, int]
Watches = tuple[tuple[Watch, ...], tuple[tuple[Any, tuple[Any, ...]], ...]]
"""Watches, and (list, the elements that it has to have)."""


def attributes(owner: Any, names: Iterable[str], mode: int = _SAME) -> Watch:
    """Return a watch over attributes of an object as they are now.

    Where the object has none of its own its class speaks, and must not change either.
    """
    found = vars(owner)
    expected = {name: found.get(name, ABSENT) for name in names}
    of_class = ABSENT in expected.values()
    return found, expected, type(owner) if of_class else None, False, mode


def of_core(jit: Any, autotuner: Any, choose_only: bool) -> Watches | None:
    """Return what all plans of a core rest on, or None where something stands against any."""
    state, switches, empty = seam.launch_state(None if choose_only else jit)
    watches = [attributes(owner, names) for owner, names in state]
    watches += [attributes(owner, names, _OFF) for owner, names in switches]
    if not choose_only and (variable := seam.LAUNCH_VARIABLE) is not None:
        found = settings.environment()
        watches.append((found, {variable: found.get(variable, ABSENT)}, None, False, _SAME))
    sequences = [(each, ()) for each in empty]
    if not choose_only and seam.launch_obstacle(jit) is not None:
        return None
    if autotuner is not None:
        watches.append(attributes(autotuner, ("configs", "keys")))
        sequences += [(each, tuple(each)) for each in (autotuner.configs, autotuner.keys)]
    return tuple(watches), tuple(sequences)


def of_plan(plan: ConfigPin, jit: Any) -> Watches:
    """Return what one plan rests on: its config's fields, Triton's caches, the globals."""
    watches = list(_config_watches(plan))
    if not isinstance(plan, LaunchPlan):
        return tuple(watches), ()
    watches.append((jit.device_caches, {plan.device: plan.cache_entry}, None, False, _SAME))
    watches.append((plan.cache, {plan.cache_key: plan.compiled}, None, False, _SAME))
    of_namespaces, sequences = of_globals(plan)
    return (*watches, *of_namespaces), sequences


def of_globals(plan: LaunchPlan) -> Watches:
    """Return what must stay of the globals that a plan's kernel read when it was compiled.

    Raises:
        TypeError: one of them can change in place where no watch sees it.
    """
    watches: list[Watch] = []
    contents: dict[int, Any] = {}
    for name, value, namespace in plan.globals:
        watches.append((namespace, {name: value}, None, False, _EQUAL))
        _collect(namespace.get(name), contents)
    sequences = []
    for each in contents.values():
        if isinstance(each, list):
            sequences.append((each, tuple(each)))
        elif isinstance(each, dict):
            watches.append((each, dict(each), None, True, _SAME))
        else:
            watches.append((vars(each), {"value": each.value}, None, False, _SAME))
    return tuple(watches), tuple(sequences)


def _collect(value: Any, found: dict[int, Any]) -> None:
    """Collect by id what can change in place in a value, and leave the namespace as it is."""
    if id(value) in found:
        return
    if isinstance(value, (seam.triton_constexpr, list, dict)):
        found[id(value)] = value
    elif type(value).__hash__ is None:
        raise TypeError(f"a {type(value).__name__} may change unseen")
    for part in _parts(value):
        _collect(part, found)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, seam.triton_constexpr):
        return (value.value,)
    if isinstance(value, dict):
        return tuple(value.values())
    return value if isinstance(value, (list, tuple)) else ()


def of_heuristics(layers: Iterable[Any]) -> Watches:
    """Return what a front rests on that knows what the heuristics of some layers say."""
    watches: list[Watch] = []
    for layer in layers:
        watches.append(attributes(layer, ("values",)))
        watches.append((layer.values, dict(layer.values), None, True, _SAME))
    return tuple(watches), ()


def _config_watches(plan: ConfigPin) -> Iterable[Watch]:
    if plan.config is None:
        return
    fields, expected = plan.config_fields, dict(plan.config_snapshot)
    for name, value in plan.config_snapshot.items():
        live = fields.get(name)
        if isinstance(value, dict) and isinstance(live, dict):
            # The snapshot has a copy: the live one must stay, and so must what is in it.
            expected[name] = live
            yield live, dict(value), None, True, _SAME
    yield fields, expected, None, True, _SAME


def supplied_values(plan: Mapping[str, Any], names: Iterable[str]) -> tuple[Any, ...]:
    """Return the value of each parameter that a config gives, None for the others."""
    return tuple(plan.get(name) for name in names)
