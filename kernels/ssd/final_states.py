"""Final-state write-back: puts each sequence's last state into its cache slot, in one launch.

For callers that hold the states after every chunk, because they need some of them. Without
that need the scan writes final states itself (``final_states_out``).
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from launchkit import autotuned, launch_autotuned, planned
from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_overlaps
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.ssd import checks, state_arguments
from launchkit.kernels.ssd.state_passing import last_chunk_before

_OP = "final_state_writeback"


@autotuned(
    # One config: a copy of this size is bound by memory, so tuning would only cost time.
    configs=[triton.Config({"BLOCK_SIZE": 1024}, num_warps=4)],
    key=[],
    name="ssd.final_states",
)
@triton.jit(
    do_not_specialize=["stride_last_chunk_indices", "stride_final_state_indices"],
    do_not_specialize_on_alignment=["last_chunk_indices_ptr", "final_state_indices_ptr"],
)
def _final_state_writeback_kernel(
    states_ptr,
    initstates_ptr,
    last_chunk_indices_ptr,
    final_states_ptr,
    final_state_indices_ptr,
    dim: tl.constexpr,
    stride_states_chunk: tl.int64,
    stride_states_head: tl.int64,
    stride_states_dim,
    stride_initstates_batch: tl.int64,
    stride_initstates_head: tl.int64,
    stride_initstates_dim,
    stride_last_chunk_indices: tl.int64,
    stride_final_states_slot: tl.int64,
    stride_final_states_head: tl.int64,
    stride_final_states_dim,
    stride_final_state_indices: tl.int64,
    BLOCK_SIZE: tl.constexpr,
):
    seq = tl.program_id(1).to(tl.int64)
    head = tl.program_id(2).to(tl.int64)
    # Wide, since only strides without a type are compiled as a constant where they are 1, which
    # vectorizes; the others would overflow.
    offs = (tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)).to(tl.int64)
    mask = offs < dim
    slot = tl.load(final_state_indices_ptr + seq * stride_final_state_indices).to(tl.int64)
    if slot >= 0:
        last = tl.load(last_chunk_indices_ptr + seq * stride_last_chunk_indices).to(tl.int64)
        last_before = last_chunk_before(last_chunk_indices_ptr, seq, stride_last_chunk_indices)
        state = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)
        if last > last_before:
            states_ptr += last * stride_states_chunk + head * stride_states_head
            loaded = tl.load(states_ptr + offs * stride_states_dim, mask=mask, other=0.0)
            state = loaded.to(tl.float32)
        else:
            if initstates_ptr is not None:
                initstates_ptr += seq * stride_initstates_batch + head * stride_initstates_head
                init_ptrs = initstates_ptr + offs * stride_initstates_dim
                state = tl.load(init_ptrs, mask=mask, other=0.0).to(tl.float32)
        final_states_ptr += slot * stride_final_states_slot + head * stride_final_states_head
        tl.store(final_states_ptr + offs * stride_final_states_dim, state, mask=mask)


@planned
def final_state_writeback(
    states: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    final_states_out: torch.Tensor,
    final_state_indices: torch.Tensor,
    initial_states: torch.Tensor | None = None,
) -> None:
    """Write the state after each sequence's last chunk to its row of a cache.

    states: (nchunks, H, P, N), fp32, fp16 or bf16: what the scan returns with
        ``return_intermediate_states``.
    last_chunk_indices: (S,) int32, as for the scan.
    final_states_out: (slots, H, P, N), fp32, fp16 or bf16, P and N dense. Only rows named in
        ``final_state_indices`` are written, in the cache's dtype.
    final_state_indices: (S,) int32 or int64. A negative slot is skipped. Of two sequences with
        the same slot either may win.
    initial_states: (S, H, P, N): what an empty sequence's row receives; zeros if None.

    Indices are not checked, which would wait for the GPU.

    Raises UsageError for shapes, dtypes or devices that do not fit, and for a cache that shares
    memory with what is read.
    """
    checks.require_sizes(_OP, "states", states, "nchunks, H, P, N", None, None, None, None)
    _, nheads, headdim, dstate = states.shape
    checks.require_state_channels(_OP, "states", states, "nchunks, H, P, N")
    device, dim = states.device, headdim * dstate
    arguments.require_tensor(_OP, "states", states, arguments.STATE_DTYPES, device)
    num_seqs = state_arguments.check_last_chunks(_OP, last_chunk_indices, nheads, device)
    cache_sizes = (None, nheads, headdim, dstate)
    checks.require_sizes(_OP, "final_states_out", final_states_out, "slots, H, P, N", *cache_sizes)
    sizes = (num_seqs, nheads, dim, device)
    final_strides = state_arguments.check_final(_OP, final_states_out, final_state_indices, *sizes)
    initial, init_strides = state_arguments.check_initial(_OP, initial_states, *sizes)
    if initial_states is not None:
        state_arguments.require_state_sizes(_OP, "initial_states", initial_states, headdim, dstate)
    read = (
        ("states", states), ("initial_states", initial),
        ("last_chunk_indices", last_chunk_indices), ("final_state_indices", final_state_indices),
    )  # fmt: skip
    refuse_overlaps(_OP, (("final_states_out", final_states_out),), read)
    require_launchable(_OP, states)
    if num_seqs == 0 or nheads == 0 or dim == 0:
        return
    states_strides = arguments.flat_strides(states)
    if states_strides is None:
        states, states_strides = states.contiguous(), (nheads * dim, dim, 1)
    with device_guard(states):
        launch_autotuned(
            _final_state_writeback_kernel,
            lambda meta: (-(-dim // meta["BLOCK_SIZE"]), num_seqs, nheads),
            states_ptr=states,
            initstates_ptr=initial,
            last_chunk_indices_ptr=last_chunk_indices,
            final_states_ptr=final_states_out,
            final_state_indices_ptr=final_state_indices,
            dim=dim,
            stride_states_chunk=states_strides[0],
            stride_states_head=states_strides[1],
            stride_states_dim=states_strides[2],
            stride_initstates_batch=init_strides[0],
            stride_initstates_head=init_strides[1],
            stride_initstates_dim=init_strides[2],
            stride_last_chunk_indices=last_chunk_indices.stride(0),
            stride_final_states_slot=final_strides[0],
            stride_final_states_head=final_strides[1],
            stride_final_states_dim=final_strides[2],
            stride_final_state_indices=final_state_indices.stride(0),
        )
