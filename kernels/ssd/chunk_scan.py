"""Chunk scan: the outputs of a chunk, from its tokens and its entering state. Last step of the scan.

"Transformers are SSMs" (Dao and Gu, 2024), section 6: the diagonal blocks' part, from tokens
of the same chunk, plus the off-diagonal blocks' part, from the state that the chunk starts in.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl

from launchkit import autotuned, cdiv, grid, launch_autotuned
from launchkit.kernels.overlap import refuse_overlaps
from launchkit.kernels.placement import device_guard, require_launchable, require_products
from launchkit.kernels.ssd import state_arguments
from launchkit.kernels.ssd.scan_arguments import check_chunks, check_optional, check_tokens
from launchkit.kernels.ssd.tiles import drop_miscompiled, tile_configs

_OP = "chunk_scan"
_GRID = grid(
    cdiv("chunk_size", "BLOCK_SIZE_M") * cdiv("headdim", "BLOCK_SIZE_N") * "nchunks", "nheads"
)
_NO_STRIDES = (0, 0, 0, 0)

# (M, N, K) of BLOCK_SIZE, num_warps, num_stages. The first runs, rightly, on every GPU.
_CONFIGS = (
    ((64, 64, 32), 2, 3),
    # Few warps, tiles of few rows or one stage: right on Hopper too.
    ((16, 64, 32), 2, 3),
    ((32, 32, 32), 2, 4),
    ((32, 64, 32), 4, 3),
    ((32, 64, 64), 2, 3),
    ((32, 128, 32), 4, 3),
    ((64, 32, 32), 2, 4),
    ((64, 64, 64), 2, 2),
    ((64, 64, 64), 4, 1),
    ((64, 128, 32), 4, 1),
    ((128, 64, 32), 4, 1),
    ((128, 64, 64), 8, 1),
    # Pruned there.
    ((64, 32, 32), 4, 4),
    ((64, 64, 32), 4, 3),
    ((64, 64, 32), 4, 4),
    ((64, 64, 64), 4, 2),
    ((64, 64, 64), 4, 3),
    ((64, 128, 32), 4, 3),
    ((128, 32, 32), 4, 4),
    ((128, 64, 32), 4, 3),
    ((128, 64, 64), 4, 2),
    ((128, 64, 64), 8, 2),
    ((128, 128, 32), 8, 3),
)


@autotuned(
    configs=tile_configs(_CONFIGS),
    key=["chunk_size", "headdim", "dstate"],
    prune_configs_by={"early_config_prune": drop_miscompiled},
    name="ssd.chunk_scan",
)
@triton.jit(
    # One variant whichever state of a chunk is kept: what is compiled decides how sums round.
    do_not_specialize=["nchunks", "state_lag"],
    do_not_specialize_on_alignment=["cu_chunk_seqlens_ptr", "seq_idx_ptr"],
)
def _chunk_scan_fwd_kernel(
    CB_ptr,
    x_ptr,
    dt_ptr,
    dA_cumsum_ptr,
    C_ptr,
    states_ptr,
    cu_chunk_seqlens_ptr,
    seq_idx_ptr,
    out_ptr,
    D_ptr,
    z_ptr,
    initstates_ptr,
    nchunks,
    state_lag,
    chunk_size: tl.constexpr,
    nheads: tl.constexpr,
    headdim: tl.constexpr,
    ngroups: tl.constexpr,
    dstate: tl.constexpr,
    stride_x_seqlen: tl.int64,
    stride_x_head: tl.int64,
    stride_x_hdim,
    stride_C_seqlen: tl.int64,
    stride_C_group: tl.int64,
    stride_C_dstate,
    stride_out_seqlen: tl.int64,
    stride_out_head: tl.int64,
    stride_out_hdim,
    stride_D_head: tl.int64,
    stride_D_hdim: tl.int64,
    stride_z_seqlen: tl.int64,
    stride_z_head: tl.int64,
    stride_z_hdim,
    stride_initstates_batch: tl.int64,
    stride_initstates_head: tl.int64,
    stride_initstates_hdim: tl.int64,
    stride_initstates_dstate,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
):
    tiles_n: tl.constexpr = (headdim + BLOCK_SIZE_N - 1) // BLOCK_SIZE_N
    tiles: tl.constexpr = (chunk_size + BLOCK_SIZE_M - 1) // BLOCK_SIZE_M * tiles_n
    chunk = (tl.program_id(0) // tiles).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    tile = tl.program_id(0) % tiles
    row = tile // tiles_n * BLOCK_SIZE_M

    first = tl.load(cu_chunk_seqlens_ptr + chunk).to(tl.int64)
    length = (tl.load(cu_chunk_seqlens_ptr + chunk + 1) - first).to(tl.int32)
    if row >= length:
        return
    offs_m = row + tl.arange(0, BLOCK_SIZE_M)
    offs_n = tile % tiles_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    # Only strides without a type are compiled as a constant where they are 1, which vectorizes.
    wide_n = offs_n.to(tl.int64)[None, :]
    rows = offs_m < length
    columns = offs_n < headdim
    group = head // (nheads // ngroups)

    CB_ptr += (chunk * ngroups + group) * (chunk_size * chunk_size)
    dt_ptr += (head * nchunks + chunk) * chunk_size
    dA_cumsum_ptr += (head * nchunks + chunk) * chunk_size
    x_ptr += first * stride_x_seqlen + head * stride_x_head
    dA_m = tl.load(dA_cumsum_ptr + offs_m, mask=rows, other=0.0)

    CB_ptrs = CB_ptr + offs_m[:, None] * chunk_size + offs_k[None, :]
    x_ptrs = x_ptr + offs_k[:, None] * stride_x_seqlen + wide_n * stride_x_hdim
    acc = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(0, tl.minimum(row + BLOCK_SIZE_M, length), BLOCK_SIZE_K):
        tokens = k + offs_k
        # The whole tile, not the chunk's length: a bound known when compiling vectorizes.
        stored = (offs_m[:, None] < chunk_size) & (tokens[None, :] < chunk_size)
        weights = tl.load(CB_ptrs, mask=stored, other=0.0).to(tl.float32)
        dA_k = tl.load(dA_cumsum_ptr + tokens, mask=tokens < length, other=0.0)
        dt_k = tl.load(dt_ptr + tokens, mask=tokens < length, other=0.0)
        # Sums that round differently must not grow: exp(0 + rounding) may overflow.
        weights *= tl.exp(tl.minimum(dA_m[:, None] - dA_k[None, :], 0.0)) * dt_k[None, :]
        # Selected last, so that nothing beyond the diagonal or the chunk can be NaN.
        weights = tl.where(offs_m[:, None] >= tokens[None, :], weights, 0.0)
        mask = (tokens[:, None] < length) & columns[None, :]
        x_k = tl.load(x_ptrs, mask=mask, other=0.0)
        acc = tl.dot(weights.to(x_k.dtype), x_k, acc)
        CB_ptrs += BLOCK_SIZE_K
        x_ptrs += BLOCK_SIZE_K * stride_x_seqlen

    # A chunk's entering state is what the chunk before left, if that was the same sequence's:
    # kept there (a lag of 1) or at the chunk itself (0).
    seq = tl.load(seq_idx_ptr + chunk).to(tl.int64)
    before = tl.load(seq_idx_ptr + chunk - 1, mask=chunk > 0, other=-1)
    carried = (chunk > 0) & (seq == before)
    C_ptr += first * stride_C_seqlen + group * stride_C_group
    states_ptr += ((chunk - state_lag) * nheads + head) * (headdim * dstate)
    if initstates_ptr is not None:
        initstates_ptr += seq * stride_initstates_batch + head * stride_initstates_head
    # An accumulator of its own: one that two different products go through is miscompiled on
    # some GPUs, and it has to be decayed anyway.
    entering = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    if dstate <= 128:
        offs_s = tl.arange(0, 16 if dstate <= 16 else 32 if dstate <= 32 else 64 if dstate <= 64 else 128)  # fmt: skip
        wide_s = offs_s.to(tl.int64)
        known = (offs_s[:, None] < dstate) & columns[None, :]
        C_mask = rows[:, None] & (offs_s[None, :] < dstate)
        C_ptrs = C_ptr + offs_m[:, None] * stride_C_seqlen + wide_s[None, :] * stride_C_dstate
        C_m = tl.load(C_ptrs, mask=C_mask, other=0.0)
        state = tl.zeros(known.shape, dtype=C_m.dtype)
        if carried:
            state_ptrs = states_ptr + offs_n[None, :] * dstate + offs_s[:, None]
            state = tl.load(state_ptrs, mask=known, other=0.0).to(C_m.dtype)
        else:
            if initstates_ptr is not None:
                # Another name: the two may point to different dtypes.
                init_ptrs = initstates_ptr + wide_n * stride_initstates_hdim
                init_ptrs += wide_s[:, None] * stride_initstates_dstate
                state = tl.load(init_ptrs, mask=known, other=0.0).to(C_m.dtype)
        entering = tl.dot(C_m, state, entering)
    else:
        # One loop for both kinds of state: with a loop for each, Triton 3.6 compiles wrong sums
        # for Hopper where the tiles are 32 channels deep. No branch in it, which would keep its
        # loads from being pipelined: of the two masks one is empty.
        wide_k = offs_k.to(tl.int64)
        C_ptrs = C_ptr + offs_m[:, None] * stride_C_seqlen + wide_k[None, :] * stride_C_dstate
        state_ptrs = states_ptr + offs_n[None, :] * dstate + offs_k[:, None]
        step = tl.full((), BLOCK_SIZE_K, tl.int64)
        depth = tl.where(carried, dstate, 0)
        if initstates_ptr is not None:
            init_ptrs = initstates_ptr + wide_n * stride_initstates_hdim
            init_ptrs += wide_k[:, None] * stride_initstates_dstate
        for k in range(0, dstate, BLOCK_SIZE_K):
            C_mask = rows[:, None] & (offs_k[None, :] < dstate - k)
            C_m = tl.load(C_ptrs, mask=C_mask, other=0.0)
            known = (offs_k[:, None] < depth - k) & columns[None, :]
            state = tl.load(state_ptrs, mask=known, other=0.0).to(C_m.dtype)
            if initstates_ptr is not None:
                started = (offs_k[:, None] < dstate - depth - k) & columns[None, :]
                state += tl.load(init_ptrs, mask=started, other=0.0).to(C_m.dtype)
                init_ptrs += step * stride_initstates_dstate
            entering = tl.dot(C_m, state, entering)
            C_ptrs += step * stride_C_dstate
            state_ptrs += BLOCK_SIZE_K
    acc += entering * tl.exp(dA_m)[:, None]

    written = rows[:, None] & columns[None, :]
    if D_ptr is not None:
        D_ptrs = D_ptr + head * stride_D_head + offs_n * stride_D_hdim
        D = tl.load(D_ptrs, mask=columns, other=0.0).to(tl.float32)
        x_ptrs = x_ptr + offs_m[:, None] * stride_x_seqlen + wide_n * stride_x_hdim
        acc += tl.load(x_ptrs, mask=written, other=0.0).to(tl.float32) * D[None, :]
    if z_ptr is not None:
        z_ptr += first * stride_z_seqlen + head * stride_z_head
        z_ptrs = z_ptr + offs_m[:, None] * stride_z_seqlen + wide_n * stride_z_hdim
        z = tl.load(z_ptrs, mask=written, other=0.0).to(tl.float32)
        acc *= z * tl.sigmoid(z)
    out_ptr += first * stride_out_seqlen + head * stride_out_head
    out_ptrs = out_ptr + offs_m[:, None] * stride_out_seqlen + wide_n * stride_out_hdim
    tl.store(out_ptrs, acc, mask=written)


def chunk_scan(
    CB: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    states: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    seq_idx: torch.Tensor,
    out: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
) -> None:
    """Compute every token's output from its chunk and its chunk's entering state; write ``out``.

    For token m of a chunk, with a = dA_cumsum of chunk and head, and g the head's group::

        y = sum over k <= m of CB[g, m, k] * exp(min(a[m] - a[k], 0)) * dt[k] * x[k]
            + exp(a[m]) * (entering state . C[m, g]) + D * x[m]
        out[m] = y * z[m] * sigmoid(z[m])

    A chunk's entering state is ``states[chunk - 1]`` if that is the same sequence's, else its
    sequence's initial state, or zeros. Forward only. All tensors are on one device. T tokens, H
    heads, G groups (head h uses group h // (H / G)), nchunks chunks of up to Q tokens.

    CB: (nchunks, G, Q, Q), contiguous, fp32, fp16 or bf16. Only entries k <= m of each chunk's
        tokens count.
    x: (T, H, P), fp32, fp16 or bf16, any strides, as C, z, D, initial_states and out. The sum's
        weights are rounded to x's dtype, the entering state to C's; fp32 is multiplied in TF32
        where the GPU has it. Sums are fp32.
    dt, dA_cumsum: (H, nchunks, Q), contiguous, fp32: the steps, and the sums of dt*A within the
        chunk. Finite.
    C: (T, G, N).
    states: (nchunks, H, P, N), contiguous, fp32, fp16 or bf16: the states that chunks end in.
    cu_chunk_seqlens: (nchunks+1,) int32, contiguous: where each chunk starts.
    seq_idx: (nchunks,) int32, contiguous: each chunk's sequence, 0 or more.
    out: (T, H, P). Tokens of no chunk are left unwritten. It may be a view beside inputs in one
        buffer, but share no memory with them: programs run in no order, and tuning repeats the
        launch.
    D: (H,) or (H, P), the skip connection.
    z: (T, H, P), the gate.
    initial_states: (S, H, P, N), fp32, fp16 or bf16.

    Values of metadata are not checked, which would wait for the GPU: a token or sequence beyond
    the last one is read or written out of bounds.

    Raises UsageError for shapes, dtypes or devices that do not fit, for an ``out`` that shares
    memory with an input or whose elements share memory, and for bf16 in Triton's interpreter.
    """
    sizes = check_tokens(_OP, x, None, None, C, out)
    nchunks = check_chunks(
        _OP, sizes, CB, dt, dA_cumsum, states, cu_chunk_seqlens, seq_idx, x.device
    )
    check_optional(_OP, sizes, x, D, z, out)
    state_sizes = (sizes.nheads, sizes.headdim, sizes.dstate)
    state_arguments.require_initial(_OP, initial_states, state_sizes, x.device)
    read = (
        ("x", x), ("z", z), ("C", C), ("D", D), ("CB", CB), ("dt", dt),
        ("dA_cumsum", dA_cumsum), ("states", states), ("initial_states", initial_states),
    )  # fmt: skip
    refuse_overlaps(_OP, (("out", out),), read)
    require_launchable(_OP, x)
    require_products(_OP, x, C)
    if nchunks and sizes.nheads and sizes.headdim:
        with device_guard(x):
            launch_chunk_scan(
                CB, x, dt, dA_cumsum, C, states, cu_chunk_seqlens, seq_idx, out,
                D, z, initial_states,
            )  # fmt: skip


def launch_chunk_scan(
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
    states_are_entering: bool = False,
) -> None:
    """Launch on arguments that the caller has checked; ``chunk_scan`` says what they are.

    There must be a chunk, a head and a channel: a grid cannot be empty.
    states_are_entering: ``states`` holds what chunks start in; there is one sequence then, and
    no ``initial_states``. The same compiled kernel runs as with initial states of that dtype.
    """
    if states_are_entering:
        initial_states = states
    nchunks, nheads, headdim, dstate = states.shape
    _, ngroups, chunk_size, _ = CB.shape
    x_strides, C_strides, out_strides = x.stride(), C.stride(), out.stride()
    D_strides = _NO_STRIDES if D is None else D.stride()
    z_strides = _NO_STRIDES if z is None else z.stride()
    init_strides = _NO_STRIDES if initial_states is None else initial_states.stride()
    launch_autotuned(
        _chunk_scan_fwd_kernel,
        _GRID,
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
        state_lag=0 if states_are_entering else 1,
        chunk_size=chunk_size,
        nheads=nheads,
        headdim=headdim,
        ngroups=ngroups,
        dstate=dstate,
        stride_x_seqlen=x_strides[0],
        stride_x_head=x_strides[1],
        stride_x_hdim=x_strides[2],
        stride_C_seqlen=C_strides[0],
        stride_C_group=C_strides[1],
        stride_C_dstate=C_strides[2],
        stride_out_seqlen=out_strides[0],
        stride_out_head=out_strides[1],
        stride_out_hdim=out_strides[2],
        stride_D_head=D_strides[0],
        stride_D_hdim=0 if len(D_strides) == 1 else D_strides[1],
        stride_z_seqlen=z_strides[0],
        stride_z_head=z_strides[1],
        stride_z_hdim=z_strides[2],
        stride_initstates_batch=init_strides[0],
        stride_initstates_head=init_strides[1],
        stride_initstates_hdim=init_strides[2],
        stride_initstates_dstate=init_strides[3],
    )
