"""LaunchPlan: all that is fixed once the guard holds; the table of plans. Above the seam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchkit.dispatch import triton_seam as seam

MAX_PLANS = 1024
"""Plans kept per kernel and tuple of argument types; beyond it the oldest quarter goes."""


class ConfigPin:
    """A chosen live config, the list it was chosen from, and what it said when it was chosen.

    Triton reads the config object at each launch, so a changed field must end the shortcut.
    """

    __slots__ = ("config", "config_fields", "config_snapshot", "configs")

    def __init__(self, config: Any, configs: Any) -> None:
        self.config = config
        self.configs = configs
        self.config_fields: dict[str, Any] = getattr(config, "__dict__", {})
        self.config_snapshot = {
            name: dict(value) if isinstance(value, dict) else value
            for name, value in self.config_fields.items()
        }


class LaunchPlan(ConfigPin):
    """One compiled kernel, ready to launch.

    Owns a strong reference to the compiled kernel: since Triton 3.9 the module is unloaded
    when the last one goes, and a bare function handle would dangle.
    """

    __slots__ = (
        "annotations", "cache", "cache_entry", "cache_key", "call", "compiled", "cooperative",
        "device", "direct", "function", "globals", "metadata", "pdl", "signature", "supplied",
    )  # fmt: skip

    def __init__(
        self,
        compiled: Any,
        place: seam.CachePlace,
        used_globals: tuple[tuple[str, Any, dict[str, Any]], ...],
        choice: ConfigPin | None,
        supplied: Mapping[str, Any],
    ) -> None:
        super().__init__(*((None, None) if choice is None else (choice.config, choice.configs)))
        bound = seam.bind_launch(compiled)
        self.compiled = compiled
        self.device, self.cache_entry, self.cache_key = place
        self.cache = self.cache_entry[0]
        self.globals = used_globals
        self.supplied = dict(supplied)
        self.direct = bound.direct
        self.call = bound.call
        self.function = bound.function
        self.metadata = bound.metadata
        self.cooperative = bound.cooperative
        self.pdl = bound.pdl
        self.annotations = bound.annotations
        self.signature = bound.signature

    def globals_changed(self) -> bool:
        """Tell whether a global that the kernel read at compile time has another value now."""
        return any(
            namespace.get(name, self) is not value and namespace.get(name, self) != value
            for name, value, namespace in self.globals
        )


class PlanTable(dict[Any, Any]):
    """Plans by guard key; first in, first out once MAX_PLANS is reached."""

    def insert(self, key: Any, plan: ConfigPin) -> None:
        """Keep a plan, dropping the oldest quarter when the table is full."""
        if len(self) >= MAX_PLANS:
            for old in list(self)[: MAX_PLANS // 4]:  # one step, since other threads insert too
                self.pop(old, None)
        self[key] = plan
