"""State passing of one sequence that starts in a slot of the state cache, and may end in the same.

The recurrence of ``state_passing``, to the bit. What is stored is the state that each chunk starts
in, not the one that it ends in: the slot that the sequence started in may be overwritten by its
final state before the scan's last step reads it.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from launchkit import launch
from launchkit.kernels.initial_states import slot_to_read

_BLOCK_SIZE, _NUM_WARPS = 512, 4
"""Fixed: the trial launches of a tuning would advance a state in place again and again. Each
thread holds elements of its own, so that none writes one that another has still to read."""


@triton.jit(
    do_not_specialize=[
        "stride_dA_cumsum_head",
        "stride_dA_cumsum_chunk",
        "stride_initial_index",
        "stride_has_initial",
        "stride_last_chunk_indices",
        "stride_final_index",
    ],
    # Metadata tensors are usually views at some offset of a larger one.
    do_not_specialize_on_alignment=[
        "initial_index_ptr",
        "has_initial_ptr",
        "last_chunk_indices_ptr",
        "final_index_ptr",
    ],
)
def _indexed_state_passing_kernel(
    states_ptr,
    entering_ptr,
    dA_cumsum_ptr,
    initial_ptr,
    initial_index_ptr,
    has_initial_ptr,
    last_chunk_indices_ptr,
    final_states_ptr,
    final_index_ptr,
    nheads: tl.constexpr,
    dim: tl.constexpr,
    chunk_size: tl.constexpr,
    stride_dA_cumsum_head: tl.int64,
    stride_dA_cumsum_chunk: tl.int64,
    stride_initial_slot: tl.int64,
    stride_initial_index: tl.int64,
    stride_has_initial: tl.int64,
    stride_last_chunk_indices: tl.int64,
    stride_final_states_slot: tl.int64,
    stride_final_states_head: tl.int64,
    stride_final_states_dim,
    stride_final_index: tl.int64,
    BLOCK_SIZE: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64)
    # Wide, since only strides without a type are compiled as a constant where they are 1.
    offs = (tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)).to(tl.int64)
    mask = offs < dim
    last = tl.load(last_chunk_indices_ptr)

    slot = slot_to_read(initial_index_ptr, has_initial_ptr, 0, stride_initial_index, stride_has_initial)  # fmt: skip
    initial_ptr += tl.maximum(slot, 0) * stride_initial_slot + head * dim
    stored = tl.where(slot >= 0, dim, 0)
    state = tl.load(initial_ptr + offs, mask=offs < stored, other=0.0).to(tl.float32)

    states_ptr += head * dim
    entering_ptr += head * dim
    dA_cumsum_ptr += head * stride_dA_cumsum_head + (chunk_size - 1)
    for chunk in range(last + 1):
        tl.store(entering_ptr + offs, state, mask=mask)
        decay = tl.exp(tl.load(dA_cumsum_ptr + chunk * stride_dA_cumsum_chunk))
        new = tl.load(states_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        state = decay * state + new
        states_ptr += nheads * dim
        entering_ptr += nheads * dim

    final_slot = tl.load(final_index_ptr).to(tl.int64)
    if final_slot >= 0:
        final_states_ptr += final_slot * stride_final_states_slot + head * stride_final_states_head
        tl.store(final_states_ptr + offs * stride_final_states_dim, state, mask=mask)


def launch_indexed_passing(
    states: torch.Tensor,
    dA_cumsum: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    entering: torch.Tensor,
    initial_state_cache: torch.Tensor,
    initial_state_indices: torch.Tensor,
    has_initial_state: torch.Tensor | None,
    final_states_out: torch.Tensor,
    final_strides: Sequence[int],
    final_state_indices: torch.Tensor,
) -> None:
    """Launch on arguments that the caller has checked.

    states: (nchunks, H, P, N) fp32, contiguous: what each chunk alone adds. One sequence.
    entering: (nchunks, H, P, N), contiguous, written: the state that each chunk starts in.
    initial_state_cache: (slots, H, P, N) with dense slots, of ``entering``'s dtype.
    final_states_out: may be that cache; its strides are those of (slots, H, P*N).
    """
    _, nheads, headdim, dstate = entering.shape
    dim = headdim * dstate
    dA_strides, flags = dA_cumsum.stride(), has_initial_state
    launch(
        _indexed_state_passing_kernel,
        (-(-dim // _BLOCK_SIZE), nheads),
        states,
        entering,
        dA_cumsum,
        initial_state_cache,
        initial_state_indices,
        flags,
        last_chunk_indices,
        final_states_out,
        final_state_indices,
        nheads,
        dim,
        dA_cumsum.shape[2],
        dA_strides[0],
        dA_strides[1],
        initial_state_cache.stride(0),
        initial_state_indices.stride(0),
        0 if flags is None else flags.stride(0),
        last_chunk_indices.stride(0),
        final_strides[0],
        final_strides[1],
        final_strides[2],
        final_state_indices.stride(0),
        BLOCK_SIZE=_BLOCK_SIZE,
        num_warps=_NUM_WARPS,
    )
