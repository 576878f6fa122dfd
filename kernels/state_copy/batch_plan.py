"""Addresses of batched copies: all states of all moved requests at once, in NumPy.

What does not change between steps (base addresses, strides, sizes) is read once and kept as
long as the layers hold the same state tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from launchkit.errors import UsageError
from launchkit.kernels import arguments
from launchkit.kernels.state_copy.copy_specs import (
    StateKind,
    is_conv_state_dim_first,
    kind_of,
    shifted_dim_first,
)
from launchkit.kernels.state_copy.groups import LayerState, state_tensors, walk_states
from launchkit.kernels.state_copy.layout import StateTable, state_table
from launchkit.kernels.state_copy.protocols import (
    ForwardContext,
    KVCacheConfig,
    Request,
    StateCopyFunc,
)

OP = "collect_mamba_copy_meta"

Addresses: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64]]
"""Source addresses, destination addresses, sizes in bytes: (moves, states) each."""

_LARGEST_BYTES = 2**31 - 1
_caches_of = operator.attrgetter("kv_cache")
_END = object()


class Move(NamedTuple):
    """One request's state moves from a column to another, shifted by accepted tokens."""

    src_col: int
    dst_col: int
    bias: int
    """Accepted tokens less one."""
    request: Request


@dataclass(frozen=True)
class BatchPlan:
    """How to turn moves into addresses, for one configuration and its copy functions."""

    kv_cache_config: KVCacheConfig
    group_ids: tuple[int, ...]
    copy_funcs: tuple[StateCopyFunc, ...]
    walk: tuple[LayerState, ...]
    layers: tuple[str, ...]
    held: tuple[object, ...]
    """Every tensor of every layer, and a mark behind the last."""
    shifts_columns: bool
    """Whether a state lies accepted tokens less one columns behind the source."""
    formula: AddressFormula | None
    """None if a copy function is not known and has to be called."""

    def fits(
        self,
        kv_cache_config: KVCacheConfig,
        group_ids: Sequence[int],
        copy_funcs: tuple[StateCopyFunc, ...],
        forward_context: ForwardContext,
    ) -> bool:
        """Return whether this plan is for these arguments, whose tensors are the same objects."""
        return (
            kv_cache_config is self.kv_cache_config
            and copy_funcs == self.copy_funcs
            and tuple(group_ids) == self.group_ids
            and all(map(operator.is_, _tensors(forward_context, self.layers), self.held))
        )

    def addresses(self, moves: Sequence[Move]) -> Addresses:
        """Return what the moves copy; the order is move, group, layer, state.

        Raises UsageError for a column that a request does not have, for a block that the states
        do not have, and for a window that is shorter than its shift.
        """
        blocks = _blocks_of(moves, self.group_ids, self.shifts_columns)
        if self.formula is not None:
            return self.formula.addresses(moves, blocks)
        # Where such a function reads is its own affair, but for the source itself.
        ends = blocks.reshape(len(moves), -1, 3)[:, :, ::2].reshape(len(moves), -1)
        _require_blocks(moves, ends, min(each.state.shape[0] for each in self.walk))
        rows = [self._call(move) for move in moves]
        src, dst, sizes = (np.array([row[i] for row in rows], np.uint64) for i in range(3))
        if sizes.max(initial=0) > _LARGEST_BYTES:
            _, at = np.unravel_index(sizes.argmax(), sizes.shape)
            raise _unfit(self.walk[at].layer, self.walk[at].state, int(sizes.max()))
        return src, dst, sizes.astype(np.int64)

    def _call(self, move: Move) -> tuple[list[int], list[int], list[int]]:
        """Ask the copy functions for one move."""
        src, dst, sizes = [], [], []
        for each in self.walk:
            block_ids = move.request.block_ids[self.group_ids[each.group_index]]
            spec = each.copy_func(each.state, block_ids, move.src_col, move.bias + 1)
            src.append(spec.start_addr)
            dst.append(each.state[block_ids[move.dst_col]].data_ptr())
            sizes.append(spec.num_elements * each.state.element_size())
        return src, dst, sizes


def make_batch_plan(
    kv_cache_config: KVCacheConfig,
    group_ids: Sequence[int],
    copy_funcs: tuple[StateCopyFunc, ...],
    forward_context: ForwardContext,
) -> BatchPlan:
    """Return the plan for all states of the groups.

    Raises UsageError for layers or states that do not fit the copy functions.
    """
    walk = tuple(walk_states(OP, kv_cache_config, group_ids, copy_funcs, forward_context))
    layers = tuple(
        name for each in group_ids for name in kv_cache_config.kv_cache_groups[each].layer_names
    )
    formula, kinds = None, {kind_of(func) for func in copy_funcs}
    if None not in kinds:
        states = state_tensors(OP, walk)
        host = torch.device("cpu")
        table = state_table(states, is_conv_state_dim_first(), host)
        formula = AddressFormula.of(table, [each.layer for each in walk])
    held = tuple(_tensors(forward_context, layers))
    return BatchPlan(
        kv_cache_config, tuple(group_ids), copy_funcs, walk, layers, held,
        shifts_columns=kinds != {StateKind.CONV},
        formula=formula,
    )  # fmt: skip


def _tensors(forward_context: ForwardContext, layers: Sequence[str]) -> Iterable[Any]:
    caches = chain.from_iterable(map(_caches_of, map(forward_context.__getitem__, layers)))
    return chain(caches, (_END,))


