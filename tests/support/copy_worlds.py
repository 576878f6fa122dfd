"""Caches for the state copies: pages of random bytes with states in them, and their block tables.

A check compares whole buffers, so that guard bytes, other blocks and other states count too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from launchkit.kernels.state_copy.layout import (
    BlockTables,
    StateTable,
    StateTensor,
    block_tables,
    state_table,
)
from launchkit.kernels.state_copy.reference import copy_states_reference
from launchkit.kernels.state_copy.shapes import CopyShape

SMALL = CopyShape(tiles=1, block_size=64, num_warps=4)
"""Small blocks, so that small states take many steps."""

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""A dtype for each element size: bits are compared, and NaN would differ from itself."""


@dataclass(frozen=True)
class Cache:
    """How a cache is laid out. Element sizes are bytes."""

    dim_first: bool = False
    layers: int = 2
    groups: int = 1
    blocks: int = 17
    width: int = 4
    dim: int = 12
    temporal: tuple[int, ...] = (3, 5, 4)
    conv_elem: int = 2
    temporal_elem: int = 4
    page_pad: int = 16
    row_pad: int = 0
    """Elements between the rows of a convolutional state with ``dim_first``."""

    @property
    def conv_bytes(self):
        return self.dim * (self.width + self.row_pad) * self.conv_elem

    @property
    def page_bytes(self):
        return self.conv_bytes + math.prod(self.temporal) * self.temporal_elem + self.page_pad


@dataclass(frozen=True)
class World:
    cache: Cache
    raws: list[torch.Tensor]
    states: list[StateTensor]
    table: StateTable
    rows: list[list[list[int]]]
    tables: BlockTables

    def expected(self, copies):
        """Return the bytes after ``copies``, by the reference, and leave the world as it is."""
        raws = [raw.clone() for raw in self.raws]
        states = states_in(self.cache, raws)
        copy_states_reference(copies, states, self.rows, self.cache.dim_first)
        return raws

    def restore(self, raws):
        for raw, before in zip(self.raws, raws, strict=True):
            raw.copy_(before)

    def holds(self, raws):
        return all(torch.equal(raw, other) for raw, other in zip(self.raws, raws, strict=True))


def states_in(cache, raws):
    """Return the state tensors in pages of bytes: a layer's convolutional, then its temporal one."""
    return [
        state
        for number, raw in enumerate(raws)
        for state in _views(cache, raw, number % cache.groups)
    ]


def _views(cache, raw, group):
    conv_dtype, dtype = INTEGERS[cache.conv_elem], INTEGERS[cache.temporal_elem]
    page = cache.page_bytes
    pitch = cache.width + cache.row_pad
    sizes, strides = (cache.width, cache.dim), (cache.dim, 1)
    if cache.dim_first:
        sizes, strides = (cache.dim, cache.width), (pitch, 1)
    conv = raw.view(conv_dtype).as_strided(
        (cache.blocks, *sizes),
        (page // cache.conv_elem, *strides),
    )
    inner = [math.prod(cache.temporal[axis + 1 :]) for axis in range(len(cache.temporal))]
    temporal = raw.view(dtype).as_strided(
        (cache.blocks, *cache.temporal),
        (page // cache.temporal_elem, *inner),
        cache.conv_bytes // cache.temporal_elem,
    )
    return StateTensor(conv, True, group), StateTensor(temporal, False, group)


def make_world(device, cache=None, rows=4, columns=4, seed=0, alias=()):
    """Return a world of random bytes, whose tables name every block at most once.

    alias: (row, column, other column) for columns that are to hold one block.
    """
    cache = cache or Cache()
    raws = [random_bytes(cache.blocks * cache.page_bytes, seed + n) for n in range(cache.layers)]
    raws = [raw.to(device) for raw in raws]
    states = states_in(cache, raws)
    ids = [_ids(cache, rows, columns, seed + group) for group in range(cache.groups)]
    for table in ids:
        for row, column, other in alias:
            table[row][column] = table[row][other]
    wide = [torch.full((rows, columns + 3), 10**6, dtype=torch.int32) for _ in ids]
    for tensor, table in zip(wide, ids, strict=True):
        tensor[:, :columns] = torch.tensor(table)
    tables = block_tables([tensor.to(device)[:, :columns] for tensor in wide])
    return World(cache, raws, states, state_table(states, cache.dim_first), ids, tables)


def _ids(cache, rows, columns, seed):
    order = torch.randperm(cache.blocks - 1, generator=torch.Generator().manual_seed(seed)) + 1
    return order[: rows * columns].view(rows, columns).tolist()


def random_bytes(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)


def ints(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)
