"""What the state copies do, in plain Python on tensors of any device: for tests, not for speed.

Written from the meaning of each step, without the kernels' arithmetic on addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launchkit.kernels.state_copy.layout import StateTensor

Table = Sequence[Sequence[int]]
"""A group's block table: block ids, by row and column."""


@dataclass(frozen=True)
class StateCopy:
    """One request's copy of all its states."""

    row: int
    """Row of the block tables."""
    src_col: int
    dst_col: int
    token_bias: int


def memmove_reference(memory: bytearray, src: int, dst: int, size: int) -> None:
    """Copy ``size`` bytes of ``memory`` from place ``src`` to ``dst``; they may overlap."""
    memory[dst : dst + size] = bytes(memory[src : src + size])


def copy_states_reference(
    copies: Sequence[StateCopy],
    states: Sequence[StateTensor],
    tables: Sequence[Table],
    conv_dim_first: bool = False,
) -> None:
    """Carry out ``copies`` one after another, in place.

    A convolutional state moves on by ``token_bias`` inputs; of the destination the first
    W - token_bias places are written. A temporal one is taken from ``token_bias`` columns on.
    """
    for copy in copies:
        for state in states:
            ids = tables[state.group][copy.row]
            target = state.tensor[ids[copy.dst_col]]
            if not state.is_conv:
                target.copy_(state.tensor[ids[copy.src_col + copy.token_bias]].clone())
                continue
            source = state.tensor[ids[copy.src_col]].clone()
            axis = 1 if conv_dim_first else 0
            kept = source.shape[axis] - copy.token_bias
            if kept > 0:
                target.narrow(axis, 0, kept).copy_(source.narrow(axis, copy.token_bias, kept))


def preprocess_reference(
    idx_mapping: Sequence[int],
    state_idx: Sequence[int],
    num_computed_tokens: Sequence[int],
    query_start_loc: Sequence[int],
    num_accepted_tokens: Sequence[int],
    src_col: Sequence[int],
    src_off: Sequence[int],
    mamba_block_size: int,
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return state_idx, num_accepted_tokens, src_col and src_off after a step's preparation.

    ``idx_mapping`` has an entry a request of the step; slots that it does not name keep theirs.
    """
    columns, accepted = list(state_idx), list(num_accepted_tokens)
    sources, offsets = list(src_col), list(src_off)
    for row, slot in enumerate(idx_mapping):
        if slot < 0:
            continue
        total = num_computed_tokens[slot] + query_start_loc[row + 1] - query_start_loc[row]
        last_column = -(-total // mamba_block_size) - 1
        sources[slot], offsets[slot] = columns[slot], max(accepted[slot] - 1, 0)
        if columns[slot] not in (-1, last_column):
            accepted[slot] = 1
        columns[slot] = last_column
    return columns, accepted, sources, offsets


def precopy_reference(
    idx_mapping: Sequence[int],
    state_idx: Sequence[int],
    src_col: Sequence[int],
    token_bias: Sequence[int],
    table_by_slot: bool = True,
) -> list[StateCopy]:
    """Return the copies that a step starts with: of requests that are not fresh and change column."""
    return [
        StateCopy(slot if table_by_slot else row, src_col[slot], state_idx[slot], token_bias[slot])
        for row, slot in enumerate(idx_mapping)
        if slot >= 0
        and min(src_col[slot], token_bias[slot]) >= 0
        and src_col[slot] != state_idx[slot]
    ]


def postprocess_reference(
    idx_mapping: Sequence[int],
    num_accepted_tokens: Sequence[int],
    state_idx: Sequence[int],
    tokens_after: Sequence[int],
    block_size: int,
    table_by_slot: bool = True,
) -> tuple[list[StateCopy], list[int]]:
    """Return the copies that a step ends with, and the accepted tokens after it.

    ``tokens_after``: by slot, tokens computed once the accepted ones are counted. The state
    before them holds ``accepted - 1`` fewer. It is kept for the last block end in between,
    where there is one.
    """
    copies, accepted_after = [], list(num_accepted_tokens)
    for row, slot in enumerate(idx_mapping):
        if slot < 0 or state_idx[slot] < 0:
            continue
        held = tokens_after[slot] - num_accepted_tokens[slot] + 1
        ends = [end for end in range(held, tokens_after[slot] + 1) if end > 0]
        ends = [end for end in ends if end % block_size == 0]
        if not ends:
            continue
        src_col, dst_col = state_idx[slot], ends[-1] // block_size - 1
        if src_col == dst_col:
            accepted_after[slot] = 1
        if src_col != dst_col or ends[-1] > held:
            table_row = slot if table_by_slot else row
            copies.append(StateCopy(table_row, src_col, dst_col, ends[-1] - held))
    return copies, accepted_after
