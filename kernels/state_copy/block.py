"""Copies one state's block of one request: temporal, or convolutional in either layout.

A temporal state is copied whole, from the column that holds it after ``token_bias`` further
tokens. A convolutional state holds its last W inputs, and moves on by ``token_bias`` of them:
the first W - token_bias places of the destination are written, the others keep what they hold.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl

from launchkit.kernels.state_copy.memcpy import copy_range, copy_words, tile_bytes


@triton.jit
def place_in_grid(NUM_TILES: tl.constexpr, TILES_FIRST: tl.constexpr):
    """Return (batch row, state, tile): the grid's axes, or with TILES_FIRST those of a fast form.

    That is (NUM_TILES * states, requests): neighbours copy neighbouring bytes, which DRAM likes.
    """
    batch_idx = tl.program_id(0)
    state_idx = tl.program_id(1)
    tile_idx = tl.program_id(2)
    if TILES_FIRST:
        tile_idx = batch_idx % NUM_TILES
        batch_idx, state_idx = state_idx, batch_idx // NUM_TILES
    return batch_idx, state_idx, tile_idx


@triton.jit
def load_kept(pointer):
    """Load what every program reads: in L2 it should outlive what is copied past it."""
    return tl.load(pointer, eviction_policy="evict_last")


@triton.jit
def load_state(
    state_idx,
    tile_idx,
    block_table_ptrs_ptr,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    NUM_TILES: tl.constexpr,
    TILE_CONV: tl.constexpr,
):
    """Return what is known of a state before a request is looked at, and of one tile of it.

    State: (base, block stride, element size, inner size, width, rows, row stride, block table,
    bytes of a block). Tile: (index, bytes of the others, its bytes, 0 or less behind the end, its
    address in block 0, whether it is plain). A plain one is whole 16-byte accesses in any block,
    and its copy needs to know nothing more than two block numbers.
    """
    group = load_kept(state_group_indices_ptr + state_idx)
    width = load_kept(state_conv_widths_ptr + state_idx)
    base = load_kept(state_base_addrs_ptr + state_idx).to(tl.int64)
    stride = load_kept(state_block_strides_ptr + state_idx)
    stride = stride.to(tl.int64)
    elem_size = load_kept(state_elem_sizes_ptr + state_idx)
    inner = load_kept(state_inner_sizes_ptr + state_idx).to(tl.int64)
    table = load_kept(block_table_ptrs_ptr + group).to(tl.int64)
    rows = width * 0
    row_stride = stride * 0
    size = inner * elem_size
    if CONV_STATE_DIM_FIRST:
        rows = load_kept(state_dim_row_count_ptr + state_idx)
        row_stride = load_kept(state_dim_row_stride_ptr + state_idx).to(tl.int64)
        size = tl.where(width > 0, rows * row_stride, size)
        plain = (stride >= size) & ((width == 0) | (width * elem_size == row_stride))
    else:
        size *= tl.maximum(width, 1)
        plain = stride >= size
    per_tile = tile_bytes(size, COPY_BLOCK_SIZE, NUM_TILES)
    if not TILE_CONV:
        per_tile = tl.where(width > 0, tile_bytes(size, COPY_BLOCK_SIZE, 1), per_tile)
    first = per_tile * tile_idx
    plain &= ((base | stride | size | per_tile) & 15) == 0
    table = table.to(tl.pointer_type(tl.int32))
    return (
        (base, stride, elem_size, inner, width, rows, row_stride, table, size),
        (tile_idx, per_tile, tl.minimum(per_tile, size - first), base + first, plain),
    )


@triton.jit
def has_work(tile):
    """Whether a tile takes part. The first always does: it moves what overlaps, however small."""
    tile_idx, _, tile_size, _, _ = tile
    return (tile_idx == 0) | (tile_size > 0)


@triton.jit
def copy_loaded_state(
    state,
    tile,
    bt_row_idx,
    src_col,
    dst_col,
    token_bias,
    block_table_stride_req,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """``_copy_mamba_state_block`` of what ``load_state`` returned."""
    base, stride, _, _, width, _, _, table, _ = state
    tile_idx, per_tile, tile_size, tile_addr, plain = tile
    # Widened by adding, since a caller may pass a constant.
    table += (tl.full((), 0, tl.int64) + bt_row_idx) * block_table_stride_req
    shift = tl.where(width > 0, token_bias, 0)
    read = table + (src_col + token_bias - shift)
    src_block = load_kept(read).to(tl.int64)
    dst_block = load_kept(table + dst_col).to(tl.int64)
    # First what nearly every copy is: at the start of a launch, nothing hides how long this takes.
    if plain & (shift == 0) & (src_block != dst_block):
        copy_words(
            tile_addr + src_block * stride, tile_addr + dst_block * stride, tile_size,
            COPY_BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
        )  # fmt: skip
    else:
        _copy_any(
            state, base + src_block * stride, base + dst_block * stride, shift, tile_idx, per_tile,
            COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, LOAD_POLICY, STORE_POLICY,
        )  # fmt: skip


@triton.jit
def _copy_any(
    state,
    src_addr,
    dst_addr,
    shift,
    tile_idx,
    per_tile,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy a tile from block to block, however they lie; ``shift``: tokens, 0 if temporal."""
    _, _, elem_size, inner, width, rows, row_stride, _, size = state
    copy_size = size
    by_rows = False
    if CONV_STATE_DIM_FIRST:
        by_rows = (width > 0) & ((shift != 0) | (width * elem_size != row_stride))
    else:
        shift_bytes = inner * elem_size * shift
        src_addr += shift_bytes
        copy_size = tl.maximum(size - shift_bytes, 0)
    if by_rows:
        if width > shift:
            _copy_rows(
                src_addr, dst_addr, rows, row_stride, elem_size, width, shift, size, per_tile,
                tile_idx, COPY_BLOCK_SIZE,
            )  # fmt: skip
    else:
        copy_range(
            src_addr, dst_addr, copy_size, per_tile, tile_idx, COPY_BLOCK_SIZE, LOAD_POLICY,
            STORE_POLICY,
        )  # fmt: skip


