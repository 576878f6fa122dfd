"""The kernel that ends an aligned step: keeps the state of each block that a request filled.

With speculative decoding a step runs past the end of a block and may accept only some of its
tokens. Where the accepted ones reach a block's end, the state at that end belongs to the block.
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
def postprocess_mamba_fused_kernel(
    num_accepted_tokens_ptr,
    mamba_state_idx_ptr,
    num_scheduled_tokens_ptr,
    num_computed_tokens_ptr,
    num_draft_tokens_ptr,
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
    num_accepted_tokens_out_ptr,
    idx_mapping_ptr,
    num_reqs,
    block_size: tl.constexpr,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    HAS_IDX_MAPPING: tl.constexpr = False,
    PRECOMPUTED_NEW_COMPUTED: tl.constexpr = False,
    TEMPORAL_TILES: tl.constexpr = 1,
    BLOCK_TABLE_BY_SLOT: tl.constexpr = True,
    LOAD_POLICY: tl.constexpr = "evict_first",
    STORE_POLICY: tl.constexpr = "evict_first",
    TILES_FIRST: tl.constexpr = False,
    TILE_CONV: tl.constexpr = False,
    DEPENDENT: tl.constexpr = False,
):
    """Copy the states at ends of blocks that were reached; grid (reqs, states, TEMPORAL_TILES).

    TILES_FIRST, TILE_CONV, DEPENDENT: as in ``precopy_mamba_align_fused_kernel``.

    Per-request tensors are (slots,), or (reqs,) without HAS_IDX_MAPPING; num_accepted_tokens is
    a snapshot that nothing writes meanwhile, num_accepted_tokens_out another tensor. Scheduled
    and draft tokens are None with PRECOMPUTED_NEW_COMPUTED, where num_computed_tokens already
    counts what was accepted. Before the step ran, ``running`` tokens were in the state; now
    ``new`` are. If ``aligned``, the last multiple of block_size up to ``new``, is at least
    ``running``, the state is copied from the request's column to the one that ends at
    ``aligned``, moved on by aligned - running tokens; where both are one column,
    num_accepted_tokens_out becomes 1.

    A row whose ``idx_mapping`` or column is negative is left alone. Tables have a row per slot,
    or without BLOCK_TABLE_BY_SLOT one per batch row.
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
            accepted = load_kept(num_accepted_tokens_ptr + req_idx)
            src_col = load_kept(mamba_state_idx_ptr + req_idx)
            computed = load_kept(num_computed_tokens_ptr + req_idx)
            if PRECOMPUTED_NEW_COMPUTED:
                new = computed
                running = new - accepted + 1
            else:
                scheduled = load_kept(num_scheduled_tokens_ptr + req_idx)
                draft = load_kept(num_draft_tokens_ptr + req_idx)
                running = computed + scheduled - draft
                new = running + accepted - 1
            aligned = new // block_size * block_size
            dst_col = aligned // block_size - 1
            token_bias = aligned - running
            if (token_bias >= 0) & (src_col >= 0) & (dst_col >= 0):
                # By column, not by block: two columns may hold the same block.
                if (src_col == dst_col) & (state_idx == 0) & (tile_idx == 0):
                    tl.store(num_accepted_tokens_out_ptr + req_idx, 1)
                if (src_col != dst_col) | (token_bias > 0):
                    copy_loaded_state(
                        state, tile, req_idx if BLOCK_TABLE_BY_SLOT else batch_idx,
                        src_col, dst_col, token_bias, block_table_stride_req,
                        COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, LOAD_POLICY, STORE_POLICY,
                    )  # fmt: skip
    if DEPENDENT:
        # Last of all: launches that start sooner only take memory and places from this one.
        gdc_launch_dependents()
