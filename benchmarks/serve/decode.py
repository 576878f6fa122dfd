"""The state update of a token that decodes, for ``launchkit bench serve``: one small kernel.

An engine has its own; this one is plain, and the same in all variants.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["stride_slots"],
    do_not_specialize_on_alignment=["slots_ptr"],
)
def decode_update_kernel(
    state_ptr,
    x_ptr,
    dt_ptr,
    A_ptr,
    B_ptr,
    C_ptr,
    D_ptr,
    dt_bias_ptr,
    slots_ptr,
    out_ptr,
    stride_state: tl.int64,
    stride_x,
    stride_dt,
    stride_B,
    stride_C,
    stride_out,
    stride_slots,
    HEADDIM: tl.constexpr,
    DSTATE: tl.constexpr,
    HEADS_PER_GROUP: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Advance one head's state of one request by one token, in place; grid (H, rows).

    state: (slots, H, P, N); x and out: (rows, H, P); dt: (rows, H); B, C: (rows, G, N), all dense
    but for their first stride; A, D, dt_bias: (H,); slots: (rows,), no two the same.
    """
    head, row = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots_ptr + row * stride_slots).to(tl.int64)
    channel, entry = tl.arange(0, BLOCK_P), tl.arange(0, BLOCK_N)
    in_head, in_state = channel < HEADDIM, entry < DSTATE
    dt = tl.load(dt_ptr + row * stride_dt + head).to(tl.float32) + tl.load(dt_bias_ptr + head)
    dt = tl.where(dt > 20.0, dt, tl.log(1.0 + tl.exp(dt)))
    x_places = head * HEADDIM + channel
    x = tl.load(x_ptr + row * stride_x + x_places, mask=in_head, other=0.0).to(tl.float32)
    places = head // HEADS_PER_GROUP * DSTATE + entry
    B = tl.load(B_ptr + row * stride_B + places, mask=in_state, other=0.0).to(tl.float32)
    C = tl.load(C_ptr + row * stride_C + places, mask=in_state, other=0.0).to(tl.float32)
    states = state_ptr + slot * stride_state + x_places[:, None] * DSTATE + entry[None, :]
    both = in_head[:, None] & in_state[None, :]
    state = tl.load(states, mask=both, other=0.0).to(tl.float32)
    state = state * tl.exp(dt * tl.load(A_ptr + head)) + (dt * x)[:, None] * B[None, :]
    tl.store(states, state.to(state_ptr.dtype.element_ty), mask=both)
    out = tl.sum(state * C[None, :], axis=1) + x * tl.load(D_ptr + head)
    tl.store(out_ptr + row * stride_out + x_places, out.to(out_ptr.dtype.element_ty), mask=in_head)


def decode_launch(
    state: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor,
    dt_bias: torch.Tensor,
    slots: torch.Tensor,
    out: torch.Tensor,
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    """Return grid, arguments and keywords of a launch of ``decode_update_kernel``."""
    rows, nheads, headdim = x.shape
    ngroups, dstate = B.shape[1:]
    strides = (t.stride(0) for t in (state, x, dt, B, C, out, slots))
    options = {
        "HEADDIM": headdim,
        "DSTATE": dstate,
        "HEADS_PER_GROUP": nheads // ngroups,
        "BLOCK_P": 1 << (headdim - 1).bit_length(),
        "BLOCK_N": 1 << (dstate - 1).bit_length(),
        "num_warps": 4,
    }
    arguments = (state, x, dt, A, B, C, D, dt_bias, slots, out, *strides)
    return (nheads, rows), arguments, options
