"""Initial states: gathers the states that sequences continue from out of their cache, in one launch.

What torch does in four operations: widen the indices, gather, fill a zero, select.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from launchkit import launch, planned
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable

_OP = "gather_initial_states"
_BLOCK_SIZE = 1024
_MAX_SEQUENCES = 65535
"""What the second axis of a grid holds."""


@triton.jit
def slot_to_read(index_ptr, has_initial_ptr, seq, stride_index: tl.int64, stride_has: tl.int64):
    """Return the slot that sequence ``seq`` starts in; -1 if it starts from zeros."""
    slot = tl.load(index_ptr + seq * stride_index).to(tl.int64)
    if has_initial_ptr is not None:
        if tl.load(has_initial_ptr + seq * stride_has) == 0:
            slot = slot * 0 - 1
    return slot


@triton.jit(
    # Views of block tables at any place: one load a program each.
    do_not_specialize=["stride_indices", "stride_has_initial_state"],
    do_not_specialize_on_alignment=["indices_ptr", "has_initial_state_ptr"],
)
def _gather_initial_states_kernel(
    state_ptr,
    indices_ptr,
    has_initial_state_ptr,
    out_ptr,
    stride_state: tl.int64,
    stride_indices: tl.int64,
    stride_has_initial_state: tl.int64,
    row_size: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    seq = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < row_size
    slot = slot_to_read(
        indices_ptr, has_initial_state_ptr, seq, stride_indices, stride_has_initial_state
    )
    # Slot 0 where none is read: the address stays within the cache, and the mask keeps it unread.
    source = state_ptr + tl.maximum(slot, 0) * stride_state
    stored = tl.where(slot >= 0, row_size, 0)
    state = tl.load(source + offsets, mask=offsets < stored, other=0.0)
    tl.store(out_ptr + seq * row_size + offsets, state, mask=mask)


@planned
def gather_initial_states(
    state: torch.Tensor,
    indices: torch.Tensor,
    has_initial_state: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return ``state[indices]``, with zeros for sequences that start afresh.

    state: (slots, ...), fp32, fp16 or bf16: a cache whose slots are dense, and may be parts of
        larger pages.
    indices: (S,) int32 or int64, any stride: each sequence's slot. A negative one stands for
        zeros.
    has_initial_state: (S,) bool, any stride: False where a sequence starts from zeros. Its slot
        is not read then, whatever the index and whatever the cache holds. By default all True.

    Slots behind the last one are not checked, which would wait for the GPU.

    Returns a dense (S, ...) tensor of the cache's dtype.
    Raises UsageError for shapes, dtypes or devices that do not fit, and slots that are not dense.
    """
    num_seqs = check_slots(_OP, state, indices, has_initial_state, "state", "indices", None)
    if not arguments.rows_are_dense(state):
        problem = f"has strides {state.stride()}, so a slot of it is not dense"
        raise arguments.refusal(_OP, "state", problem, "Pass a cache with dense slots.")
    require_launchable(_OP, state)
    out = torch.empty((num_seqs, *state.shape[1:]), dtype=state.dtype, device=state.device)
    if out.numel():
        with device_guard(state):
            launch_gather(state, state.stride(0), indices, has_initial_state, out)
    return out


def launch_gather(
    state: torch.Tensor,
    stride_state: int,
    indices: torch.Tensor,
    has_initial_state: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    """Launch on arguments that the caller has checked; ``out`` is dense and not empty."""
    num_seqs = out.shape[0]
    row_size = out.numel() // num_seqs
    launch(
        _gather_initial_states_kernel,
        (-(-row_size // _BLOCK_SIZE), num_seqs),
        state,
        indices,
        has_initial_state,
        out,
        stride_state,
        indices.stride(0),
        0 if has_initial_state is None else has_initial_state.stride(0),
        row_size=row_size,
        BLOCK_SIZE=_BLOCK_SIZE,
        num_warps=8,
    )


def check_slots(
    op: str,
    state: torch.Tensor,
    indices: torch.Tensor,
    has_initial_state: torch.Tensor | None,
    state_name: str,
    indices_name: str,
    num_seqs: int | None,
) -> int:
    """Return S, having checked what says where sequences start; None stands for any S.

    Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    if len(arguments.sizes_of(op, state_name, state)) == 0:
        raise arguments.wrong_shape(op, state_name, state, "(slots, ...)")
    arguments.require_tensor(op, state_name, state, arguments.STATE_DTYPES, state.device)
    shape = arguments.sizes_of(op, indices_name, indices)
    if len(shape) != 1 or (num_seqs is not None and shape[0] != num_seqs):
        wanted = "(S,)" if num_seqs is None else f"(S,) with S {num_seqs}"
        raise arguments.wrong_shape(op, indices_name, indices, wanted)
    count = shape[0]
    if count > _MAX_SEQUENCES:
        problem = f"has {count} sequences, over {_MAX_SEQUENCES}"
        raise arguments.refusal(op, indices_name, problem, "Split them over several calls.")
    arguments.require_tensor(op, indices_name, indices, arguments.INDEX_DTYPES, state.device)
    if has_initial_state is not None:
        name = "has_initial_state"
        if arguments.sizes_of(op, name, has_initial_state) != shape:
            raise arguments.wrong_shape(op, name, has_initial_state, f"(S,) with S {count}")
        arguments.require_tensor(op, name, has_initial_state, (torch.bool,), state.device)
    return count
