"""Which ranks agree, and the key-value store that they have in common. A leaf of ranks.

The only user of torch.distributed, which is imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launchkit.errors import UsageError


@dataclass(frozen=True)
class World:
    """Global ranks, in the group's order, of which ``rank`` is this one."""

    store: Any
    rank: int
    ranks: tuple[int, ...]

    @property
    def place(self) -> int:
        """This rank's place among them."""
        return self.ranks.index(self.rank)


def world_of(group: Any) -> World | None:
    """Return who agrees, and through which store; None for this process alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        if group is not None:
            raise UsageError("torch.distributed is not initialized. Call init_process_group first.")
        return None
    if dist.get_rank(group) < 0:
        raise UsageError("this rank is not in the group. Call agree_across_ranks on its members.")
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    if len(ranks) == 1:
        return None
    return World(_store_of(dist, group or dist.group.WORLD), dist.get_rank(), tuple(ranks))


def _store_of(dist: Any, group: Any) -> Any:
    """Return the group's key-value store, over a connection of its own where it can be had."""
    try:
        store = group.get_group_store()
    except (AttributeError, RuntimeError):  # a backend that keeps none
        store = dist.PrefixStore(group.group_name, dist.distributed_c10d._get_default_store())
    try:
        return store.clone()
    except (AttributeError, RuntimeError):
        return store
