"""The state caches of ``launchkit bench serve``, and what the copies between their blocks need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from launchkit.benchmarks.serve.batch import StepTensors
from launchkit.benchmarks.serve.model import ServingModel
from launchkit.kernels.state_copy.layout import (
    BlockTables,
    StateTable,
    StateTensor,
    block_tables,
    state_table,
)

GROUPS = 4
"""KV-cache groups; layer l belongs to group l % GROUPS."""

_CONV_WIDTH = 3


@dataclass(frozen=True)
class States:
    """The states of all requests, and what the copies are decided by."""

    caches: list[torch.Tensor]
    """By layer, (blocks, H, P, N)."""
    table: StateTable
    tables: BlockTables
    steps: StepTensors
    accepted: torch.Tensor
    """(slots,) int32 as the two below, all 1: nothing is speculated."""
    src_col: torch.Tensor
    src_off: torch.Tensor
    executes: bool
    """False on the driver that executes nothing."""

    def clear(self) -> None:
        """Make every state zero, as it was when they were made."""
        if self.executes:
            for state in self.table.states:
                state.tensor.zero_()

    def digest(self) -> list[int]:
        """Return a sum over the bits of each layer's states, modulo 2**64."""
        return [int(cache.flatten().view(torch.int64).sum()) for cache in self.caches]


def make_states(model: ServingModel, steps: StepTensors, executes: bool) -> States:
    """Return states of zeros for as many requests as ``steps`` holds."""
    shape, table = model.shape, steps.tables[0]
    slots, device = table.shape[0], table.device
    blocks = 1 + table.numel()
    # Nothing on the host-only driver reads them, and zeros would take the memory.
    make: Any = torch.zeros if executes else torch.empty
    sizes = (blocks, shape.nheads, shape.headdim, shape.dstate)
    dtype: torch.dtype = getattr(torch, shape.state_dtype)
    caches = [make(sizes, dtype=dtype, device=device) for _ in range(model.layers)]
    window = (blocks, _CONV_WIDTH, model.convolved)
    tensors = [
        StateTensor(tensor, is_conv, layer % GROUPS)
        for layer, cache in enumerate(caches)
        for tensor, is_conv in ((make(window, dtype=model.dtype, device=device), True),
                                (cache, False))
    ]  # fmt: skip
    ints = torch.zeros((3, -(-slots // 4) * 4), dtype=torch.int32, device=device)[:, :slots]
    return States(
        caches, state_table(tensors), block_tables(steps.tables), steps, ints[0].fill_(1), ints[1],
        ints[2], executes,
    )  # fmt: skip
