"""``explain``: what the store has for a launch, and what differs. Above launcher.py."""

from __future__ import annotations

from typing import Any

from launchkit.dispatch.autotuned_path import AutotunedLauncher
from launchkit.dispatch.heuristic_path import apply_heuristics
from launchkit.dispatch.launcher import adopt
from launchkit.errors import NotAutotunedError, UsageError
from launchkit.store import Explanation


def explain(kernel: Any, grid: Any, /, *args: Any, **kwargs: Any) -> Explanation:
    """Say what the config store has for a launch, without launching, tuning or compiling.

    Args:
        kernel, grid, args, kwargs: as for ``launch_autotuned``.

    Returns:
        An ``Explanation``: printed, or as its ``text``, what is wanted, the nearest records, and the
        fields in which they differ; ``found`` is true where a record is exactly of the launch, and has
        a result for every live config or is pinned to one of them.

    Raises:
        NotAutotunedError: the kernel has no configs.
        UnfingerprintableError: a key value, or what the kernel reads, has no stable text; such
            launches go to Triton's Autotuner, and nothing of them is stored.
        UsageError: the kernel launches in a way of its own; launchkit's store is not asked.
        StoreError: the store cannot be opened. Whatever else a store raises passes through.
    """
    launcher = adopt(kernel)
    if not launcher.autotuned:
        raise NotAutotunedError(launcher.name)
    parts = launcher.parts
    if parts.outer_heuristics:
        apply_heuristics(parts.outer_heuristics, grid, args, kwargs)
        launcher = adopt(parts.autotuner)
    if not isinstance(launcher, AutotunedLauncher):
        raise UsageError(
            f"{launcher.name} launches in a way of its own and never asks the config store. Decorate "
            "it with @launchkit.autotuned.",
            kernel=launcher.name,
        )
    return launcher.explain(grid, args, kwargs)
