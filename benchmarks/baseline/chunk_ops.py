"""The wrappers of ``scan`` for the kernels that look at each chunk alone."""

# Arguments have the names that the field's papers give them.
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton


def chunk_cumsum(
    kernel: Any,
    dt: torch.Tensor,
    A: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    dt_bias: torch.Tensor | None,
    dt_softplus: bool,
    dt_limit: tuple[float, float],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cumulative decays and steps, each (H, nchunks, chunk_size) fp32."""
    _, nheads = dt.shape
    assert A.shape == (nheads,)
    if dt_bias is not None:
        assert dt_bias.shape == (nheads,)
    nchunks = cu_chunk_seqlens.shape[0] - 1
    dt_out = torch.empty(nheads, nchunks, chunk_size, device=dt.device, dtype=torch.float32)
    dA_cumsum = torch.empty(nheads, nchunks, chunk_size, device=dt.device, dtype=torch.float32)

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        return (nchunks, triton.cdiv(nheads, meta["BLOCK_SIZE_H"]))

    # -1 for CPU tensors, for which the guard does nothing.
    with torch.cuda.device(dt.get_device()):
        kernel[grid](
            dt_ptr=dt,
            A_ptr=A,
            dt_bias_ptr=dt_bias,
            cu_chunk_seqlens_ptr=cu_chunk_seqlens,
            dA_cumsum_ptr=dA_cumsum,
            dt_out_ptr=dt_out,
            nchunks=nchunks,
            dt_min=dt_limit[0],
            dt_max=dt_limit[1],
            stride_dt_seqlen=dt.stride(0),
            stride_dt_head=dt.stride(1),
            nheads=nheads,
            chunk_size=chunk_size,
            DT_SOFTPLUS=dt_softplus,
        )
    return dA_cumsum, dt_out


def chunk_state(
    kernel: Any,
    B: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
) -> torch.Tensor:
    """Return what each chunk alone adds to the state, (nchunks, H, P, N) fp32."""
    seqlen, nheads, headdim = x.shape
    _, nchunks, chunk_size = dt.shape
    _, ngroups, dstate = B.shape
    assert nheads % ngroups == 0
    assert B.shape == (seqlen, ngroups, dstate)
    assert dt.shape == (nheads, nchunks, chunk_size)
    assert dA_cumsum.shape == dt.shape
    states = torch.empty(nchunks, nheads, headdim, dstate, device=x.device, dtype=torch.float32)

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        rows, columns = meta["BLOCK_SIZE_M"], meta["BLOCK_SIZE_N"]
        return (triton.cdiv(headdim, rows) * triton.cdiv(dstate, columns) * nchunks * nheads,)

    with torch.cuda.device(x.get_device()):
        kernel[grid](
            x_ptr=x,
            B_ptr=B,
            dt_ptr=dt,
            dA_cumsum_ptr=dA_cumsum,
            cu_chunk_seqlens_ptr=cu_chunk_seqlens,
            states_ptr=states,
            nchunks=nchunks,
            stride_x_seqlen=x.stride(0),
            stride_x_head=x.stride(1),
            stride_x_hdim=x.stride(2),
            stride_B_seqlen=B.stride(0),
            stride_B_group=B.stride(1),
            stride_B_dstate=B.stride(2),
            nheads=nheads,
            headdim=headdim,
            dstate=dstate,
            ngroups=ngroups,
            chunk_size=chunk_size,
        )
    return states


def bmm_chunk(
    kernel: Any,
    C: torch.Tensor,
    B: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
) -> torch.Tensor:
    """Return C times B transposed within each chunk, (nchunks, G, Q, Q) fp32."""
    seqlen, ngroups, dstate = C.shape
    assert B.shape == (seqlen, ngroups, dstate)
    nchunks = cu_chunk_seqlens.shape[0] - 1
    CB = torch.empty(nchunks, ngroups, chunk_size, chunk_size, device=C.device, dtype=torch.float32)

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        rows, columns = meta["BLOCK_SIZE_M"], meta["BLOCK_SIZE_N"]
        return (triton.cdiv(chunk_size, rows) * triton.cdiv(chunk_size, columns) * nchunks, ngroups)

    with torch.cuda.device(C.get_device()):
        kernel[grid](
            C_ptr=C,
            B_ptr=B,
            CB_ptr=CB,
            cu_chunk_seqlens_ptr=cu_chunk_seqlens,
            chunk_size=chunk_size,
            ngroups=ngroups,
            dstate=dstate,
            stride_C_seqlen=C.stride(0),
            stride_C_group=C.stride(1),
            stride_C_dstate=C.stride(2),
            stride_B_seqlen=B.stride(0),
            stride_B_group=B.stride(1),
            stride_B_dstate=B.stride(2),
        )
    return CB
