"""Chunk state: what each chunk alone would leave behind as a state. Second step of the scan.

The right factors of "Transformers are SSMs" (Dao and Gu, 2024), section 6: every token's
outer product of x and B, decayed up to the end of its chunk, summed as one matrix product.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from launchkit import autotuned, cdiv, grid, launch_autotuned
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable, require_products
from launchkit.kernels.ssd import checks

_OP = "chunk_state"
_GRID = grid(
    cdiv("headdim", "BLOCK_SIZE_M") * cdiv("dstate", "BLOCK_SIZE_N") * "nchunks" * "nheads"
)


def _config(headdim: int, dstate: int, tokens: int, warps: int, stages: int) -> triton.Config:
    blocks = {"BLOCK_SIZE_M": headdim, "BLOCK_SIZE_N": dstate, "BLOCK_SIZE_K": tokens}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


# Sized so that fp32 inputs fit into the shared memory of sm_90. The first is taken wherever
# nothing is measured, and fits everywhere. Few warps and small tiles serve short prompts.
_CONFIGS = [
    _config(64, 128, 32, warps=4, stages=3),
    _config(64, 128, 64, warps=4, stages=2),
    _config(64, 128, 64, warps=8, stages=3),
    _config(64, 256, 32, warps=8, stages=3),
    _config(64, 256, 64, warps=8, stages=2),
    _config(128, 128, 32, warps=8, stages=3),
    _config(128, 128, 64, warps=8, stages=3),
    _config(128, 256, 32, warps=8, stages=3),
    _config(128, 64, 32, warps=4, stages=4),
    _config(64, 64, 32, warps=4, stages=4),
    _config(64, 64, 64, warps=4, stages=3),
    _config(32, 128, 32, warps=4, stages=4),
    _config(64, 32, 32, warps=2, stages=5),
    _config(32, 64, 32, warps=2, stages=5),
]


@autotuned(configs=_CONFIGS, key=["headdim", "dstate", "chunk_size"], name="ssd.chunk_state")
@triton.jit(
    do_not_specialize=["nchunks"],
    # Metadata tensors are usually views at some offset of a larger one.
    do_not_specialize_on_alignment=["cu_chunk_seqlens_ptr"],
)
def _chunk_state_fwd_kernel(
    x_ptr,
    B_ptr,
    dt_ptr,
    dA_cumsum_ptr,
    cu_chunk_seqlens_ptr,
    states_ptr,
    nchunks,
    stride_x_seqlen,
    stride_x_head,
    stride_x_hdim,
    stride_B_seqlen,
    stride_B_group,
    stride_B_dstate,
    nheads: tl.constexpr,
    headdim: tl.constexpr,
    dstate: tl.constexpr,
    ngroups: tl.constexpr,
    chunk_size: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
):
    # Strides are left to Triton's types, so that one of 1 is a constant and loads are wide;
    # whatever they are multiplied by is 64 bits wide instead.
    # Heads next to each other run together: they read neighbouring x and the same B.
    TILES_N: tl.constexpr = (dstate + BLOCK_SIZE_N - 1) // BLOCK_SIZE_N
    TILES: tl.constexpr = (headdim + BLOCK_SIZE_M - 1) // BLOCK_SIZE_M * TILES_N
    tile = tl.program_id(0) % TILES
    rest = tl.program_id(0) // TILES
    head = (rest % nheads).to(tl.int64)
    chunk = (rest // nheads).to(tl.int64)

    start = tl.load(cu_chunk_seqlens_ptr + chunk).to(tl.int64)
    length = (tl.load(cu_chunk_seqlens_ptr + chunk + 1) - start).to(tl.int32)
    offs_m = tile // TILES_N * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_n = tile % TILES_N * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    in_m = offs_m < headdim
    in_n = offs_n < dstate

    x_ptr += start * stride_x_seqlen + head * stride_x_head
    B_ptr += start * stride_B_seqlen + head // (nheads // ngroups) * stride_B_group
    wide_m, wide_n, wide_k = offs_m.to(tl.int64), offs_n.to(tl.int64), offs_k.to(tl.int64)
    x_ptrs = x_ptr + wide_m[:, None] * stride_x_hdim + wide_k[None, :] * stride_x_seqlen
    B_ptrs = B_ptr + wide_k[:, None] * stride_B_seqlen + wide_n[None, :] * stride_B_dstate
    step = tl.full((), BLOCK_SIZE_K, tl.int64)
    row = (head * nchunks + chunk) * chunk_size
    dt_ptr += row
    dA_cumsum_ptr += row
    total = tl.load(dA_cumsum_ptr + chunk_size - 1)

    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for first in range(0, length, BLOCK_SIZE_K):
        live = offs_k < length - first
        x = tl.load(x_ptrs, mask=in_m[:, None] & live[None, :], other=0.0)
        B = tl.load(B_ptrs, mask=live[:, None] & in_n[None, :], other=0.0).to(tl.float32)
        dt = tl.load(dt_ptr + first + offs_k, mask=live, other=0.0)
        dA = tl.load(dA_cumsum_ptr + first + offs_k, mask=live, other=0.0)
        # Rounding of the sums can make a difference slightly positive, times a large A a lot.
        scale = tl.exp(tl.minimum(total - dA, 0.0)) * dt
        acc += tl.dot(x, (B * scale[:, None]).to(x.dtype))
        x_ptrs += step * stride_x_seqlen
        B_ptrs += step * stride_B_seqlen

    states_ptr += (chunk * nheads + head) * (headdim * dstate)
    states_ptrs = states_ptr + offs_m[:, None] * dstate + offs_n[None, :]
    tl.store(states_ptrs, acc, mask=in_m[:, None] & in_n[None, :])


def chunk_state(
    x: torch.Tensor,
    B: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
) -> torch.Tensor:
    """Return the state that each chunk leaves behind when entered with none.

    x: (T, H, P), fp32, fp16 or bf16, any strides.
    B: (T, G, N), fp32, fp16 or bf16, any strides. H is a multiple of G; head h is of group
        h // (H // G).
    dt, dA_cumsum: (H, nchunks, chunk_size) fp32, contiguous, as from ``chunk_cumsum``. Of a
        chunk shorter than chunk_size only its own positions and the last one are read.
    cu_chunk_seqlens: (nchunks+1,) int32, contiguous, as for ``chunk_cumsum``.

    Returns (nchunks, H, P, N) fp32. Element (c, h, p, n) is the sum over the chunk's tokens t of
    exp(total - dA_cumsum[t]) * dt[t] * x[t, h, p] * B[t, g, n], where total is the chunk's last
    dA_cumsum. B, scaled in fp32, is rounded to the dtype of x before it is multiplied; fp32 is
    multiplied as TF32 where the GPU has it.

    Raises UsageError for shapes, dtypes or devices that do not fit, and for an x of bf16 in
    Triton's interpreter.
    """
    checks.require_sizes(_OP, "x", x, "T, H, P", None, None, None)
    (tokens, nheads, headdim), device = x.shape, x.device
    checks.require_sizes(_OP, "B", B, "T, G, N", tokens, None, None)
    _, ngroups, dstate = B.shape
    checks.require_groups(_OP, "B", nheads, ngroups)
    checks.require_state_channels(_OP, "B", B, "T, G, N")
    for name, tensor in (("x", x), ("B", B)):
        arguments.require_tensor(_OP, name, tensor, checks.ACTIVATION_DTYPES, device)
    nchunks = checks.count_chunks(_OP, cu_chunk_seqlens, device)
    checks.require_sizes(_OP, "dt", dt, "H, nchunks, chunk_size", nheads, nchunks, None)
    chunk_size = dt.shape[2]
    checks.require_chunk_size(_OP, chunk_size)
    for name, tensor in (("dt", dt), ("dA_cumsum", dA_cumsum)):
        checks.require_passed(
            _OP, name, tensor, device, "H, nchunks, chunk_size", nheads, nchunks, chunk_size
        )
    require_launchable(_OP, x)
    require_products(_OP, x)
    states = torch.empty((nchunks, nheads, headdim, dstate), dtype=torch.float32, device=device)
    if states.numel() > 0:
        with device_guard(x):
            launch_chunk_state(x, B, dt, dA_cumsum, cu_chunk_seqlens, states)
    return states


def launch_chunk_state(
    x: torch.Tensor,
    B: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    states: torch.Tensor,
) -> None:
    """Fill ``states`` as ``chunk_state`` does, with nothing checked.

    For callers that have checked everything, entered the device, and know that ``states`` is
    contiguous (nchunks, H, P, N) fp32 and has elements.
    """
    nchunks, nheads, headdim, dstate = states.shape
    stride_x_seqlen, stride_x_head, stride_x_hdim = x.stride()
    stride_B_seqlen, stride_B_group, stride_B_dstate = B.stride()
    launch_autotuned(
        _chunk_state_fwd_kernel,
        _GRID,
        x_ptr=x,
        B_ptr=B,
        dt_ptr=dt,
        dA_cumsum_ptr=dA_cumsum,
        cu_chunk_seqlens_ptr=cu_chunk_seqlens,
        states_ptr=states,
        nchunks=nchunks,
        stride_x_seqlen=stride_x_seqlen,
        stride_x_head=stride_x_head,
        stride_x_hdim=stride_x_hdim,
        stride_B_seqlen=stride_B_seqlen,
        stride_B_group=stride_B_group,
        stride_B_dstate=stride_B_dstate,
        nheads=nheads,
        headdim=headdim,
        dstate=dstate,
        ngroups=B.shape[1],
        chunk_size=dA_cumsum.shape[2],
    )
