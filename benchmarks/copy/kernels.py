"""Kernels that the copy benchmark compares with: simple ones, and one with every knob.

They copy aligned states in the layout [blocks, W, dim] from column to column, without a token
bias, and take the arguments of ``precopy_mamba_align_fused_kernel``.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit(do_not_specialize=["num_reqs"])
def simple_copy_kernel(
    dst_col_ptr, src_col_ptr, bias_ptr, tables_ptr, table_stride: tl.int64, bases_ptr,
    strides_ptr, elem_sizes_ptr, inner_sizes_ptr, widths_ptr, groups_ptr, row_counts_ptr,
    row_strides_ptr, idx_mapping_ptr, num_reqs,
    BLOCK: tl.constexpr, TILES: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One program a state, or TILES for a temporal one; bytes, or with WORDS 64-bit words."""
    batch = tl.program_id(0)
    state = tl.program_id(1)
    tile = tl.program_id(2)
    if batch >= num_reqs:
        return
    slot = tl.load(idx_mapping_ptr + batch)
    if slot < 0:
        return
    src_col = tl.load(src_col_ptr + slot)
    dst_col = tl.load(dst_col_ptr + slot)
    if (src_col < 0) | (src_col == dst_col):
        return
    width = tl.load(widths_ptr + state)
    tiles = TILES
    if width > 0:
        if tile > 0:
            return
        tiles = 1
    group = tl.load(groups_ptr + state)
    table = tl.load(tables_ptr + group).to(tl.pointer_type(tl.int32)) + slot * table_stride
    base = tl.load(bases_ptr + state)
    stride = tl.load(strides_ptr + state)
    size = tl.load(inner_sizes_ptr + state) * tl.load(elem_sizes_ptr + state)
    size *= tl.maximum(width, 1)
    src = base + tl.load(table + src_col).to(tl.int64) * stride
    dst = base + tl.load(table + dst_col).to(tl.int64) * stride
    if WORDS:
        _copy_tile_of(
            src.to(tl.pointer_type(tl.int64)), dst.to(tl.pointer_type(tl.int64)), size // 8, tile,
            tiles, BLOCK,
        )  # fmt: skip
    else:
        _copy_tile_of(
            src.to(tl.pointer_type(tl.uint8)), dst.to(tl.pointer_type(tl.uint8)), size, tile,
            tiles, BLOCK,
        )  # fmt: skip


@triton.jit
def _copy_tile_of(src, dst, count, tile, tiles, BLOCK: tl.constexpr):
    per_tile = tl.cdiv(tl.cdiv(count, tiles), BLOCK) * BLOCK
    first = tile.to(tl.int64) * per_tile
    end = tl.minimum(first + per_tile, count)
    offs = tl.arange(0, BLOCK)
    for start in range(first, end, BLOCK):
        mask = start + offs < end
        held = tl.load(src + start + offs, mask=mask)
        tl.store(dst + start + offs, held, mask=mask)


@triton.jit
def _load_fixed(
    state, tables_ptr, bases_ptr, strides_ptr, elem_sizes_ptr, inner_sizes_ptr, widths_ptr,
    groups_ptr,
):  # fmt: skip
    """Return a state's 64-bit words, and (base, stride, block table): the same in every step."""
    width = tl.load(widths_ptr + state)
    group = tl.load(groups_ptr + state)
    size = tl.load(inner_sizes_ptr + state) * tl.load(elem_sizes_ptr + state)
    base, stride = tl.load(bases_ptr + state), tl.load(strides_ptr + state)
    table = tl.load(tables_ptr + group).to(tl.pointer_type(tl.int32))
    return (size * tl.maximum(width, 1) >> 4) << 1, (base, stride, table)


@triton.jit
def _copy_words(
    src, dst, first, end, BLOCK: tl.constexpr, LOADS: tl.constexpr, STORES: tl.constexpr
):
    """Copy 64-bit words, 16 bytes an access."""
    src = tl.multiple_of(((src >> 4) << 4).to(tl.pointer_type(tl.int64)), 16)
    dst = tl.multiple_of(((dst >> 4) << 4).to(tl.pointer_type(tl.int64)), 16)
    offs = tl.arange(0, BLOCK)
    for start in range(first, end, BLOCK):
        mask = offs < tl.minimum(end - start, BLOCK).to(tl.int32)
        held = tl.load(src + start + offs, mask=mask, eviction_policy=LOADS)
        tl.store(dst + start + offs, held, mask=mask, eviction_policy=STORES)


@triton.jit(do_not_specialize=["num_reqs"])
def candidate_copy_kernel(
    dst_col_ptr, src_col_ptr, bias_ptr, tables_ptr, table_stride: tl.int64, bases_ptr,
    strides_ptr, elem_sizes_ptr, inner_sizes_ptr, widths_ptr, groups_ptr, row_counts_ptr,
    row_strides_ptr, idx_mapping_ptr, num_reqs,
    BLOCK: tl.constexpr, TILES: tl.constexpr, LOADS: tl.constexpr, STORES: tl.constexpr,
    LATE: tl.constexpr,
):  # fmt: skip
    """launchkit's form of copy without what it must know of other states; its grid.

    LATE: the launch after this one may start once this copy has been issued, not at once.
    """
    tile = tl.program_id(0) % TILES
    state = tl.program_id(0) // TILES
    if not LATE:
        gdc_launch_dependents()
    count, fixed = _load_fixed(
        state, tables_ptr, bases_ptr, strides_ptr, elem_sizes_ptr, inner_sizes_ptr, widths_ptr,
        groups_ptr,
    )  # fmt: skip
    base, stride, table = fixed
    per_tile = tl.cdiv(tl.cdiv(count, TILES), BLOCK) * BLOCK
    first = tile * per_tile
    # Empty tiles end here, all but one: a program has to have waited before the launch ends.
    if (first < count) | (tile == 0):
        gdc_wait()
        slot = tl.load(idx_mapping_ptr + tl.program_id(1))
        table += slot * table_stride
        src_col = tl.load(src_col_ptr + slot)
        dst_col = tl.load(dst_col_ptr + slot)
        if (src_col >= 0) & (src_col != dst_col):
            src = base + tl.load(table + src_col).to(tl.int64) * stride
            dst = base + tl.load(table + dst_col).to(tl.int64) * stride
            end = tl.minimum(first + per_tile, count)
            _copy_words(src, dst, first, end, BLOCK, LOADS, STORES)
    if LATE:
        gdc_launch_dependents()
