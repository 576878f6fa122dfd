"""Checkpoints of a prefill: the states in the middle of it, kept for prompts with the same start.

The scan cuts a chunk at each checkpoint (``build_chunk_metadata(checkpoint_offsets=...)``) and
returns the states after every chunk; what is stored here is the one of that chunk, and the inputs
that the convolution would need to go on from there.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import math
from typing import Protocol

import torch
import triton
import triton.language as tl

from launchkit import launch, planned
from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_overlaps, refuse_self_overlap
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.ssd import checks
from launchkit.kernels.ssd.final_states import final_state_writeback

_OP = "store_prefill_checkpoint"
_BLOCK_SIZE = 1024


class PrefillCheckpoints(Protocol):
    """Where a batch's checkpoints are; an engine's own object fits. S sequences."""

    @property
    def state_indices(self) -> torch.Tensor:
        """(S,) int32 or int64: the cache slot of each checkpoint. A negative one is skipped."""

    @property
    def offsets(self) -> torch.Tensor:
        """(S,) int32 or int64: tokens of the sequence, in this batch, before its checkpoint; 0 or
        less for a sequence without one."""


@triton.jit(
    do_not_specialize=["stride_offsets", "stride_indices", "stride_chunk_idx", "stride_starts"],
    # Metadata tensors are usually views at some offset of a larger one.
    do_not_specialize_on_alignment=[
        "offsets_ptr",
        "indices_ptr",
        "chunk_idx_ptr",
        "query_start_loc_ptr",
    ],
)
def _store_prefill_checkpoint_kernel(
    offsets_ptr,
    indices_ptr,
    chunk_idx_ptr,
    query_start_loc_ptr,
    x_ptr,
    initial_conv_ptr,
    conv_ptr,
    chunk_states_ptr,
    ssm_ptr,
    stride_offsets: tl.int64,
    stride_indices: tl.int64,
    stride_chunk_idx: tl.int64,
    stride_starts: tl.int64,
    stride_x_dim: tl.int64,
    stride_x_seqlen: tl.int64,
    stride_initial_seq: tl.int64,
    stride_initial_dim: tl.int64,
    stride_initial_pos: tl.int64,
    stride_conv_slot: tl.int64,
    stride_conv_dim: tl.int64,
    stride_conv_pos: tl.int64,
    stride_chunk_states: tl.int64,
    stride_ssm_slot: tl.int64,
    conv_dim: tl.constexpr,
    state_len: tl.constexpr,
    state_size: tl.constexpr,
    CHANNELS_FIRST: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    offset = tl.load(offsets_ptr + row * stride_offsets).to(tl.int64)
    slot = tl.load(indices_ptr + row * stride_indices).to(tl.int64)
    if (offset > 0) & (slot >= 0):
        place = tl.program_id(1) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
        if tl.program_id(1) * BLOCK_SIZE < conv_dim * state_len:
            # Neighbours in memory are neighbours here.
            if CHANNELS_FIRST:
                channel = (place % conv_dim).to(tl.int64)
                window = (place // conv_dim).to(tl.int64)
            else:
                channel = (place // state_len).to(tl.int64)
                window = (place % state_len).to(tl.int64)
            inside = place < conv_dim * state_len
            position = offset - state_len + window
            start = tl.load(query_start_loc_ptr + row * stride_starts).to(tl.int64)
            x_ptrs = x_ptr + channel * stride_x_dim + (start + position) * stride_x_seqlen
            value = tl.load(x_ptrs, mask=inside & (position >= 0), other=0.0)
            if initial_conv_ptr is not None:
                before = initial_conv_ptr + row * stride_initial_seq + channel * stride_initial_dim
                before += (state_len + position) * stride_initial_pos
                earlier = tl.load(before, mask=inside & (position < 0), other=0.0)
                value = tl.where(position < 0, earlier.to(value.dtype), value)
            conv_ptrs = conv_ptr + slot * stride_conv_slot + channel * stride_conv_dim
            tl.store(conv_ptrs + window * stride_conv_pos, value, mask=inside)
        if tl.program_id(1) * BLOCK_SIZE < state_size:
            chunk = tl.load(chunk_idx_ptr + row * stride_chunk_idx).to(tl.int64)
            known = place < state_size
            state = tl.load(chunk_states_ptr + chunk * stride_chunk_states + place, mask=known)
            tl.store(ssm_ptr + slot * stride_ssm_slot + place, state, mask=known)


@planned
def _store(
    offsets: torch.Tensor,
    state_indices: torch.Tensor,
    chunk_idx: torch.Tensor,
    x: torch.Tensor,
    conv_state: torch.Tensor,
    chunk_states: torch.Tensor,
    ssm_state: torch.Tensor,
    query_start_loc: torch.Tensor,
    state_len: int,
    initial_conv_states: torch.Tensor | None,
) -> None:
    """Check the arguments and launch; ``store_prefill_checkpoint`` says what they are."""
    num_seqs = _check_rows(offsets, state_indices, chunk_idx, query_start_loc, ssm_state.device)
    _check_conv(x, conv_state, initial_conv_states, num_seqs, state_len)
    _check_states(chunk_states, ssm_state)
    read = (
        ("offsets", offsets), ("state_indices", state_indices), ("chunk_idx", chunk_idx),
        ("x", x), ("initial_conv_states", initial_conv_states), ("chunk_states", chunk_states),
        ("query_start_loc", query_start_loc),
    )  # fmt: skip
    # The two caches may be parts of the same pages.
    for written in (("conv_state", conv_state), ("ssm_state", ssm_state)):
        refuse_overlaps(_OP, (written,), read)
    require_launchable(_OP, ssm_state)
    conv_dim, state_size = conv_state.shape[1], math.prod(ssm_state.shape[1:])
    blocks = -(-max(conv_dim * state_len, state_size) // _BLOCK_SIZE)
    checks.require_grid_axis(_OP, "ssm_state", blocks, "blocks of state")
    if num_seqs == 0 or blocks == 0:
        return
    initial = initial_conv_states
    with device_guard(ssm_state):
        launch(
            _store_prefill_checkpoint_kernel,
            (num_seqs, blocks),
            offsets,
            state_indices,
            chunk_idx,
            query_start_loc,
            x,
            initial,
            conv_state,
            chunk_states,
            ssm_state,
            offsets.stride(0),
            state_indices.stride(0),
            chunk_idx.stride(0),
            query_start_loc.stride(0),
            *x.stride(),
            *((0, 0, 0) if initial is None else initial.stride()),
            *conv_state.stride(),
            chunk_states.stride(0),
            ssm_state.stride(0),
            conv_dim=conv_dim,
            state_len=state_len,
            state_size=state_size,
            CHANNELS_FIRST=x.stride(0) == 1,
            BLOCK_SIZE=_BLOCK_SIZE,
        )


def store_prefill_checkpoint(
    meta: PrefillCheckpoints,
    chunk_idx: torch.Tensor,
    x: torch.Tensor,
    conv_state: torch.Tensor,
    chunk_states: torch.Tensor,
    ssm_state: torch.Tensor,
    query_start_loc: torch.Tensor,
    *,
    state_len: int,
    initial_conv_states: torch.Tensor | None = None,
) -> None:
    """Store each sequence's conv and SSM state at its checkpoint into the cache, in one launch.

    meta: where the checkpoints are. A sequence without one writes nothing.
    chunk_idx: (S,) int32 or int64, the chunk that ends at each checkpoint:
        ``ChunkMetadata.checkpoint_chunk_indices``.
    x: (dim, T), what the convolution read, any strides.
    conv_state: (slots, dim, state_len or more), of x's dtype, any strides. Positions 0 up to
        ``state_len`` of the checkpoint's slot receive the inputs just before the checkpoint;
        those behind, which speculative tokens use, are left as they are.
    chunk_states: (nchunks, H, P, N), the states after every chunk, from the scan.
    ssm_state: (slots, H, P, N) with dense slots, perhaps parts of larger pages: the checkpoint's
        slot receives its chunk's state, in the cache's dtype.
    query_start_loc: (S+1,) int32 or int64, where each sequence starts in x.
    state_len: inputs that the convolution looks back, its width less one.
    initial_conv_states: (S, dim, state_len or more), x's dtype, any strides: the inputs before
        each sequence's first token of this batch, the last one at ``state_len - 1``. Needed for a
        checkpoint fewer than ``state_len`` tokens behind it, which without them has zeros there.

    Values are not checked, which would wait for the GPU. Checkpoints of one slot are written in
    no order. Store final states after checkpoints (``write_checkpointed_states``).
    Raises UsageError for shapes, dtypes or devices that do not fit, slots that are not dense, and
    caches that share memory with what is read.
    """
    _store(
        meta.offsets, meta.state_indices, chunk_idx, x, conv_state, chunk_states, ssm_state,
        query_start_loc, state_len, initial_conv_states,
    )  # fmt: skip


def write_checkpointed_states(
    meta: PrefillCheckpoints,
    chunk_idx: torch.Tensor,
    x: torch.Tensor,
    conv_state: torch.Tensor,
    chunk_states: torch.Tensor,
    ssm_state: torch.Tensor,
    query_start_loc: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    final_state_indices: torch.Tensor,
    initial_states: torch.Tensor | None = None,
    *,
    state_len: int,
    initial_conv_states: torch.Tensor | None = None,
) -> None:
    """Store the checkpoints and then the final states of a scan that returned all its states.

    In this order: of a checkpoint and a final state for one slot the final state stays. Final
    states are taken from ``chunk_states``, which no checkpoint touches.

    The parameters are those of ``store_prefill_checkpoint`` and ``final_state_writeback``.
    initial_states: what an empty sequence ends in, as the scan was given it or gathered it:
        a copy, not a view of ``ssm_state``.
    """
    store_prefill_checkpoint(
        meta, chunk_idx, x, conv_state, chunk_states, ssm_state, query_start_loc,
        state_len=state_len, initial_conv_states=initial_conv_states,
    )  # fmt: skip
    final_state_writeback(
        chunk_states, last_chunk_indices, ssm_state, final_state_indices, initial_states
    )


def _check_rows(
    offsets: torch.Tensor,
    state_indices: torch.Tensor,
    chunk_idx: torch.Tensor,
    query_start_loc: torch.Tensor,
    device: torch.device,
) -> int:
    checks.require_sizes(_OP, "offsets", offsets, "S", None)
    num_seqs = offsets.shape[0]
    checks.require_sizes(_OP, "state_indices", state_indices, "S", num_seqs)
    checks.require_sizes(_OP, "chunk_idx", chunk_idx, "S", num_seqs)
    checks.require_sizes(_OP, "query_start_loc", query_start_loc, "S+1", num_seqs + 1)
    for name, tensor in (
        ("offsets", offsets), ("state_indices", state_indices), ("chunk_idx", chunk_idx),
        ("query_start_loc", query_start_loc),
    ):  # fmt: skip
        arguments.require_tensor(_OP, name, tensor, arguments.INDEX_DTYPES, device)
    return num_seqs


def _check_conv(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    initial_conv_states: torch.Tensor | None,
    num_seqs: int,
    state_len: int,
) -> None:
    if type(state_len) is not int or state_len < 1:
        raise arguments.refusal(_OP, "state_len", f"is {state_len!r}", "Pass an int of 1 or more.")
    checks.require_sizes(_OP, "x", x, "dim, T", None, None)
    arguments.require_tensor(_OP, "x", x, arguments.STATE_DTYPES, x.device)
    named: list[tuple[str, torch.Tensor, str, int | None]]
    named = [("conv_state", conv_state, "slots", None)]
    if initial_conv_states is not None:
        named.append(("initial_conv_states", initial_conv_states, "S", num_seqs))
    for name, tensor, rows, count in named:
        checks.require_sizes(_OP, name, tensor, f"{rows}, dim, positions", count, x.shape[0], None)
        arguments.require_tensor(_OP, name, tensor, (x.dtype,), x.device)
        if tensor.shape[2] < state_len:
            wanted = f"({rows}, dim, {state_len} or more)"
            raise arguments.wrong_shape(_OP, name, tensor, wanted)
    refuse_self_overlap(_OP, "conv_state", conv_state)


def _check_states(chunk_states: torch.Tensor, ssm_state: torch.Tensor) -> None:
    checks.require_sizes(_OP, "ssm_state", ssm_state, "slots, H, P, N", None, None, None, None)
    sizes = ssm_state.shape[1:]
    checks.require_sizes(_OP, "chunk_states", chunk_states, "nchunks, H, P, N", None, *sizes)
    for name, tensor in (("ssm_state", ssm_state), ("chunk_states", chunk_states)):
        arguments.require_tensor(_OP, name, tensor, arguments.STATE_DTYPES, ssm_state.device)
        if not arguments.rows_are_dense(tensor):
            problem = f"has strides {tensor.stride()}, so a state of it is not dense"
            raise arguments.refusal(_OP, name, problem, "Pass it with dense states.")
    refuse_self_overlap(_OP, "ssm_state", ssm_state)
