"""Which bytes of a state move: the copy specifications of conv and temporal states.

A request's states lie in the blocks of its columns. With ``num_accepted_tokens`` = 1 + bias, a
conv window moves shifted by bias tokens, and a temporal state comes from the column bias further.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

import torch

from launchkit.errors import UsageError
from launchkit.kernels import arguments
from launchkit.kernels.state_copy.protocols import StateCopyFunc


class StateKind(enum.Enum):
    """How a state changes with accepted tokens."""

    CONV = "conv"
    TEMPORAL = "temporal"


class ConvStateLayout(enum.Enum):
    """Order of a conv state's dimensions behind the block."""

    SD = "SD"
    """(blocks, width, dim): tokens outside, so a shifted window is one run of bytes."""
    DS = "DS"
    """(blocks, dim, width): a shifted window is a run per channel."""


_layout = ConvStateLayout.SD


def set_conv_state_layout(layout: ConvStateLayout | str) -> None:
    """Choose the layout of all conv states of this process: "SD", as at the start, or "DS".

    To be called before the first copy: contexts and buffers remember the layout they began with.

    Raises UsageError for anything else.
    """
    global _layout
    try:
        _layout = ConvStateLayout(layout)
    except ValueError:
        raise arguments.refusal(
            "set_conv_state_layout", "layout", f"is {layout!r}", 'Pass "SD" or "DS".'
        ) from None


def get_conv_state_layout() -> ConvStateLayout:
    """Return the layout of conv states."""
    return _layout


def is_conv_state_dim_first() -> bool:
    """Return whether conv states are (blocks, dim, width)."""
    return _layout is ConvStateLayout.DS


class MambaCopySpec(NamedTuple):
    """One run of a state to copy."""

    start_addr: int
    """Address of the first byte, below 2**64."""
    num_elements: int
    """Elements of the state's dtype."""


def get_conv_copy_spec(
    state: torch.Tensor, block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    """Return the window of a conv state without its first ``num_accepted_tokens - 1`` tokens.

    state: (blocks, width, dim), or (blocks, dim, width) in the DS layout.
    block_ids: the request's blocks by column; ``cur_block_idx`` is the column to read.

    Raises UsageError for a column or block that does not exist, for less than one accepted token
    or more than the window has, and in the DS layout for more than one: such a window is not one
    run. The fused copies of ``MambaSpecDecodeGPUContext`` move it row by row.
    """
    op, offset = "get_conv_copy_spec", num_accepted_tokens - 1
    block = _block(op, state, block_ids, cur_block_idx, num_accepted_tokens)
    if not is_conv_state_dim_first():
        if offset > block.shape[0]:
            problem = f"is {num_accepted_tokens}, and the window has {block.shape[0]} tokens"
            raise arguments.refusal(op, "num_accepted_tokens", problem, "Accept fewer tokens.")
        block = block[offset:]
    elif offset != 0:
        raise shifted_dim_first(op, num_accepted_tokens)
    return MambaCopySpec(block.data_ptr(), block.numel())


def get_temporal_copy_spec(
    state: torch.Tensor, block_ids: Sequence[int], cur_block_idx: int, num_accepted_tokens: int
) -> MambaCopySpec:
    """Return the block of a temporal state after ``num_accepted_tokens`` tokens.

    state: (blocks, ...). The block is that of column ``cur_block_idx + num_accepted_tokens - 1``,
    without the padding of its page.

    Raises UsageError for a column or block that does not exist, and for less than one accepted
    token.
    """
    column = cur_block_idx + num_accepted_tokens - 1
    block = _block("get_temporal_copy_spec", state, block_ids, column, num_accepted_tokens)
    return MambaCopySpec(block.data_ptr(), block.numel())


def _block(
    op: str, state: torch.Tensor, block_ids: Sequence[int], column: int, num_accepted_tokens: int
) -> torch.Tensor:
    """Return the block of a column. Python's and torch's negative places mean nothing here."""
    if num_accepted_tokens < 1:
        problem = f"is {num_accepted_tokens}"
        raise arguments.refusal(op, "num_accepted_tokens", problem, "A step accepts at least 1.")
    if not 0 <= column < len(block_ids):
        problem = f"has {len(block_ids)} columns, not column {column}"
        raise arguments.refusal(op, "block_ids", problem, "Give the request its blocks first.")
    if not 0 <= block_ids[column] < state.shape[0]:
        problem = f"holds {block_ids[column]} in column {column} of {state.shape[0]} blocks"
        raise arguments.refusal(op, "block_ids", problem, "Pass ids of blocks of this state.")
    return state[block_ids[column]]


def shifted_dim_first(op: str, num_accepted_tokens: int) -> UsageError:
    """Return the error for a shifted window of a DS conv state, which is no single run."""
    return UsageError(
        f"{op}: a conv state in the DS layout cannot be moved by {num_accepted_tokens - 1} tokens "
        "in one run of bytes. Pass the MambaSpecDecodeGPUContext as align_ctx, whose copies go row "
        "by row, or keep conv states in the SD layout.",
        op=op,
        num_accepted_tokens=num_accepted_tokens,
    )


_kinds: dict[StateCopyFunc, StateKind] = {
    get_conv_copy_spec: StateKind.CONV,
    get_temporal_copy_spec: StateKind.TEMPORAL,
}


def register_copy_func(func: StateCopyFunc, kind: StateKind | str) -> None:
    """Say that ``func`` copies as ``get_conv_copy_spec`` ("conv") or its temporal twin does.

    Copy functions are recognised by identity. An engine's own two are registered once; any other
    function stays usable in batched copies, where it is called, but not in fused ones.

    Raises UsageError for another kind.
    """
    try:
        _kinds[func] = StateKind(kind)
    except ValueError:
        raise arguments.refusal(
            "register_copy_func", "kind", f"is {kind!r}", 'Pass "conv" or "temporal".'
        ) from None


def kind_of(func: StateCopyFunc) -> StateKind | None:
    """Return what a copy function moves, or None if it is not known."""
    return _kinds.get(func)
