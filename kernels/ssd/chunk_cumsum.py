"""Chunk cumsum: each token's step and the decay up to it within its chunk. First step of the scan.

The decays are those of "Transformers are SSMs" (Dao and Gu, 2024), section 6: between two
tokens of a chunk a state decays by the exponential of the difference of their cumulative sums.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from launchkit import autotuned, cdiv, grid, launch_autotuned
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.ssd import checks

_OP = "chunk_cumsum"
_GRID = grid("nchunks", cdiv("nheads", "BLOCK_SIZE_H"))

# A token's step times A is cut off here: fp32's exponential is 0 from -104 on, so no decay
# changes, and a huge step does not cost the sums behind it their digits: each adds at most 128
# to a sum, whose differences are known to 2**-24 of it.
_LEAST_DECAY = tl.constexpr(-128.0)


@triton.jit
def _softplus(x):
    """Return log(1 + exp(x)) in fp32, to its own precision for steps near zero as well."""
    small = tl.exp(-tl.abs(x))
    whole = 1.0 + small
    # What rounding took from the sum, it took from the logarithm in the same proportion.
    lost = tl.where(whole == 1.0, 1.0, whole - 1.0)
    log1p = tl.where(whole == 1.0, small, tl.log(whole) * (small / lost))
    return tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + log1p


@autotuned(
    configs=[
        triton.Config({"BLOCK_SIZE_H": size}, num_warps=warps)
        for size, warps in ((8, 4), (2, 4), (4, 4), (16, 4), (32, 8), (64, 8))
    ],
    key=["chunk_size", "nheads"],
    name="ssd.chunk_cumsum",
)
@triton.jit(
    do_not_specialize=["nchunks", "dt_min", "dt_max"],
    # Metadata tensors are usually views at some offset of a larger one.
    do_not_specialize_on_alignment=["cu_chunk_seqlens_ptr"],
)
def _chunk_cumsum_fwd_kernel(
    dt_ptr,
    A_ptr,
    dt_bias_ptr,
    cu_chunk_seqlens_ptr,
    dA_cumsum_ptr,
    dt_out_ptr,
    nchunks,
    dt_min,
    dt_max,
    stride_dt_seqlen,
    stride_dt_head,
    nheads: tl.constexpr,
    chunk_size: tl.constexpr,
    DT_SOFTPLUS: tl.constexpr,
    BLOCK_SIZE_H: tl.constexpr,
):
    # Strides are left to Triton's types, so that one of 1 is a constant and loads are wide;
    # whatever they are multiplied by is 64 bits wide instead.
    chunk = tl.program_id(0).to(tl.int64)
    heads = tl.program_id(1).to(tl.int64) * BLOCK_SIZE_H + tl.arange(0, BLOCK_SIZE_H)
    positions = tl.arange(0, chunk_size)
    start = tl.load(cu_chunk_seqlens_ptr + chunk).to(tl.int64)
    length = tl.load(cu_chunk_seqlens_ptr + chunk + 1).to(tl.int64) - start
    is_head = heads < nheads
    live = is_head[:, None] & (positions < length)[None, :]

    dt_ptrs = dt_ptr + (start + positions)[None, :] * stride_dt_seqlen
    dt_ptrs += heads[:, None] * stride_dt_head
    dt = tl.load(dt_ptrs, mask=live, other=0.0).to(tl.float32)
    if dt_bias_ptr is not None:
        bias = tl.load(dt_bias_ptr + heads, mask=is_head, other=0.0).to(tl.float32)
        dt += bias[:, None]
    if DT_SOFTPLUS:
        dt = _softplus(dt)
    dt = tl.maximum(dt, dt_min, propagate_nan=tl.PropagateNan.ALL)
    dt = tl.minimum(dt, dt_max, propagate_nan=tl.PropagateNan.ALL)
    # The bias and the limits have made something of the positions beyond the chunk's end.
    dt = tl.where(live, dt, 0.0)

    A = tl.load(A_ptr + heads, mask=is_head, other=0.0).to(tl.float32)
    dA = tl.maximum(dt * A[:, None], _LEAST_DECAY, propagate_nan=tl.PropagateNan.ALL)
    dA_cumsum = tl.cumsum(tl.where(live, dA, 0.0), axis=1)

    offsets = ((heads * nchunks + chunk) * chunk_size)[:, None] + positions[None, :]
    tl.store(dt_out_ptr + offsets, dt, mask=is_head[:, None])
    tl.store(dA_cumsum_ptr + offsets, dA_cumsum, mask=is_head[:, None])


def chunk_cumsum(
    dt: torch.Tensor,
    A: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``(dA_cumsum, dt_out)``: cumulative decays in each chunk, and the steps used.

    dt: (T, H), fp32, fp16 or bf16, any strides.
    A: (H,), fp32, fp16 or bf16, negative.
    chunk_size: a power of two up to 1024, and no less than the longest chunk.
    cu_chunk_seqlens: (nchunks+1,) int32, contiguous: chunk c is tokens ``[c]`` to ``[c+1]``.
        Offsets ascend and do not pass T; this is not checked, which would wait for the GPU.
    dt_bias: (H,), fp32, fp16 or bf16, added to every step first.
    dt_softplus: then take log(1 + exp(step)).
    dt_limit: then clamp the step, both ends included.

    Both results are (H, nchunks, chunk_size) fp32. ``dt_out`` is 0 beyond a chunk's end, so
    the last position of ``dA_cumsum`` holds the total of the chunk, however short it is.

    A summand below -128 counts as -128. Decays stay what they were, since the exponential of
    either is 0 in fp32, and differences of the sums stay finite.

    Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    checks.require_chunk_size(_OP, chunk_size)
    checks.require_sizes(_OP, "dt", dt, "T, H", None, None)
    nheads, device = dt.shape[1], dt.device
    checks.require_grid_axis(_OP, "dt", nheads, "heads")
    arguments.require_tensor(_OP, "dt", dt, checks.ACTIVATION_DTYPES, device)
    A = checks.dense_vector(_OP, "A", A, device, nheads)
    if dt_bias is not None:
        dt_bias = checks.dense_vector(_OP, "dt_bias", dt_bias, device, nheads)
    nchunks = checks.count_chunks(_OP, cu_chunk_seqlens, device)
    dt_softplus = arguments.flag(_OP, "dt_softplus", dt_softplus)
    limits = checks.limits_of(_OP, dt_limit, dt_softplus)
    require_launchable(_OP, dt)
    sizes = (nheads, nchunks, chunk_size)
    dA_cumsum = torch.empty(sizes, dtype=torch.float32, device=device)
    dt_out = torch.empty(sizes, dtype=torch.float32, device=device)
    if nheads == 0 or nchunks == 0:
        return dA_cumsum, dt_out
    with device_guard(dt):
        launch_chunk_cumsum(
            dt, A, dt_bias, dt_softplus, limits, chunk_size, cu_chunk_seqlens, dA_cumsum, dt_out
        )
    return dA_cumsum, dt_out


def launch_chunk_cumsum(
    dt: torch.Tensor,
    A: torch.Tensor,
    dt_bias: torch.Tensor | None,
    dt_softplus: bool,
    dt_limit: tuple[float, float],
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    dA_cumsum: torch.Tensor,
    dt_out: torch.Tensor,
) -> None:
    """Fill ``dA_cumsum`` and ``dt_out`` as ``chunk_cumsum`` does, with nothing checked.

    For callers that have checked everything, entered the device, and know that there is a
    chunk and a head. ``A`` and ``dt_bias`` are dense, the limits floats, the outputs
    contiguous (H, nchunks, chunk_size) fp32.
    """
    nheads, nchunks, _ = dA_cumsum.shape
    stride_seqlen, stride_head = dt.stride()
    launch_autotuned(
        _chunk_cumsum_fwd_kernel,
        _GRID,
        dt_ptr=dt,
        A_ptr=A,
        dt_bias_ptr=dt_bias,
        cu_chunk_seqlens_ptr=cu_chunk_seqlens,
        dA_cumsum_ptr=dA_cumsum,
        dt_out_ptr=dt_out,
        nchunks=nchunks,
        dt_min=dt_limit[0],
        dt_max=dt_limit[1],
        stride_dt_seqlen=stride_seqlen,
        stride_dt_head=stride_head,
        nheads=nheads,
        chunk_size=chunk_size,
        DT_SOFTPLUS=dt_softplus,
    )
