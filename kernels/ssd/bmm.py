"""Chunk products: C times B transposed, within each chunk. Fourth step of the scan.

Their entry (m, k) says how much of what token k brought into the state token m reads, before
any decay: "Transformers are SSMs" (Dao and Gu, 2024), section 6, the diagonal blocks.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from launchkit import autotuned, launch_autotuned
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.ssd import checks
from launchkit.kernels.ssd.tiles import drop_miscompiled_casts, tile_configs

_OP = "bmm_chunk"

# (BLOCK_M, BLOCK_N, BLOCK_K), num_warps, num_stages. The first runs on every GPU.
_CONFIGS = (
    ((64, 64, 32), 2, 3),
    ((32, 32, 64), 2, 4),
    ((32, 64, 64), 2, 4),
    ((64, 32, 64), 2, 4),
    ((64, 64, 64), 4, 3),
    ((64, 128, 64), 4, 3),
    ((128, 64, 64), 4, 3),
    ((128, 128, 64), 8, 3),
    ((128, 256, 32), 8, 3),
)


@autotuned(
    configs=tile_configs(_CONFIGS),
    key=["chunk_size", "dstate"],
    prune_configs_by={"early_config_prune": drop_miscompiled_casts},
    name="ssd.bmm_chunk",
)
@triton.jit(do_not_specialize_on_alignment=["cu_chunk_seqlens_ptr"])
def _bmm_chunk_fwd_kernel(
    C_ptr,
    B_ptr,
    CB_ptr,
    cu_chunk_seqlens_ptr,
    chunk_size: tl.constexpr,
    ngroups: tl.constexpr,
    dstate: tl.constexpr,
    stride_C_seqlen: tl.int64,
    stride_C_group: tl.int64,
    stride_C_dstate,
    stride_B_seqlen: tl.int64,
    stride_B_group: tl.int64,
    stride_B_dstate,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n: tl.constexpr = (chunk_size + BLOCK_N - 1) // BLOCK_N
    tiles: tl.constexpr = (chunk_size + BLOCK_M - 1) // BLOCK_M * tiles_n
    chunk = (tl.program_id(0) // tiles).to(tl.int64)
    group = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0) % tiles
    row = tile // tiles_n * BLOCK_M
    column = tile % tiles_n * BLOCK_N
    offs_m = row + tl.arange(0, BLOCK_M)
    offs_n = column + tl.arange(0, BLOCK_N)

    first = tl.load(cu_chunk_seqlens_ptr + chunk).to(tl.int64)
    length = (tl.load(cu_chunk_seqlens_ptr + chunk + 1) - first).to(tl.int32)
    CB_ptr += (chunk * ngroups + group) * (chunk_size * chunk_size)
    CB_ptrs = CB_ptr + offs_m[:, None] * chunk_size + offs_n[None, :]
    inside = (offs_m[:, None] < chunk_size) & (offs_n[None, :] < chunk_size)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if (row >= length) | (column >= length):
        tl.store(CB_ptrs, acc, mask=inside)
        return

    # Only strides without a type are compiled as a constant where they are 1, which vectorizes.
    offs_k = tl.arange(0, BLOCK_K)
    wide_k = offs_k.to(tl.int64)
    step = tl.full((), BLOCK_K, tl.int64)
    C_ptr += first * stride_C_seqlen + group * stride_C_group
    B_ptr += first * stride_B_seqlen + group * stride_B_group
    C_ptrs = C_ptr + offs_m[:, None] * stride_C_seqlen + wide_k[None, :] * stride_C_dstate
    B_ptrs = B_ptr + offs_n[None, :] * stride_B_seqlen + wide_k[:, None] * stride_B_dstate
    left_dtype: tl.constexpr = C_ptr.dtype.element_ty
    right_dtype: tl.constexpr = B_ptr.dtype.element_ty
    any_bf16: tl.constexpr = left_dtype == tl.bfloat16 or right_dtype == tl.bfloat16
    any_fp16: tl.constexpr = left_dtype == tl.float16 or right_dtype == tl.float16
    dot_dtype: tl.constexpr = tl.bfloat16 if any_bf16 else tl.float16 if any_fp16 else tl.float32
    for k in range(0, dstate, BLOCK_K):
        in_state = offs_k < dstate - k
        left = tl.load(C_ptrs, mask=(offs_m[:, None] < length) & in_state[None, :], other=0.0)
        right = tl.load(B_ptrs, mask=(offs_n[None, :] < length) & in_state[:, None], other=0.0)
        acc = tl.dot(left.to(dot_dtype), right.to(dot_dtype), acc)
        C_ptrs += step * stride_C_dstate
        B_ptrs += step * stride_B_dstate
    tl.store(CB_ptrs, acc, mask=inside)


def bmm_chunk(
    C: torch.Tensor,
    B: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    out_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Multiply C by B within each chunk: ``CB[c, g, m, k] = C[first + m, g] . B[first + k, g]``.

    ``first`` is the chunk's first token. Above the diagonal as well as below; zeros where m or
    k is beyond the chunk's length. Forward only. All tensors are on one device.

    C, B: (T, G, N), each fp32, fp16 or bf16, any strides. Multiplied in bf16 if either is
        bf16, else in fp16 if either is, else in TF32 where the GPU has it; summed in fp32.
    chunk_size: tokens a chunk holds at most (Q), a power of two.
    cu_chunk_seqlens: (nchunks+1,) int32, contiguous: where each chunk starts. Not checked, which
        would wait for the GPU: tokens beyond T are read out of bounds.
    out_dtype: dtype of the result, fp32, fp16 or bf16.

    Returns (nchunks, G, Q, Q). Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    nchunks = _check(C, B, chunk_size, cu_chunk_seqlens)
    if out_dtype not in arguments.STATE_DTYPES:
        raise arguments.wrong_dtype(_OP, "out_dtype", out_dtype, arguments.STATE_DTYPES)
    require_launchable(_OP, C)
    sizes = (nchunks, C.shape[1], chunk_size, chunk_size)
    CB = torch.empty(sizes, dtype=out_dtype, device=C.device)
    if CB.numel():
        with device_guard(C):
            launch_bmm_chunk(C, B, chunk_size, cu_chunk_seqlens, CB)
    return CB


def launch_bmm_chunk(
    C: torch.Tensor,
    B: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    CB: torch.Tensor,
) -> None:
    """Launch on arguments that the caller has checked; ``bmm_chunk`` says what they are.

    CB: (nchunks, G, Q, Q), contiguous, not empty: receives the products.
    """
    nchunks, ngroups, _, _ = CB.shape
    C_strides, B_strides = C.stride(), B.stride()
    launch_autotuned(
        _bmm_chunk_fwd_kernel,
        lambda meta: (
            -(-chunk_size // meta["BLOCK_M"]) * -(-chunk_size // meta["BLOCK_N"]) * nchunks,
            ngroups,
        ),
        C_ptr=C,
        B_ptr=B,
        CB_ptr=CB,
        cu_chunk_seqlens_ptr=cu_chunk_seqlens,
        chunk_size=chunk_size,
        ngroups=ngroups,
        dstate=C.shape[2],
        stride_C_seqlen=C_strides[0],
        stride_C_group=C_strides[1],
        stride_C_dstate=C_strides[2],
        stride_B_seqlen=B_strides[0],
        stride_B_group=B_strides[1],
        stride_B_dstate=B_strides[2],
    )


def _check(
    C: torch.Tensor, B: torch.Tensor, chunk_size: int, cu_chunk_seqlens: torch.Tensor
) -> int:
    """Raise UsageError unless the arguments fit together; return nchunks."""
    checks.require_sizes(_OP, "C", C, "T, G, N", None, None, None)
    checks.require_sizes(_OP, "B", B, "T, G, N", *C.shape)
    arguments.require_tensor(_OP, "C", C, checks.ACTIVATION_DTYPES, C.device)
    arguments.require_tensor(_OP, "B", B, checks.ACTIVATION_DTYPES, C.device)
    checks.require_chunk_size(_OP, chunk_size)
    if C.shape[1] > checks.MAX_GRID:
        problem = f"has {C.shape[1]} groups, over {checks.MAX_GRID}"
        raise arguments.refusal(_OP, "C", problem, "Split the groups.")
    return checks.count_chunks(_OP, cu_chunk_seqlens, C.device)
