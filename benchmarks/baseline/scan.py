"""The scan as an inference engine's wrappers launch it, kernel by kernel. Only for comparison.

Each wrapper checks its own arguments, changes shapes with einops, makes the tensors' GPU current
(the last one does not) and launches with ``kernel[grid](...)``: Triton's Autotuner, unless what it
is given launches otherwise.
What is launched is what ``launchkit.kernels.ssd`` launches; tests compare every parameter.
"""

# Arguments have the names that the field's papers give them.
# ruff: noqa: N803

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from einops import rearrange

from launchkit.benchmarks.baseline.chunk_ops import bmm_chunk, chunk_cumsum, chunk_state
from launchkit.benchmarks.pinned_configs import ScanKernels


def scan_before(
    kernels: ScanKernels,
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    cu_seqlens: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_intermediate_states: bool = False,
    state_dtype: torch.dtype | None = None,
    final_states_out: torch.Tensor | None = None,
    final_state_indices: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Do what ``mamba_chunk_scan_combined_varlen`` does, launching ``kernels`` in the same order.

    Arguments, shapes and results are those of ``launchkit.kernels.ssd.scan``; either
    ``return_intermediate_states`` is set or ``final_states_out`` given.
    Raises AssertionError for shapes that do not fit.
    """
    assert chunk_size > 0
    assert chunk_size & (chunk_size - 1) == 0
    assert return_intermediate_states == (final_states_out is None)
    assert cu_seqlens.is_contiguous()
    seqlen, nheads, headdim = x.shape
    _, ngroups, dstate = B.shape
    assert nheads % ngroups == 0
    assert B.shape == C.shape == (seqlen, ngroups, dstate)
    assert dt.shape == (seqlen, nheads)
    assert A.shape == (nheads,)
    assert seq_idx.shape == (cu_chunk_seqlens.shape[0] - 1,)
    if B.stride(-1) != 1:
        B = B.contiguous()
    if C.stride(-1) != 1:
        C = C.contiguous()
    if x.stride(-1) != 1 and x.stride(0) != 1:
        x = x.contiguous()
    if initial_states is not None:
        assert initial_states.shape == (cu_seqlens.shape[0] - 1, nheads, headdim, dstate)

    dA_cumsum, dt_out = chunk_cumsum(
        kernels.chunk_cumsum, dt, A, chunk_size, cu_chunk_seqlens, dt_bias, dt_softplus, dt_limit
    )
    states = chunk_state(kernels.chunk_state, B, x, dt_out, dA_cumsum, cu_chunk_seqlens)
    passed = state_passing(
        kernels.state_passing,
        rearrange(states, "c h p n -> c h (p n)"),
        dA_cumsum,
        last_chunk_indices,
        None if initial_states is None else rearrange(initial_states, "s h p n -> s h (p n)"),
        state_dtype if state_dtype is not None else C.dtype,
        final_states_out,
        final_state_indices,
    )
    passed = rearrange(passed, "c h (p n) -> c h p n", n=dstate)
    CB = bmm_chunk(kernels.bmm, C, B, chunk_size, cu_chunk_seqlens)
    chunk_scan(
        kernels.chunk_scan, CB, x, dt_out, dA_cumsum, C, passed, cu_chunk_seqlens, seq_idx, out,
        D, z, initial_states,
    )  # fmt: skip
    return passed if return_intermediate_states else None


def state_passing(
    kernel: Any,
    states: torch.Tensor,
    dA_cumsum: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    initial_states: torch.Tensor | None,
    out_dtype: torch.dtype,
    final_states_out: torch.Tensor | None,
    final_state_indices: torch.Tensor | None,
) -> torch.Tensor:
    """Return the state after every chunk, (nchunks, H, P*N), from (nchunks, H, P*N) fp32."""
    nchunks, nheads, dim = states.shape
    chunk_size = dA_cumsum.shape[-1]
    num_seqs = last_chunk_indices.shape[0]
    assert dA_cumsum.shape == (nheads, nchunks, chunk_size)
    init_strides: tuple[int, ...] = (0, 0, 0)
    if initial_states is not None:
        assert initial_states.shape == (num_seqs, nheads, dim)
        init_strides = initial_states.stride()
    final_strides: tuple[int, ...] = (0, 0, 0)
    if final_states_out is not None:
        assert final_state_indices is not None
        assert final_state_indices.shape == (num_seqs,)
        final_strides = rearrange(final_states_out, "s h p n -> s h (p n)").stride()
    out = torch.empty(states.shape, device=states.device, dtype=out_dtype)

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        return (triton.cdiv(dim, meta["BLOCK_SIZE"]), num_seqs, nheads)

    # -1 for CPU tensors, for which the guard does nothing.
    with torch.cuda.device(states.get_device()):
        kernel[grid](
            states_ptr=states,
            out_ptr=out,
            dA_cumsum_ptr=dA_cumsum,
            initstates_ptr=initial_states,
            last_chunk_indices_ptr=last_chunk_indices,
            final_states_ptr=final_states_out,
            final_state_indices_ptr=final_state_indices,
            dim=dim,
            chunk_size=chunk_size,
            stride_states_chunk=states.stride(0),
            stride_states_head=states.stride(1),
            stride_states_dim=states.stride(2),
            stride_out_chunk=out.stride(0),
            stride_out_head=out.stride(1),
            stride_out_dim=out.stride(2),
            stride_dA_cumsum_head=dA_cumsum.stride(0),
            stride_dA_cumsum_chunk=dA_cumsum.stride(1),
            stride_dA_cumsum_csize=dA_cumsum.stride(2),
            stride_initstates_batch=init_strides[0],
            stride_initstates_head=init_strides[1],
            stride_initstates_dim=init_strides[2],
            stride_last_chunk_indices=last_chunk_indices.stride(0),
            stride_final_states_slot=final_strides[0],
            stride_final_states_head=final_strides[1],
            stride_final_states_dim=final_strides[2],
            stride_final_state_indices=(
                final_state_indices.stride(0) if final_state_indices is not None else 0
            ),
        )
    return out


def chunk_scan(
    kernel: Any,
    CB: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    states: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    initial_states: torch.Tensor | None,
) -> None:
    """Write every token's output to ``out``."""
    nheads, headdim = x.shape[1:]
    ngroups, dstate = C.shape[1:]
    nchunks = cu_chunk_seqlens.shape[0] - 1
    chunk_size = dt.shape[-1]
    _assert_chunk_scan(CB, x, dt, dA_cumsum, C, states, seq_idx, out, D, z)
    D_strides = (D.stride(0), D.stride(1) if D.dim() == 2 else 0) if D is not None else (0, 0)
    z_strides = z.stride() if z is not None else (0, 0, 0)
    init_strides = initial_states.stride() if initial_states is not None else (0, 0, 0, 0)

    def grid(meta: dict[str, Any]) -> tuple[int, ...]:
        rows, columns = meta["BLOCK_SIZE_M"], meta["BLOCK_SIZE_N"]
        return (triton.cdiv(chunk_size, rows) * triton.cdiv(headdim, columns) * nchunks, nheads)

    kernel[grid](
        CB_ptr=CB,
        x_ptr=x,
        dt_ptr=dt,
        dA_cumsum_ptr=dA_cumsum,
        C_ptr=C,
        states_ptr=states,
        cu_chunk_seqlens_ptr=cu_chunk_seqlens,
        seq_idx_ptr=seq_idx,
        out_ptr=out,
        D_ptr=D,
        z_ptr=z,
        initstates_ptr=initial_states,
        nchunks=nchunks,
        state_lag=1,
        chunk_size=chunk_size,
        nheads=nheads,
        headdim=headdim,
        ngroups=ngroups,
        dstate=dstate,
        stride_x_seqlen=x.stride(0),
        stride_x_head=x.stride(1),
        stride_x_hdim=x.stride(2),
        stride_C_seqlen=C.stride(0),
        stride_C_group=C.stride(1),
        stride_C_dstate=C.stride(2),
        stride_out_seqlen=out.stride(0),
        stride_out_head=out.stride(1),
        stride_out_hdim=out.stride(2),
        stride_D_head=D_strides[0],
        stride_D_hdim=D_strides[1],
        stride_z_seqlen=z_strides[0],
        stride_z_head=z_strides[1],
        stride_z_hdim=z_strides[2],
        stride_initstates_batch=init_strides[0],
        stride_initstates_head=init_strides[1],
        stride_initstates_hdim=init_strides[2],
        stride_initstates_dstate=init_strides[3],
    )


def _assert_chunk_scan(
    CB: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    states: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
) -> None:
    seqlen, nheads, headdim = x.shape
    _, ngroups, dstate = C.shape
    _, nchunks, chunk_size = dt.shape
    assert C.shape == (seqlen, ngroups, dstate)
    assert CB.shape == (nchunks, ngroups, chunk_size, chunk_size)
    assert dt.shape == dA_cumsum.shape == (nheads, nchunks, chunk_size)
    assert states.shape == (nchunks, nheads, headdim, dstate)
    assert out.shape == x.shape
    assert seq_idx.shape == (nchunks,)
    if D is not None:
        assert D.shape in {(nheads, headdim), (nheads,)}
    if z is not None:
        assert z.shape == x.shape
