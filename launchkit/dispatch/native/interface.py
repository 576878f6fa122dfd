"""What the C core and its Python twin have in common. Above plan.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from launchkit.dispatch.plan import ConfigPin, LaunchPlan


class Core(Protocol):
    """Guard, plan table and launch of one kernel."""

    launch: Callable[..., Any]
    """Called as ``launch(grid, *args, **kwargs)``: the compiled kernel, or MISS."""
    parameters: frozenset[str]
    supplied: frozenset[str]
    """Parameters that a config gives."""
    defaults: dict[str, Any]
    """Of those that a config gives."""
    watchable: bool
    """False: what Triton reads at a launch cannot be watched, and plans are not kept."""

    def __len__(self) -> int:
        """Return how many plans are kept."""

    def clear(self) -> None:
        """Forget every plan; the next ones are made from Triton's global state as it is then."""

    def slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return where the plan of these arguments belongs, or None if they get no plan.

        Raises:
            TypeError: the arguments do not fit the kernel's signature.
        """

    def unknown(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        """Return ``name (type)`` of an argument or option for which there is no slot, or None."""

    def accepts(self, slot: Any, configs: Any) -> bool:
        """Tell whether plans of a choice from this config list may be kept at a slot."""

    def holds(self, slot: Any) -> bool:
        """Tell whether a plan is kept at a slot, whether or not it still holds."""

    def insert(self, slot: Any, plan: ConfigPin) -> None:
        """Keep a plan; the next launch that the guard finds equal takes it."""

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ConfigPin | None:
        """Return the plan that a launch with these arguments takes, or None for the long way."""

    def preview(
        self, grid: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[LaunchPlan, tuple[Any, ...]] | None:
        """Return the plan that a launch takes and what it would pass on, or None for the long way.

        That is (function, grid, threads, shared bytes, bytes of each kernel parameter) for the
        driver, with the grid in blocks; or (grid, value of each parameter) for Triton's launcher.
        A grid function is called.
        """

    def plans(self) -> list[ConfigPin]:
        """Return the plans that are kept."""