@triton.jit
def _copy_rows(
    src_addr,
    dst_addr,
    rows,
    row_stride,
    elem_size,
    width,
    token_bias,
    size,
    per_tile,
    tile_idx,
    COPY_BLOCK_SIZE: tl.constexpr,
):
    """Move each of ``rows`` rows of W elements on by ``token_bias`` elements.

    Tiles share the rows where the blocks lie apart; else tile 0 moves them all.
    """
    distance = dst_addr - src_addr
    apart = (distance >= size) | (-distance >= size)
    kept = ((width - token_bias) * elem_size).to(tl.int64)
    src_addr += (token_bias * elem_size).to(tl.int64)
    units = src_addr | dst_addr | row_stride | kept
    first = tl.where(apart, tile_idx, 0)
    tiles = tl.where(apart, tl.cdiv(size, tl.maximum(per_tile, 1)), 1).to(tl.int32)
    if apart | (tile_idx == 0):
        if (units & 7) == 0:
            _shift_rows(
                src_addr, dst_addr, rows, row_stride, kept, first, tiles, 8, tl.int64,
                COPY_BLOCK_SIZE,
            )  # fmt: skip
        elif (units & 3) == 0:
            _shift_rows(
                src_addr, dst_addr, rows, row_stride, kept, first, tiles, 4, tl.int32,
                COPY_BLOCK_SIZE,
            )  # fmt: skip
        elif (units & 1) == 0:
            _shift_rows(
                src_addr, dst_addr, rows, row_stride, kept, first, tiles, 2, tl.int16,
                COPY_BLOCK_SIZE,
            )  # fmt: skip
        else:
            _shift_rows(
                src_addr, dst_addr, rows, row_stride, kept, first, tiles, 1, tl.int8,
                COPY_BLOCK_SIZE,
            )  # fmt: skip


@triton.jit
def _shift_rows(
    src_addr,
    dst_addr,
    rows,
    row_stride,
    kept,
    first,
    tiles,
    SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    COPY_BLOCK_SIZE: tl.constexpr,
):
    """Copy ``kept`` bytes of every row in units of SIZE bytes, dealt to lanes row after row.

    Blocks of lanes are dealt to ``tiles`` programs, of which this is number ``first``. Rows move towards lower addresses, so blocks are taken in ascending order, each read whole
    before any of it is written: what is still to be read is never overwritten.
    """
    src = src_addr.to(tl.pointer_type(UNIT))
    dst = dst_addr.to(tl.pointer_type(UNIT))
    per_row = (kept // SIZE).to(tl.int32)
    pitch = row_stride // SIZE
    count = rows * per_row
    for start in range(first * COPY_BLOCK_SIZE, count, tiles * COPY_BLOCK_SIZE):
        unit = start + tl.arange(0, COPY_BLOCK_SIZE)
        mask = unit < count
        row = unit // per_row
        offs = row.to(tl.int64) * pitch + (unit - row * per_row)
        held = tl.load(src + offs, mask=mask)
        tl.debug_barrier()
        tl.store(dst + offs, held, mask=mask)


@triton.jit
def _copy_mamba_state_block(
    state_idx,
    bt_row_idx,
    src_col,
    dst_col,
    token_bias,
    block_table_ptrs_ptr,
    block_table_stride_req,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    tile_idx=0,
    NUM_TILES: tl.constexpr = 1,
):
    """Copy (a tile of) one state's block from column ``src_col`` to ``dst_col`` of a table row.

    A convolutional state, [blocks, W, dim] or with CONV_STATE_DIM_FIRST [blocks, dim, W], is
    copied by tile 0 alone, also within one block; a temporal one by NUM_TILES tiles.
    """
    state, tile = load_state(
        state_idx, tile_idx, block_table_ptrs_ptr, state_base_addrs_ptr, state_block_strides_ptr,
        state_elem_sizes_ptr, state_inner_sizes_ptr, state_conv_widths_ptr,
        state_group_indices_ptr, state_dim_row_count_ptr, state_dim_row_stride_ptr,
        COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, NUM_TILES, False,
    )  # fmt: skip
    if has_work(tile):
        copy_loaded_state(
            state, tile, bt_row_idx, src_col, dst_col, token_bias, block_table_stride_req,
            COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, "", "",
        )  # fmt: skip
