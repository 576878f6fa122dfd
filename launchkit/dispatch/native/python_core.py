"""The launch core in Python: generated functions, plan table, launch. Below keeping.py.

For each kernel a *front* is generated with the kernel's own signature, so that Python binds
positional arguments, keywords and defaults. It looks up a *body* by the tuple of argument
types; the body, generated for exactly these types, builds the guard key, finds the plan, checks
what Triton would read at a launch, evaluates the grid and calls the compiled C launcher.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import guard
from launchkit.dispatch.native.fronts import MISS, compile_function, make_front, miss_if
from launchkit.dispatch.native.guard import GuardPart, ParamSpec
from launchkit.dispatch.native.launcher_text import launch_text
from launchkit.dispatch.plan import ConfigPin, LaunchPlan, PlanTable

MAX_BODIES = 64
"""Tuples of argument types per kernel that get a body; more go through Triton."""


@dataclass(frozen=True)
class _Body:
    """Guard, plans and launch for one tuple of argument types."""

    plans: PlanTable
    lines: list[str]
    namespace: dict[str, Any]
    launch: Callable[..., Any]
    find: Callable[..., Any]
    preview: Callable[..., Any]
    key_of: Callable[..., Any]


class PythonCore:
    """Guard, plan table and launch of one kernel.

    ``choose_only`` makes a core that returns the plan instead of launching it: it keys on
    autotune keys and dtypes alone and is used in front of heuristics that need the config.

    What it has in common with the C core stands in ``interface.Core``.
    """

    def __init__(
        self,
        params: Sequence[ParamSpec],
        jit: Any,
        autotuner: Any = None,
        choose_only: bool = False,
        relink: Callable[[Callable[..., Any]], None] = lambda launch: None,
    ) -> None:
        self._params = tuple(params)
        self._given = tuple(param for param in params if not param.supplied)
        self.parameters = frozenset(param.name for param in params)
        self.supplied = frozenset(param.name for param in params if param.supplied)
        self.defaults = {p.name: p.default for p in params if p.supplied and p.has_default}
        self.watchable = True
        self._choose_only = choose_only
        self._autotuner = autotuner
        self._jit = jit
        self._bodies: dict[tuple[type, ...], _Body | None] = {}
        self._launches: dict[tuple[type, ...], Callable[..., Any]] = {}
        self._names = "".join(f", {param.name}" for param in self._given)
        self._relink = relink
        # Taken when bodies are made or dropped, never by a hit; a body's code and its table of
        # plans must stay a pair.
        self._lock = threading.RLock()
        self._binder = self._make_front([f"    return __types, (__grid, __options{self._names})"])
        self._front = self._make_front(self._table_lines())
        self.launch = self._front

    def clear(self) -> None:
        """Forget every plan; the next ones are made from Triton's global state as it is then."""
        with self._lock:
            self._link(self._front)
            self._launches.clear()
            self._bodies.clear()

    def _link(self, launch: Callable[..., Any]) -> None:
        self.launch = launch
        self._relink(launch)

    def __len__(self) -> int:
        return sum(len(body.plans) for body in list(self._bodies.values()) if body is not None)

    # -- the long way's side

    def slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[_Body, Any] | None:
        """Return where the plan of these arguments belongs, or None if they get no plan.

        Raises:
            TypeError: the arguments do not fit the kernel's signature.
        """
        bound = self._binder(None, *args, **kwargs)
        if bound is MISS:
            return None
        types, arguments = bound
        body = self._body(types)
        if body is not None and body.namespace["__driver"] is not seam.active_driver():
            self.clear()
            body = self._body(types)
        key = MISS if body is None else body.key_of(*arguments)
        return None if body is None or key is MISS else (body, key)

    def unknown(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return ``name (type)`` of an argument or option for which there is no slot, or None."""
        return guard.unknown_argument(self._params, self._choose_only, args, kwargs)

    def _body(self, types: tuple[type, ...]) -> _Body | None:
        with self._lock:
            if types not in self._bodies and len(self._bodies) < MAX_BODIES:
                made = self._bodies[types] = self._make_body(types)
                if made is not None:
                    self._launches[types] = made.launch
                    if len(self._launches) == 1:
                        self._link(self._inlined_front(types, made))
            return self._bodies.get(types)

    def insert(self, slot: tuple[_Body, Any], plan: ConfigPin) -> None:
        """Keep a plan; the next launch that the guard finds equal takes it."""
        body, key = slot
        body.plans.insert(key, plan)

    def accepts(self, slot: tuple[_Body, Any], configs: Any) -> bool:
        """Tell whether plans of a choice from this config list may be kept at a slot.

        A body checks against the config list of the time it was made.
        """
        return bool(slot[0].namespace["__configs"] == configs)

    def plans(self) -> list[ConfigPin]:
        """Return the plans that are kept."""
        bodies = [body for body in list(self._bodies.values()) if body is not None]
        return [plan for body in bodies for plan in list(body.plans.values())]

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ConfigPin | None:
        """Return the plan that a launch with these arguments takes, or None for the long way."""
        bound = self._binder(None, *args, **kwargs)
        body = None if bound is MISS else self._bodies.get(bound[0])
        plan = MISS if body is None else body.find(*bound[1])
        return None if plan is MISS else plan

    def preview(
        self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[LaunchPlan, tuple[Any, ...]] | None:
        """Return the plan that a launch takes and what it would pass on, or None."""
        bound = MISS if self._choose_only else self._binder(grid, *args, **kwargs)
        body = None if bound is MISS else self._bodies.get(bound[0])
        found = MISS if body is None else body.preview(*bound[1])
        return None if found is MISS else found

    def holds(self, slot: tuple[_Body, Any]) -> bool:
        """Tell whether a plan is kept at a slot, whether or not it still holds."""
        body, key = slot
        return key in body.plans

    # -- generated functions

    def _make_front(
        self, tail: Sequence[str], first: Sequence[str] = (), extra: Mapping[str, Any] | None = None
    ) -> Callable[..., Any]:
        # A config list that is new to this core may give what a caller used to: what is missing
        # finds no body, and on the long way either the new list or Triton's error.
        optional = self._autotuner is not None
        namespace = {"__bodies_get": self._launches.get, **(extra or {})}
        name = self._jit.__name__
        return make_front(self._params, name, optional, tail, first, namespace)

    def _table_lines(self) -> list[str]:
        return [
            "    __body = __bodies_get(__types)",
            *miss_if("__body is None"),
            f"    return __body(__grid, __options{self._names})",
        ]

    def _inlined_front(self, types: tuple[type, ...], body: _Body) -> Callable[..., Any]:
        """Return a front with one body inside: a kernel is mostly called with the same types.

        Saves the tuple of types and a call with every argument, a tenth of a launch.
        """
        kinds = {kind: f"__kind{i}" for i, kind in enumerate(dict.fromkeys(types))}
        checks = [
            f"__type({param.name}) is {kinds[kind]}"
            for param, kind in zip(self._given, types, strict=True)
        ]
        first = [
            f"    if {' and '.join(['not __given_options', *checks])}:",
            "        __options = ()",
            *(f"    {line}" for line in body.lines),
        ]
        extra = {**body.namespace, **{name: kind for kind, name in kinds.items()}}
        return self._make_front(self._table_lines(), first, extra)

    def _make_body(self, types: tuple[type, ...]) -> _Body | None:
        parts = guard.guard_parts(self._given, types, self._choose_only)
        if parts is None:
            return None
        tensors = [p for p, kind in zip(self._given, types, strict=True) if kind in guard.TENSORS]
        pointers = {} if self._choose_only else {p.name: guard.pointer_name(p) for p in tensors}
        plans, seen = PlanTable(), PlanTable()
        namespace = {
            **guard.GUARD_NAMESPACE,
            **seam.launch_namespace(self._jit),
            "__finish": seam.finish_launch,
            "__plans_get": plans.get,
            "__seen_get": seen.get,
            "__see": seen.insert,
            "__autotuner": self._autotuner,
            "__configs": None if self._autotuner is None else self._autotuner.configs[:],
            "__keys": None if self._autotuner is None else self._autotuner.keys[:],
        }
        head = [f"    {local} = {name}.data_ptr()" for name, local in pointers.items()]
        head.append("    __on = __device()")
        look_up = [*head, *_find_lines(parts), *miss_if(" or ".join(self._stale_conditions()))]
        find = [*look_up, "    return __plan"]
        lines = find if self._choose_only else [*look_up, *self._launch_lines(pointers)]
        preview = find if self._choose_only else [*look_up, *self._preview_lines(pointers)]
        elsewhere = [f"not {guard.on_device(p)}" for p in tensors if not self._choose_only]
        key_of = [
            "    __on = __device()",
            # Of such tensors Triton accepts some and refuses others, one by one.
            *(miss_if(" or ".join(elsewhere)) if elsewhere else []),
            *head,
            f"    return {_key_text([part.wide for part in parts])}",
        ]
        head_of = f"(__grid, __options{self._names}):"
        return _Body(
            plans,
            lines,
            namespace,
            compile_function([f"def body{head_of}", *lines], namespace, "body"),
            compile_function([f"def find{head_of}", *find], namespace, "find"),
            compile_function([f"def preview{head_of}", *preview], namespace, "preview"),
            compile_function([f"def key_of{head_of}", *key_of], namespace, "key_of"),
        )

    def _stale_conditions(self) -> list[str]:
        """Return what must not be true for a plan that was found: its premises have changed."""
        conditions = [seam.DRIVER_GUARD]
        if self._autotuner is not None:
            conditions.append("__autotuner.configs != __configs")
            conditions.append("__autotuner.keys != __keys")
            conditions.append("__plan.config_fields != __plan.config_snapshot")
            if len(self._autotuner.configs) == 1:
                # Of several, Triton goes on with the object that it chose; of one, with this.
                conditions.append("__autotuner.configs[0] is not __plan.config")
        if not self._choose_only:
            # 1 and 1.0 are equal, and are not the same argument.
            conditions += [
                f"__plan.config.kwargs.get({p.name!r}, __plan.supplied[{p.name!r}])"
                f" is not __plan.supplied[{p.name!r}]"
                for p in self._params
                if p.supplied and not p.constexpr and self._autotuner is not None
            ]
            conditions.append(seam.LAUNCH_GUARD)
            conditions.append("__jit.device_caches.get(__on, __nothing)[0] is not __plan.cache")
            conditions.append("__plan.cache.get(__plan.cache_key) is not __plan.compiled")
            conditions.append("__plan.globals and __plan.globals_changed()")
        return conditions

    def _values(self) -> dict[str, str]:
        return {
            p.name: f"__plan.supplied[{p.name!r}]" if p.supplied else p.name for p in self._params
        }

    def _preview_lines(self, pointers: Mapping[str, str]) -> list[str]:
        values = self._values()
        named = ", ".join(f"{name!r}: {value}" for name, value in values.items())
        passed = "".join(f"{pointers.get(name, value)}, " for name, value in values.items())
        return [
            "    if __callable(__grid):",
            f"        __grid = __grid({{{named}}})",
            f"    return __plan, (__grid, ({passed}))",
        ]

    def _launch_lines(self, pointers: Mapping[str, str]) -> list[str]:
        values = self._values()
        named = ", ".join(f"{name!r}: {value}" for name, value in values.items())
        direct, through_run = launch_text([pointers.get(n, v) for n, v in values.items()])
        remember = (
            "__autotuner.best_config = __plan.config" if self._autotuner is not None else "pass"
        )
        return [
            # The stream first, then the grid, then what the grid function may have installed: as
            # Triton reads them.
            "    __stream = __stream_of(__on)",
            "    if __callable(__grid):",
            f"        __grid = __grid({{{named}}})",
            f"        if {seam.LAUNCH_GUARD}:",
            f"            __finish(__plan.compiled, __grid, __stream, ({''.join(f'{v}, ' for v in values.values())}))",
            f"            {remember}",
            "            return __plan.compiled",
            "    __n = __len(__grid)",
            "    __x = __grid[0]",
            "    __y = __grid[1] if __n > 1 else 1",
            "    __z = __grid[2] if __n > 2 else 1",
            "    __call = __plan.call",
            f"    if __plan.direct: {direct}",
            f"    else: {through_run}",
            f"    {remember}",
            "    return __plan.compiled",
        ]


def _key_text(texts: Sequence[str]) -> str:
    return f"(__on, __options, {''.join(f'{text}, ' for text in texts)})"


def _find_lines(parts: Sequence[GuardPart]) -> list[str]:
    """Look a launch up by its exact values first: classing 28 ints costs more than hashing them."""
    return [
        f"    __exact = {_key_text([part.exact for part in parts])}",
        "    __plan = __seen_get(__exact)",
        "    if __plan is None:",
        f"        __plan = __plans_get({_key_text([part.wide for part in parts])})",
        "        if __plan is None:",
        "            return __miss",
        "        __see(__exact, __plan)",
    ]
