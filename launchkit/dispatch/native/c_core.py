"""The C core of one kernel: what Python does for it, off the path of a hit. Below keeping.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from launchkit.dispatch import plan as plan_module
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native import premises
from launchkit.dispatch.native.fronts import make_front
from launchkit.dispatch.native.guard import ParamSpec, unknown_argument
from launchkit.dispatch.native.layout import direct_layout
from launchkit.dispatch.plan import ConfigPin, LaunchPlan

# Flags of a parameter, as in core.h.
_EXACT, _SPECIALIZED, _ALIGNED, _SUPPLIED = 1, 2, 4, 8
# A dictionary and a key, as the core reads the current device.
_FIRST_DEVICE = ({"device": 0}, "device")

MAX_PARAMS = 256
"""Parameters of a kernel that the C core serves."""


class CCore:
    """Guard, plan table and launch of one kernel in C; see ``interface.Core``."""

    def __init__(
        self,
        extension: ModuleType,
        params: Sequence[ParamSpec],
        jit: Any,
        autotuner: Any = None,
        choose_only: bool = False,
    ) -> None:
        self._extension = extension
        self._jit = jit
        self._autotuner = autotuner
        self._choose_only = choose_only
        self._params = tuple(params)
        self._names = tuple(param.name for param in params)
        self._indices = {name: index for index, name in enumerate(self._names)}
        self.parameters = frozenset(self._names)
        self.supplied = frozenset(param.name for param in params if param.supplied)
        self.defaults = {p.name: p.default for p in params if p.supplied and p.has_default}
        self.watchable = True
        self._configs: Any = None
        # Taken when everything is forgotten and read anew; never by a hit.
        self._lock = threading.RLock()
        binder = make_front(params, jit.__name__, autotuner is not None, ["    return __miss"])
        specs = tuple((p.name, _default(p), _flags(p, choose_only)) for p in params)
        positional = sum(not param.keyword_only for param in params)
        limit = plan_module.MAX_PLANS
        self.launch: Callable[..., Any] = extension.Core(
            specs, positional, binder, autotuner, choose_only, limit
        )
        self._core: Any = self.launch

    def clear(self) -> None:
        """Forget every plan; the next ones are made from Triton's global state as it is then."""
        self._core.clear()

    def __len__(self) -> int:
        return len(self._core)

    def slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
        """Return where the plan of these arguments belongs, or None if they get no plan.

        Raises:
            TypeError: the arguments do not fit the kernel's signature.
        """
        if not self._core.current():
            self._arm()
        slot: bytes | None = self._core.slot(args, dict(kwargs))
        return slot

    def unknown(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return ``name (type)`` of an argument or option for which there is no slot, or None."""
        return unknown_argument(self._params, self._choose_only, args, kwargs)

    def accepts(self, slot: bytes, configs: Any) -> bool:
        """Tell whether plans of a choice from this config list may be kept at a slot."""
        return bool(self._configs == configs)

    def holds(self, slot: bytes) -> bool:
        """Tell whether a plan is kept at a slot, whether or not it still holds."""
        return bool(self._core.holds(slot))

    def insert(self, slot: bytes, plan: ConfigPin) -> None:
        """Keep a plan; the next launch that the guard finds equal takes it."""
        configs = self._configs
        if configs is not None and len(configs) == 1 and configs[0] is not plan.config:
            return  # of one config, Triton goes on with the object that is in the list
        watches = self._watched(premises.of_plan, plan, self._jit)
        if watches is None:
            return
        compiled, layout, supplied = None, None, {}
        if isinstance(plan, LaunchPlan):
            compiled, supplied = plan.compiled, plan.supplied
            layout = direct_layout(compiled, self._indices)
        values = premises.supplied_values(supplied, self._names)
        self._core.insert(slot, plan, compiled, plan.config, values, watches, layout)

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ConfigPin | None:
        """Return the plan that a launch with these arguments takes, or None for the long way."""
        plan: ConfigPin | None = self._core.find(args, dict(kwargs))
        return plan

    def preview(
        self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[LaunchPlan, tuple[Any, ...]] | None:
        """Return the plan that a launch takes and what it would pass on, or None."""
        found: tuple[LaunchPlan, tuple[Any, ...]] | None
        found = self._core.preview(args, dict(kwargs), grid)
        return found

    def plans(self) -> list[ConfigPin]:
        """Return the plans that are kept."""
        plans: list[ConfigPin] = self._core.plans()
        return plans

    def _arm(self) -> None:
        with self._lock:
            self._core.clear()
            tuner = self._autotuner
            self._configs = None if tuner is None else tuner.configs[:]
            watches = self._watched(premises.of_core, self._jit, tuner, self._choose_only)
            if watches is None:
                return
            source = seam.device_source()
            # With one GPU nobody needs to ask which is the current one, or a tensor's.
            one = source.tensors_on_cuda and torch.cuda.device_count() == 1
            self._core.arm(
                watches,
                _FIRST_DEVICE if one else source.device,
                source.stream,
                source.dlpack_type,
                source.tensors_on_cuda and not one,
            )

    def _watched(self, find: Callable[..., premises.Watches | None], *args: Any) -> Any:
        """Return a WatchSet of what ``find`` finds, or None for what cannot be watched."""
        try:
            found = find(*args)
            made = None if found is None else self._extension.WatchSet(*found)
        except TypeError:  # no plain dictionary, or a list of a class of its own
            made = None
        self.watchable = made is not None
        return made


def _default(param: ParamSpec) -> Any:
    return param.default if param.has_default and not param.supplied else premises.ABSENT


def _flags(param: ParamSpec, choose_only: bool) -> int:
    flags = {
        _EXACT: param.in_key or (param.constexpr and not choose_only),
        _SPECIALIZED: param.specialize,
        _ALIGNED: param.align and param.specialize,
        _SUPPLIED: param.supplied,
    }
    return sum(flag for flag, is_set in flags.items() if is_set)
