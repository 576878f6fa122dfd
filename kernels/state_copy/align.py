"""Kernels that start an aligned step: advance each request's state column, then copy its state.

Between the two steps a request may enter a new block of its cache; its running state must be
there before the model writes to it. ``preprocess`` decides and keeps the accepted tokens of
the step before as ``src_off``; ``precopy`` copies.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from launchkit.kernels.state_copy.block import (
    copy_loaded_state,
    has_work,
    load_kept,
    load_state,
    place_in_grid,
)


@triton.jit(do_not_specialize=["num_reqs"])
def preprocess_mamba_align_fused_kernel(
    idx_mapping_ptr,
    state_idx_ptr,
    num_computed_tokens_ptr,
    query_start_loc_ptr,
    num_accepted_tokens_ptr,
    src_col_ptr,
    src_off_ptr,
    num_reqs,
    BLOCK_SIZE: tl.constexpr,
    MAMBA_BLOCK_SIZE: tl.constexpr,
):
    """Advance ``state_idx`` and say where each state comes from; grid (cdiv(reqs, BLOCK_SIZE),).

    idx_mapping: (reqs,) slot of each batch row; a row of -1 is skipped. query_start_loc:
    (reqs + 1,) by batch row. The rest is (slots,): ``state_idx`` becomes the column that the
    last token of this step falls into, ``src_col`` what it was, -1 for a fresh request,
    ``src_off`` the accepted tokens less one, at least 0. Where the column of a request that is
    not fresh changes, its ``num_accepted`` becomes 1.
    """
    rows = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = rows < num_reqs
    slots = tl.load(idx_mapping_ptr + rows, mask=mask, other=-1).to(tl.int64)
    start = tl.load(query_start_loc_ptr + rows, mask=mask, other=0)
    end = tl.load(query_start_loc_ptr + rows + 1, mask=mask, other=0)
    mask &= slots >= 0
    old = tl.load(state_idx_ptr + slots, mask=mask, other=-1)
    accepted = tl.load(num_accepted_tokens_ptr + slots, mask=mask, other=1)
    computed = tl.load(num_computed_tokens_ptr + slots, mask=mask, other=0)
    total = computed + (end - start)
    new = (total + MAMBA_BLOCK_SIZE - 1) // MAMBA_BLOCK_SIZE - 1
    tl.store(src_col_ptr + slots, old, mask=mask)
    tl.store(src_off_ptr + slots, tl.maximum(accepted - 1, 0), mask=mask)
    tl.store(state_idx_ptr + slots, new, mask=mask)
    ones = tl.full((BLOCK_SIZE,), 1, tl.int32)
    tl.store(num_accepted_tokens_ptr + slots, ones, mask=mask & (old >= 0) & (old != new))


@triton.jit(do_not_specialize=["num_reqs"])
def precopy_mamba_align_fused_kernel(
    mamba_state_idx_ptr,
    src_col_ptr,
    token_bias_ptr,
    block_table_ptrs_ptr,
    block_table_stride_req: tl.int64,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    idx_mapping_ptr,
    num_reqs,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    HAS_IDX_MAPPING: tl.constexpr = True,
    TEMPORAL_TILES: tl.constexpr = 1,
    BLOCK_TABLE_BY_SLOT: tl.constexpr = True,
    LOAD_POLICY: tl.constexpr = "evict_first",
    STORE_POLICY: tl.constexpr = "evict_first",
    TILES_FIRST: tl.constexpr = False,
    TILE_CONV: tl.constexpr = False,
    DEPENDENT: tl.constexpr = False,
):
    """Copy the states of requests that change column; grid (reqs, states, TEMPORAL_TILES).

    The fast form: TILES_FIRST takes the grid (TEMPORAL_TILES * states, reqs), TILE_CONV cuts
    convolutional states into tiles too, and DEPENDENT, for launches with ``launch_pdl``, waits
    for the launch before it. What describes states, and ``block_table_ptrs``, it reads earlier.

    mamba_state_idx, src_col, token_bias: (slots,), or (reqs,) without HAS_IDX_MAPPING: the
    column to copy to, the one to copy from, and how many tokens further the state is. A
    request whose ``src_col`` is -1 or its own column, or whose bias is negative, is left alone,
    and so is a batch row whose ``idx_mapping`` is -1. Tables have a row per slot, or without
    BLOCK_TABLE_BY_SLOT one per batch row.
    """
    batch_idx, state_idx, tile_idx = place_in_grid(TEMPORAL_TILES, TILES_FIRST)
    state, tile = load_state(
        state_idx, tile_idx, block_table_ptrs_ptr, state_base_addrs_ptr, state_block_strides_ptr,
        state_elem_sizes_ptr, state_inner_sizes_ptr, state_conv_widths_ptr,
        state_group_indices_ptr, state_dim_row_count_ptr, state_dim_row_stride_ptr,
        COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, TEMPORAL_TILES, TILE_CONV,
    )  # fmt: skip
    if (batch_idx < num_reqs) & has_work(tile):
        if DEPENDENT:
            gdc_wait()
        req_idx = batch_idx
        if HAS_IDX_MAPPING:
            req_idx = load_kept(idx_mapping_ptr + batch_idx).to(tl.int32)
        if req_idx >= 0:
            src_col = load_kept(src_col_ptr + req_idx)
            dst_col = load_kept(mamba_state_idx_ptr + req_idx)
            token_bias = load_kept(token_bias_ptr + req_idx)
            # The bias is asked here for its load to join the others: no more waits than needed.
            if (src_col >= 0) & (dst_col >= 0) & (token_bias >= 0) & (src_col != dst_col):
                copy_loaded_state(
                    state, tile, req_idx if BLOCK_TABLE_BY_SLOT else batch_idx,
                    src_col, dst_col, token_bias, block_table_stride_req,
                    COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, LOAD_POLICY, STORE_POLICY,
                )  # fmt: skip
    if DEPENDENT:
        # Last of all: launches that start sooner only take memory and places from this one.
        gdc_launch_dependents()