def _blocks_of(
    moves: Sequence[Move], group_ids: Sequence[int], shifts_columns: bool
) -> NDArray[np.int64]:
    """Return (moves, 3 * groups) block ids: where conv and temporal states are, and go, by group."""
    blocks: list[int] = []
    for move in moves:
        src_col, dst_col, bias, request = move
        if src_col < 0 or dst_col < 0 or bias < 0:
            raise _bad_move(move, "has a negative column or number of tokens")
        far_col = src_col + bias if shifts_columns else src_col
        for group_id in group_ids:
            row = request.block_ids[group_id]
            try:
                blocks += (row[src_col], row[far_col], row[dst_col])
            except IndexError:
                raise _bad_move(move, f"has {len(row)} blocks in group {group_id}") from None
    return np.array(blocks, np.int64).reshape(len(moves), 3 * len(group_ids))


def _bad_move(move: Move, problem: str) -> UsageError:
    src_col, dst_col, bias, request = move
    name = getattr(request, "req_id", "a request")
    return UsageError(
        f"{OP}: {name} {problem}, but its state moves from column {src_col} + {bias} to {dst_col}. "
        "Give it blocks for all scheduled tokens, and count accepted tokens from 1.",
        op=OP, request=str(name), src_col=src_col, dst_col=dst_col, bias=bias,
    )  # fmt: skip


@dataclass(frozen=True)
class AddressFormula:
    """Addresses of known states as sums of products, one column per state."""

    base: NDArray[np.uint64]
    block_stride: NDArray[np.uint64]
    src_pick: NDArray[np.intp]
    """Which of a move's block ids is the source."""
    dst_pick: NDArray[np.intp]
    token_bytes: NDArray[np.int64]
    """Bytes of a conv token, 0 for temporal states."""
    block_bytes: NDArray[np.int64]
    largest_bytes: int
    num_blocks: int
    largest_bias: int | None
    """Shortest conv window; None without conv states."""
    dim_first: bool
    layer: str

    @classmethod
    def of(cls, table: StateTable, layers: Sequence[str]) -> AddressFormula:
        """Return the formula of a table that is on the CPU; ``layers`` names each state's.

        Raises UsageError for blocks that are no single run, or of 2 GiB or more, whose size is
        no int32.
        """
        states = [each.tensor for each in table.states]
        is_conv = np.array([each.is_conv for each in table.states])
        block_bytes = np.array([state[:1].numel() * state.element_size() for state in states])
        for layer, state, size in zip(layers, states, block_bytes.tolist(), strict=True):
            if size > _LARGEST_BYTES or not arguments.rows_are_dense(state):
                raise _unfit(layer, state, size)
        token_bytes = table.inner_sizes.numpy() * table.elem_sizes.numpy()
        picks = 3 * table.group_indices.numpy().astype(np.intp)
        widths = table.conv_widths.numpy()
        return cls(
            base=table.base_addrs.numpy().view(np.uint64),
            block_stride=table.block_strides.numpy().view(np.uint64),
            src_pick=picks + ~is_conv,
            dst_pick=picks + 2,
            token_bytes=np.where(is_conv, token_bytes, 0),
            block_bytes=block_bytes,
            largest_bytes=table.largest_bytes,
            num_blocks=min(state.shape[0] for state in states),
            largest_bias=int(widths[is_conv].min()) if is_conv.any() else None,
            dim_first=table.conv_dim_first,
            layer=layers[int(is_conv.argmax())],
        )

    def addresses(self, moves: Sequence[Move], blocks: NDArray[np.int64]) -> Addresses:
        """Return addresses and sizes for moves and their block ids."""
        self._check(moves, blocks)
        ids = blocks.view(np.uint64)
        shift = np.array([move.bias for move in moves])[:, None] * self.token_bytes
        src = self.base + ids[:, self.src_pick] * self.block_stride + shift.view(np.uint64)
        dst = self.base + ids[:, self.dst_pick] * self.block_stride
        return src, dst, self.block_bytes - shift

    def _check(self, moves: Sequence[Move], blocks: NDArray[np.int64]) -> None:
        if self.largest_bias is not None:
            furthest = max(moves, key=operator.attrgetter("bias"))
            if furthest.bias and self.dim_first:
                raise shifted_dim_first(OP, furthest.bias + 1)
            if furthest.bias > self.largest_bias:
                window = f"has a conv window of {self.largest_bias} tokens in layer {self.layer!r}"
                raise _bad_move(furthest, window)
        _require_blocks(moves, blocks, self.num_blocks)


def _require_blocks(moves: Sequence[Move], ids: NDArray[np.int64], num_blocks: int) -> None:
    """Raise UsageError for a block id, in the row of its move, that is negative or too high."""
    if ids.view(np.uint64).max(initial=0) >= num_blocks:
        (row, _), *_ = np.argwhere(ids.view(np.uint64) >= num_blocks).tolist()
        raise _bad_move(moves[row], f"has block ids {ids[row].tolist()} of {num_blocks} blocks")


def _unfit(layer: str, state: torch.Tensor, size_bytes: int) -> UsageError:
    return UsageError(
        f"{OP}: a block of layer {layer!r} has {size_bytes} bytes, shape {tuple(state.shape[1:])} "
        f"and strides {state.stride()[1:]}. Batched copies move dense blocks below 2 GiB: use the "
        "fused copies of MambaSpecDecodeGPUContext.",
        op=OP, layer=layer, size_bytes=size_bytes,
    )  # fmt: skip
