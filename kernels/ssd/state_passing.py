"""State passing: carries each sequence's state from chunk to chunk. Third step of the scan.

The recurrence is the inter-chunk one of "Transformers are SSMs" (Dao and Gu, 2024), section
6: a chunk's exiting state is its entering state, decayed over the whole chunk, plus what the
chunk alone would have left behind.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from launchkit import autotuned, launch_autotuned
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.ssd import checks, state_arguments

_OP = "state_passing"


@autotuned(
    configs=[triton.Config({"BLOCK_SIZE": size}) for size in (512, 64, 128, 256, 1024, 2048)],
    key=["dim"],
    name="ssd.state_passing",
)
@triton.jit(
    # Strides that differ between batches and callers, and that one load per chunk uses.
    do_not_specialize=[
        "stride_dA_cs_head",
        "stride_dA_cs_chunk",
        "stride_last_chunk_indices",
        "stride_final_state_indices",
    ],
    # Metadata tensors are usually views at some offset of a larger one.
    do_not_specialize_on_alignment=["last_chunk_indices_ptr", "final_state_indices_ptr"],
)
def _state_passing_fwd_kernel(
    states_ptr,
    out_ptr,
    dA_cs_ptr,
    initstates_ptr,
    last_chunk_indices_ptr,
    final_states_ptr,
    final_state_indices_ptr,
    dim: tl.constexpr,
    chunk_size: tl.constexpr,
    stride_states_chunk: tl.int64,
    stride_states_head: tl.int64,
    stride_states_dim,
    stride_out_chunk: tl.int64,
    stride_out_head: tl.int64,
    stride_out_dim,
    stride_dA_cs_head: tl.int64,
    stride_dA_cs_chunk: tl.int64,
    stride_dA_cs_csize: tl.int64,
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

    # -1 marks an empty sequence in some callers' metadata, so look behind those.
    last_before = -1
    before = seq - 1
    while (before >= 0) & (last_before < 0):
        last_before = tl.load(last_chunk_indices_ptr + before * stride_last_chunk_indices)
        before -= 1
    last = tl.load(last_chunk_indices_ptr + seq * stride_last_chunk_indices)

    if initstates_ptr is not None:
        initstates_ptr += seq * stride_initstates_batch + head * stride_initstates_head
        state = tl.load(initstates_ptr + offs * stride_initstates_dim, mask=mask, other=0.0)
        state = state.to(tl.float32)
    else:
        state = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)

    states_ptr += head * stride_states_head
    out_ptr += head * stride_out_head
    dA_cs_ptr += head * stride_dA_cs_head + (chunk_size - 1) * stride_dA_cs_csize
    for chunk in range(last_before + 1, last + 1):
        decay = tl.exp(tl.load(dA_cs_ptr + chunk * stride_dA_cs_chunk))
        states_ptrs = states_ptr + chunk * stride_states_chunk + offs * stride_states_dim
        new = tl.load(states_ptrs, mask=mask, other=0.0).to(tl.float32)
        state = decay * state + new
        out_ptrs = out_ptr + chunk * stride_out_chunk + offs * stride_out_dim
        tl.store(out_ptrs, state, mask=mask)

    if final_states_ptr is not None:
        slot = seq
        if final_state_indices_ptr is not None:
            index_ptr = final_state_indices_ptr + seq * stride_final_state_indices
            slot = tl.load(index_ptr).to(tl.int64)
        if slot >= 0:
            final_states_ptr += slot * stride_final_states_slot + head * stride_final_states_head
            tl.store(final_states_ptr + offs * stride_final_states_dim, state, mask=mask)


def state_passing(
    states: torch.Tensor,
    dA_cumsum: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    initial_states: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    final_states_out: torch.Tensor | None = None,
    final_state_indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """Carry each sequence's state through its chunks; return the state after every chunk.

    For each head, ``S = exp(dA_cumsum[:, chunk, -1]) * S + states[chunk]`` over the chunks of
    one sequence, from its initial state or zeros. S is held in fp32 and rounded only where it
    is stored. Forward only. All tensors are on one device; strides are free except where noted.

    states: (nchunks, H, P*N), fp32, fp16 or bf16: what each chunk alone adds.
    dA_cumsum: (H, nchunks, chunk_size) fp32, sums of dt*A within the chunk; only the last
        position, the chunk's total, is read.
    last_chunk_indices: (S,) int32, each sequence's last chunk. Sequences lie one after another.
        An empty one repeats the value of the one before, or holds -1; its final state is its
        initial state, or zeros.
    initial_states: (S, H, P, N) or (S, H, P*N), fp32, fp16 or bf16.
    out_dtype: dtype of the result, by default that of ``states``.
    final_states_out: (slots, H, P, N), fp32, fp16 or bf16, with P and N dense: a cache, perhaps
        of padded pages. Row ``final_state_indices[s]`` receives sequence s's final state,
        rounded once from fp32 to the cache's dtype; nothing else is written.
    final_state_indices: (S,) int32 or int64. A negative slot is skipped. Of two sequences with
        the same slot either may win.

    Indices are not checked, which would wait for the GPU: a chunk or slot beyond the last one
    reads and writes out of bounds.

    Returns (nchunks, H, P*N). Chunks that belong to no sequence are left unwritten.
    Raises UsageError for shapes, dtypes or devices that do not fit, for one of the two final
    arguments without the other, and for a cache that reaches into ``states`` or
    ``initial_states`` (sequences run in no order, and tuning repeats the launch) or whose
    slots, heads or elements share memory with each other.
    """
    _, nheads, dim = _check_inputs(states, dA_cumsum, last_chunk_indices)
    num_seqs = last_chunk_indices.shape[0]
    sizes = (num_seqs, nheads, dim, states.device)
    initial, init_strides = state_arguments.check_initial(_OP, initial_states, *sizes)
    final_strides = state_arguments.check_final(_OP, final_states_out, final_state_indices, *sizes)
    _check_together(states, initial, final_states_out)
    out_dtype = out_dtype or states.dtype
    if out_dtype not in arguments.STATE_DTYPES:
        raise arguments.wrong_dtype(_OP, "out_dtype", out_dtype, arguments.STATE_DTYPES)
    require_launchable(_OP, states)
    out = torch.empty_like(states, dtype=out_dtype, memory_format=torch.contiguous_format)
    if num_seqs == 0 or nheads == 0 or dim == 0:
        return out
    with device_guard(states):
        launch_state_passing(
            states, states.stride(), dA_cumsum, last_chunk_indices, out,
            initial, init_strides, final_states_out, final_strides, final_state_indices,
        )  # fmt: skip
    return out


def launch_state_passing(
    states: torch.Tensor,
    states_strides: Sequence[int],
    dA_cumsum: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    out: torch.Tensor,
    initial_states: torch.Tensor | None,
    init_strides: Sequence[int],
    final_states_out: torch.Tensor | None,
    final_strides: Sequence[int],
    final_state_indices: torch.Tensor | None,
) -> None:
    """Launch on arguments that the caller has checked; ``state_passing`` says what they are.

    ``states`` and ``out`` may be (nchunks, H, P, N) instead of (nchunks, H, P*N); ``out`` is
    contiguous. Each ``*_strides`` are those of (rows, H, P*N). Without ``final_state_indices``
    sequence s's final state goes to row s of ``final_states_out``.
    """
    num_seqs = last_chunk_indices.shape[0]
    nheads, _, chunk_size = dA_cumsum.shape
    dim = out.shape[2] if out.dim() == 3 else out.shape[2] * out.shape[3]
    dA_strides = dA_cumsum.stride()
    launch_autotuned(
        _state_passing_fwd_kernel,
        lambda meta: (-(-dim // meta["BLOCK_SIZE"]), num_seqs, nheads),
        states_ptr=states,
        out_ptr=out,
        dA_cs_ptr=dA_cumsum,
        initstates_ptr=initial_states,
        last_chunk_indices_ptr=last_chunk_indices,
        final_states_ptr=final_states_out,
        final_state_indices_ptr=final_state_indices,
        dim=dim,
        chunk_size=chunk_size,
        stride_states_chunk=states_strides[0],
        stride_states_head=states_strides[1],
        stride_states_dim=states_strides[2],
        stride_out_chunk=nheads * dim,
        stride_out_head=dim,
        stride_out_dim=1,
        stride_dA_cs_head=dA_strides[0],
        stride_dA_cs_chunk=dA_strides[1],
        stride_dA_cs_csize=dA_strides[2],
        stride_initstates_batch=init_strides[0],
        stride_initstates_head=init_strides[1],
        stride_initstates_dim=init_strides[2],
        stride_last_chunk_indices=last_chunk_indices.stride(0),
        stride_final_states_slot=final_strides[0],
        stride_final_states_head=final_strides[1],
        stride_final_states_dim=final_strides[2],
        stride_final_state_indices=(
            0 if final_state_indices is None else final_state_indices.stride(0)
        ),
    )


def _check_inputs(
    states: torch.Tensor, dA_cumsum: torch.Tensor, last_chunk_indices: torch.Tensor
) -> torch.Size:
    """Check what every call passes; return the shape of ``states``."""
    shape, sizes, device = states.shape, dA_cumsum.shape, states.device
    if len(shape) != 3:
        raise arguments.wrong_shape(_OP, "states", states, "(nchunks, H, P*N)")
    if len(sizes) != 3 or sizes[0] != shape[1] or sizes[1] != shape[0] or sizes[2] == 0:
        wanted = f"(H, nchunks, chunk_size) with H {shape[1]}, nchunks {shape[0]}, chunk_size > 0"
        raise arguments.wrong_shape(_OP, "dA_cumsum", dA_cumsum, wanted)
    if last_chunk_indices.dim() != 1:
        raise arguments.wrong_shape(_OP, "last_chunk_indices", last_chunk_indices, "(S,)")
    arguments.require_tensor(_OP, "states", states, arguments.STATE_DTYPES, device)
    arguments.require_tensor(_OP, "dA_cumsum", dA_cumsum, (torch.float32,), device)
    arguments.require_tensor(_OP, "last_chunk_indices", last_chunk_indices, (torch.int32,), device)
    num_seqs = last_chunk_indices.shape[0]
    checks.require_heads(_OP, "states", shape[1])
    checks.require_seqs(_OP, "last_chunk_indices", num_seqs)
    return shape


def _check_together(
    states: torch.Tensor, initial: torch.Tensor | None, cache: torch.Tensor | None
) -> None:
    """Check what the cache must not share, and must share, with what the kernel reads."""
    if cache is None:
        return
    state_arguments.refuse_overlap(_OP, cache, "states", states)
    if initial is None:
        return
    state_arguments.refuse_overlap(_OP, cache, "initial_states", initial)
    if initial.dim() == 4 and initial.shape[3] != cache.shape[3]:
        wanted = f"of P and N {tuple(cache.shape[2:])} as final_states_out"
        raise arguments.wrong_shape(_OP, "initial_states", initial, wanted)
