"""Describes state tensors and block tables to the kernels: addresses and strides, on the device.

A cache's state tensors live as long as the engine, so a description is made once. It holds on
to the tensors, since the kernels know only their addresses.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_self_overlap

_OP = "state_table"

_warned_of_alignment = False


@dataclass(frozen=True)
class StateTensor:
    """One state tensor of one layer: a row for each block of the cache, rows perhaps padded."""

    tensor: torch.Tensor
    """Temporal: (blocks, ...), each block dense. Convolutional: (blocks, W, dim), or where the
    table has ``conv_dim_first`` (blocks, dim, W); the last dimension is dense."""
    is_conv: bool
    group: int = 0
    """Which KV-cache group's block table names its blocks."""


@dataclass(frozen=True)
class StateTable:
    """State tensors as the copy kernels read them. Each tensor is (states,).

    Programs may read it before the launch ahead of theirs has ended, so no kernel may write it.
    """

    base_addrs: torch.Tensor
    """int64, with the bits of the unsigned address."""
    block_strides: torch.Tensor
    """int64, bytes from block to block."""
    elem_sizes: torch.Tensor
    """int32, bytes."""
    inner_sizes: torch.Tensor
    """int64, elements: of a temporal block, or of one token of a convolutional one."""
    conv_widths: torch.Tensor
    """int32, W; 0 for a temporal state."""
    group_indices: torch.Tensor
    """int32."""
    dim_row_counts: torch.Tensor
    """int32, rows of a block with ``conv_dim_first``, else 0."""
    dim_row_strides: torch.Tensor
    """int64, bytes from row to row with ``conv_dim_first``, else 0."""
    conv_dim_first: bool
    largest_bytes: int
    """Of a block of any state."""
    states: tuple[StateTensor, ...]

    def __len__(self) -> int:
        return len(self.states)

    @functools.cached_property
    def num_groups(self) -> int:
        """Block tables that the states need: one more than the highest group."""
        return 1 + max(state.group for state in self.states)

    def with_tables(self, tables: BlockTables) -> tuple[Any, ...]:
        """Return what the copy kernels are given of block tables and states, in their order."""
        return (
            tables.pointers, tables.stride_req, self.base_addrs, self.block_strides,
            self.elem_sizes, self.inner_sizes, self.conv_widths, self.group_indices,
            self.dim_row_counts, self.dim_row_strides,
        )  # fmt: skip


@dataclass(frozen=True)
class BlockTables:
    """The block tables of all KV-cache groups, as kernels read them.

    No kernel may write ``pointers``, as with a StateTable; the tables themselves any may.
    """

    pointers: torch.Tensor
    """(groups,) int64, with the bits of each table's address."""
    stride_req: int
    """Elements from row to row, of every table."""
    tables: tuple[torch.Tensor, ...]


def signed_address(address: int) -> int:
    """Return an unsigned 64-bit address as the int64 of the same bits."""
    return address - 2**64 if address >= 2**63 else address


