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

from launchkit.kernels.state_copy.memcpy import copy_range


@triton.jit
def load_state(
    state_idx,
    block_table_ptrs_ptr,
    state_base_addrs_ptr,
    state_block_strides_ptr,
    state_elem_sizes_ptr,
    state_inner_sizes_ptr,
    state_conv_widths_ptr,
    state_group_indices_ptr,
):
    """Return (base, block stride, element size, inner size, width, block table) of a state.

    Callers load these before they look at a request, so that both kinds of loads wait together.
    """
    group = tl.load(state_group_indices_ptr + state_idx)
    width = tl.load(state_conv_widths_ptr + state_idx)
    base = tl.load(state_base_addrs_ptr + state_idx).to(tl.int64)
    stride = tl.load(state_block_strides_ptr + state_idx).to(tl.int64)
    elem_size = tl.load(state_elem_sizes_ptr + state_idx)
    inner = tl.load(state_inner_sizes_ptr + state_idx).to(tl.int64)
    table = tl.load(block_table_ptrs_ptr + group).to(tl.int64).to(tl.pointer_type(tl.int32))
    return base, stride, elem_size, inner, width, table


@triton.jit
def copy_loaded_state(
    state_idx,
    base,
    stride,
    elem_size,
    inner,
    width,
    table,
    bt_row_idx,
    src_col,
    dst_col,
    token_bias,
    block_table_stride_req,
    state_dim_row_count_ptr,
    state_dim_row_stride_ptr,
    tile_idx,
    COPY_BLOCK_SIZE: tl.constexpr,
    CONV_STATE_DIM_FIRST: tl.constexpr,
    NUM_TILES: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """``_copy_mamba_state_block`` of a state that ``load_state`` returned."""
    is_conv = width > 0
    if (tile_idx == 0) | (width == 0):
        # Widened by adding, since a caller may pass a constant.
        table += (tl.full((), 0, tl.int64) + bt_row_idx) * block_table_stride_req
        read_col = src_col + tl.where(is_conv, 0, token_bias)
        src_block = tl.load(table + read_col).to(tl.int64)
        dst_block = tl.load(table + dst_col).to(tl.int64)
        src_addr = base + src_block * stride
        dst_addr = base + dst_block * stride
        if CONV_STATE_DIM_FIRST:
            if is_conv:
                if width > token_bias:
                    rows = tl.load(state_dim_row_count_ptr + state_idx)
                    row_stride = tl.load(state_dim_row_stride_ptr + state_idx).to(tl.int64)
                    _copy_rows(
                        src_addr, dst_addr, rows, row_stride, elem_size, width, token_bias,
                        COPY_BLOCK_SIZE,
                    )  # fmt: skip
            else:
                copy_range(
                    src_addr, dst_addr, inner * elem_size, tile_idx, False, COPY_BLOCK_SIZE,
                    NUM_TILES, LOAD_POLICY, STORE_POLICY,
                )  # fmt: skip
        else:
            row_bytes = inner * elem_size
            src_addr += tl.where(is_conv, token_bias, 0) * row_bytes
            copy_size = tl.where(is_conv, tl.maximum(width - token_bias, 0), 1) * row_bytes
            copy_range(
                src_addr, dst_addr, copy_size, tile_idx, is_conv, COPY_BLOCK_SIZE, NUM_TILES,
                LOAD_POLICY, STORE_POLICY,
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
    COPY_BLOCK_SIZE: tl.constexpr,
):
    """Move each of ``rows`` rows of W elements on by ``token_bias`` elements, by one program."""
    kept = ((width - token_bias) * elem_size).to(tl.int64)
    src_addr += (token_bias * elem_size).to(tl.int64)
    units = src_addr | dst_addr | row_stride | kept
    if (token_bias == 0) & (kept == row_stride):
        copy_range(src_addr, dst_addr, rows * kept, 0, True, COPY_BLOCK_SIZE, 1, "", "")
    elif (units & 7) == 0:
        _shift_rows(src_addr, dst_addr, rows, row_stride, kept, 8, tl.int64, COPY_BLOCK_SIZE)
    elif (units & 3) == 0:
        _shift_rows(src_addr, dst_addr, rows, row_stride, kept, 4, tl.int32, COPY_BLOCK_SIZE)
    elif (units & 1) == 0:
        _shift_rows(src_addr, dst_addr, rows, row_stride, kept, 2, tl.int16, COPY_BLOCK_SIZE)
    else:
        _shift_rows(src_addr, dst_addr, rows, row_stride, kept, 1, tl.int8, COPY_BLOCK_SIZE)


@triton.jit
def _shift_rows(
    src_addr,
    dst_addr,
    rows,
    row_stride,
    kept,
    SIZE: tl.constexpr,
    UNIT: tl.constexpr,
    COPY_BLOCK_SIZE: tl.constexpr,
):
    """Copy ``kept`` bytes of every row in units of SIZE bytes, dealt to lanes row after row.

    Rows move towards lower addresses, so blocks are taken in ascending order, each read whole
    before any of it is written: what is still to be read is never overwritten.
    """
    src = src_addr.to(tl.pointer_type(UNIT))
    dst = dst_addr.to(tl.pointer_type(UNIT))
    per_row = (kept // SIZE).to(tl.int32)
    pitch = row_stride // SIZE
    count = rows * per_row
    for start in range(0, count, COPY_BLOCK_SIZE):
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
    base, stride, elem_size, inner, width, table = load_state(
        state_idx, block_table_ptrs_ptr, state_base_addrs_ptr, state_block_strides_ptr,
        state_elem_sizes_ptr, state_inner_sizes_ptr, state_conv_widths_ptr,
        state_group_indices_ptr,
    )  # fmt: skip
    copy_loaded_state(
        state_idx, base, stride, elem_size, inner, width, table, bt_row_idx, src_col, dst_col,
        token_bias, block_table_stride_req, state_dim_row_count_ptr, state_dim_row_stride_ptr,
        tile_idx, COPY_BLOCK_SIZE, CONV_STATE_DIM_FIRST, NUM_TILES, "", "",
    )  # fmt: skip
