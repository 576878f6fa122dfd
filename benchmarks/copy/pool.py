"""Memory of the copy benchmark: caches laid out as an engine has them, and which blocks move."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from launchkit.benchmarks.shapes import CacheShape
from launchkit.kernels.state_copy.layout import (
    BlockTables,
    StateTable,
    StateTensor,
    block_tables,
    state_table,
)

MAX_SETS = 8
"""Disjoint sets of blocks that launches take in turn, so that no cache holds what they read."""

POOL_BYTES = 32 * 2**30
"""What the sets of one case may hold together, if more than one is to fit."""

_ALIGNMENT = 256


@dataclass(frozen=True)
class BlockSet:
    """The requests of one launch: two blocks each, the state in column 0, to go to column 1."""

    tables: BlockTables
    src_col: torch.Tensor
    state_idx: torch.Tensor
    token_bias: torch.Tensor
    idx_mapping: torch.Tensor


def sets_of(shape: CacheShape, reqs: int) -> int:
    """Return how many disjoint sets a case has: MAX_SETS, fewer where one is large."""
    return max(1, min(MAX_SETS, POOL_BYTES // (2 * reqs * shape.request_bytes)))


class Pool:
    """The caches of one model, with room for the largest case.

    A layer's page holds the convolutional state and then the temporal one, as in an engine.
    """

    def __init__(self, shape: CacheShape, reqs: tuple[int, ...], device: str = "cuda") -> None:
        self.shape = shape
        self.blocks = max(2 * count * sets_of(shape, count) for count in reqs)
        page = shape.conv_bytes + shape.temporal_bytes
        page = math.ceil(page / _ALIGNMENT) * _ALIGNMENT
        self._pages = [
            torch.empty(self.blocks * page, dtype=torch.uint8, device=device)
            for _ in range(shape.layers)
        ]
        for number, pages in enumerate(self._pages):
            pages.view(torch.int32).random_(generator=_generator(device, number))
        self.states: StateTable = state_table(
            [state for pages in self._pages for state in _views(shape, pages, page)]
        )
        self._device = device

    def sets(self, reqs: int) -> list[BlockSet]:
        """Return disjoint sets of blocks for ``reqs`` requests each, in no order."""
        count = sets_of(self.shape, reqs)
        order = torch.randperm(self.blocks, generator=_generator("cpu", reqs))
        chosen = order[: 2 * reqs * count].view(count, reqs, 2).int()
        return [self._set(blocks) for blocks in chosen]

    def _set(self, blocks: torch.Tensor) -> BlockSet:
        reqs = blocks.shape[0]

        def filled(value: int) -> torch.Tensor:
            return torch.full((reqs,), value, dtype=torch.int32, device=self._device)

        return BlockSet(
            tables=block_tables([blocks.to(self._device).contiguous()]),
            src_col=filled(0),
            state_idx=filled(1),
            token_bias=filled(0),
            idx_mapping=torch.arange(reqs, dtype=torch.int32, device=self._device),
        )

    def copies(self, blocks: BlockSet) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return addresses read, addresses written and sizes of a set's copies, each (n,)."""
        states = self.states
        src, dst = (
            (states.base_addrs + column[:, None] * states.block_strides).flatten()
            for column in blocks.tables.tables[0].long().unbind(1)
        )
        tokens = states.conv_widths.clamp(min=1)
        sizes = states.inner_sizes * states.elem_sizes * tokens
        return src, dst, sizes.repeat(len(blocks.src_col))

    def copied(self, blocks: BlockSet) -> bool:
        """Whether every destination block of a set holds the bytes of its source."""
        table = blocks.tables.tables[0].long()
        return all(
            torch.equal(_bytes(state.tensor[table[:, 0]]), _bytes(state.tensor[table[:, 1]]))
            for state in self.states.states
        )

    def spoil(self, blocks: BlockSet) -> None:
        """Fill every destination block of a set with zeros."""
        table = blocks.tables.tables[0].long()
        for state in self.states.states:
            state.tensor[table[:, 1]] = 0


def _views(shape: CacheShape, pages: torch.Tensor, page: int) -> tuple[StateTensor, StateTensor]:
    blocks = pages.numel() // page
    conv = pages.view(torch.bfloat16).as_strided(
        (blocks, shape.conv_width, shape.conv_dim), (page // 2, shape.conv_dim, 1)
    )
    strides = [math.prod(shape.temporal[axis + 1 :]) for axis in range(len(shape.temporal))]
    temporal = pages.view(torch.float32).as_strided(
        (blocks, *shape.temporal), (page // 4, *strides), shape.conv_bytes // 4
    )
    return StateTensor(conv, is_conv=True), StateTensor(temporal, is_conv=False)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().view(torch.uint8)


def _generator(device: str, seed: int) -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)