def state_table(
    states: Sequence[StateTensor], conv_dim_first: bool = False, device: torch.device | None = None
) -> StateTable:
    """Return the description of ``states``, in their order, on ``device`` (by default theirs).

    Warns once a process where states are so aligned that copies go byte by byte.

    Raises UsageError for no states, for a tensor of another shape, with gaps inside a block or
    blocks that overlap, for tensors on different devices, and for a negative group.
    """
    if not states:
        raise arguments.refusal(_OP, "states", "is empty", "Pass at least one state tensor.")
    device_of_all = _tensor_of("states[0]", states[0]).device
    facts = [
        _facts(index, state, conv_dim_first, device_of_all) for index, state in enumerate(states)
    ]
    warn_if_misaligned(states)
    place = device_of_all if device is None else device

    def column(number: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor([fact[number] for fact in facts], dtype=dtype, device=place)

    return StateTable(
        base_addrs=column(0, torch.int64),
        block_strides=column(1, torch.int64),
        elem_sizes=column(2, torch.int32),
        inner_sizes=column(3, torch.int64),
        conv_widths=column(4, torch.int32),
        group_indices=column(5, torch.int32),
        dim_row_counts=column(6, torch.int32),
        dim_row_strides=column(7, torch.int64),
        conv_dim_first=conv_dim_first,
        largest_bytes=max(each.tensor[:1].nbytes for each in states),
        states=tuple(states),
    )


def _facts(
    index: int, state: StateTensor, conv_dim_first: bool, device: torch.device
) -> tuple[int, ...]:
    name = f"states[{index}]"
    tensor = _tensor_of(name, state)
    arguments.require_tensor(_OP, name, tensor, (tensor.dtype,), device)
    arguments.require_count(_OP, f"{name}.group", state.group, 0)
    refuse_self_overlap(_OP, name, tensor)
    size = tensor.element_size()
    width = rows = row_stride = 0
    if state.is_conv:
        if tensor.dim() != 3:
            wanted = "(blocks, dim, W)" if conv_dim_first else "(blocks, W, dim)"
            raise arguments.wrong_shape(_OP, name, tensor, wanted)
        inner = tensor.shape[2]
        width = tensor.shape[2] if conv_dim_first else tensor.shape[1]
        if conv_dim_first:
            _require_dense(name, tensor, tensor.stride(2) == 1 or width == 1)
            rows, row_stride = tensor.shape[1], tensor.stride(1) * size
        else:
            _require_dense(name, tensor, arguments.rows_are_dense(tensor))
    else:
        if tensor.dim() < 1:
            raise arguments.wrong_shape(_OP, name, tensor, "(blocks, ...)")
        _require_dense(name, tensor, arguments.rows_are_dense(tensor))
        inner = math.prod(tensor.shape[1:])
    return (
        signed_address(tensor.data_ptr()), tensor.stride(0) * size, size, inner, width,
        state.group, rows, row_stride,
    )  # fmt: skip


def _tensor_of(name: str, state: object) -> torch.Tensor:
    if not isinstance(state, StateTensor):
        raise arguments.refusal(_OP, name, f"is a {type(state).__name__}", "Pass a StateTensor.")
    arguments.sizes_of(_OP, name, state.tensor)
    return state.tensor


def _require_dense(name: str, tensor: torch.Tensor, dense: bool) -> None:
    if not dense:
        problem = f"has strides {tensor.stride()}, so a block has gaps"
        raise arguments.refusal(_OP, name, problem, "Pass blocks that are dense inside.")


def warn_if_misaligned(states: Sequence[StateTensor]) -> bool:
    """Return whether some state's copies go byte by byte, and warn of it once a process.

    That is so where blocks lie at different places within 8 bytes. The copies are right anyway.
    """
    global _warned_of_alignment
    for index, state in enumerate(states):
        tensor = state.tensor
        stride = tensor.stride(0) * tensor.element_size()
        if tensor.data_ptr() % 8 or stride % 8:
            if not _warned_of_alignment:
                _warned_of_alignment = True
                logging.getLogger("launchkit").warning(
                    "state tensor %d starts at byte %d of 8 and has a block every %d bytes, so its "
                    "copies are right but slow. Align the cache's pages to 16 bytes.",
                    index,
                    tensor.data_ptr() % 8,
                    stride,
                )
            return True
    return False


def block_tables(
    tables: Sequence[torch.Tensor], op: str = "block_tables", argument: str = "tables"
) -> BlockTables:
    """Return the description of the groups' block tables, in order.

    tables: as ``require_block_tables`` wants them. Their addresses go to their device, so that
        this is no part of a step, and cannot be captured into a CUDA graph.

    Raises UsageError where they do not fit; ``op`` and ``argument`` are what it names.
    """
    tables = require_block_tables(tables, op, argument)
    addresses = np.array([table.data_ptr() for table in tables], dtype=np.uint64)
    # Addresses from 2**63 on have no int64; the bits are what kernels read.
    pointers = torch.from_numpy(addresses.view(np.int64)).to(tables[0].device)
    return BlockTables(pointers, tables[0].stride(0), tables)


def require_block_tables(
    tables: Sequence[torch.Tensor], op: str, argument: str
) -> tuple[torch.Tensor, ...]:
    """Return the groups' block tables if they are some.

    tables: each (rows, columns) int32 on one device, columns dense, all with the same distance
        between rows.

    Raises UsageError where they are not; ``op`` and ``argument`` are what it names.
    """
    tables = tuple(tables)
    if not tables:
        raise arguments.refusal(op, argument, "is empty", "Pass one table a KV-cache group.")
    for index, table in enumerate(tables):
        name = f"{argument}[{index}]"
        if len(arguments.sizes_of(op, name, table)) != 2:
            raise arguments.wrong_shape(op, name, table, "(rows, columns)")
        arguments.require_tensor(op, name, table, (torch.int32,), tables[0].device)
        dense = table.stride(1) == 1 or table.shape[1] <= 1
        if not dense or table.stride(0) != tables[0].stride(0):
            problem = f"has strides {table.stride()}, not {(tables[0].stride(0), 1)}"
            raise arguments.refusal(op, name, problem, "Give all groups tables of one pitch.")
    return tables
