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
def _load(pointers, mask, POLICY: tl.constexpr):
    if POLICY == ".cg" or POLICY == ".ca":
        return tl.load(pointers, mask=mask, cache_modifier=POLICY)
    else:
        return tl.load(pointers, mask=mask, eviction_policy=POLICY)


@triton.jit
def _store(pointers, held, mask, POLICY: tl.constexpr):
    if POLICY == ".cs" or POLICY == ".cg" or POLICY == ".wt":
        tl.store(pointers, held, mask=mask, cache_modifier=POLICY)
    else:
        tl.store(pointers, held, mask=mask, eviction_policy=POLICY)


@triton.jit
def _copy_words(
    src, dst, first, end,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr, LOADS: tl.constexpr, STORES: tl.constexpr,
):  # fmt: skip
    """Copy 64-bit words; with AHEAD the next block is read before a store."""
    offs = tl.arange(0, BLOCK)
    if AHEAD:
        held = _load(src + first + offs, offs < tl.minimum(end - first, BLOCK).to(tl.int32), LOADS)
        for start in range(first, end, BLOCK):
            mask = offs < tl.minimum(end - start, BLOCK).to(tl.int32)
            later = start + BLOCK
            ahead = offs < tl.minimum(end - later, BLOCK).to(tl.int32)
            following = _load(src + later + offs, ahead, LOADS)
            _store(dst + start + offs, held, mask, STORES)
            held = following
    else:
        for start in range(first, end, BLOCK):
            mask = offs < tl.minimum(end - start, BLOCK).to(tl.int32)
            held = _load(src + start + offs, mask, LOADS)
            _store(dst + start + offs, held, mask, STORES)


@triton.jit
def _copy_tile(
    batch, first, end, fixed, dst_col_ptr, src_col_ptr, table_stride, idx_mapping_ptr,
    BLOCK: tl.constexpr, AHEAD: tl.constexpr, NARROW: tl.constexpr, LOADS: tl.constexpr,
    STORES: tl.constexpr,
):  # fmt: skip
    base, stride, table = fixed
    slot = tl.load(idx_mapping_ptr + batch)
    table += slot * table_stride
    src_col = tl.load(src_col_ptr + slot)
    dst_col = tl.load(dst_col_ptr + slot)
    if (src_col >= 0) & (src_col != dst_col):
        src = base + tl.load(table + src_col).to(tl.int64) * stride
        dst = base + tl.load(table + dst_col).to(tl.int64) * stride
        src_words, dst_words = src.to(tl.pointer_type(tl.int64)), dst.to(tl.pointer_type(tl.int64))
        if not NARROW:
            src_words = tl.multiple_of(((src >> 4) << 4).to(tl.pointer_type(tl.int64)), 16)
            dst_words = tl.multiple_of(((dst >> 4) << 4).to(tl.pointer_type(tl.int64)), 16)
        _copy_words(src_words, dst_words, first, end, BLOCK, AHEAD, LOADS, STORES)


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


@triton.jit(do_not_specialize=["num_reqs", "num_states"])
def candidate_copy_kernel(
    dst_col_ptr, src_col_ptr, bias_ptr, tables_ptr, table_stride: tl.int64, bases_ptr,
    strides_ptr, elem_sizes_ptr, inner_sizes_ptr, widths_ptr, groups_ptr, row_counts_ptr,
    row_strides_ptr, idx_mapping_ptr, num_reqs, num_states,
    BLOCK: tl.constexpr, TILES: tl.constexpr, STATE_MAJOR: tl.constexpr, AHEAD: tl.constexpr,
    LOADS: tl.constexpr, STORES: tl.constexpr, PERSISTENT: tl.constexpr,
    WAIT_FIRST: tl.constexpr, LATE: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Copies in 16 bytes an access, NARROW in 8, convolutional states in tiles too; one axis.

    Neighbouring programs copy tiles of one state. STATE_MAJOR: then of the next request, not of
    its next state. AHEAD: loads run a block ahead. PERSISTENT: a few programs walk all tiles.
    What no step changes is read before the predecessor has ended, but not with WAIT_FIRST.
    LATE: the successor may start once this copy has been issued, not at once.
    """
    pid = tl.program_id(0)
    total = num_reqs * num_states * TILES
    if not LATE:
        gdc_launch_dependents()
    if WAIT_FIRST:
        gdc_wait()
    for item in range(pid, total if PERSISTENT else pid + 1, tl.num_programs(0)):
        outer = item // TILES
        state = outer // num_reqs if STATE_MAJOR else outer % num_states
        batch = outer % num_reqs if STATE_MAJOR else outer // num_states
        count, fixed = _load_fixed(
            state, tables_ptr, bases_ptr, strides_ptr, elem_sizes_ptr, inner_sizes_ptr,
            widths_ptr, groups_ptr,
        )  # fmt: skip
        tile = item % TILES
        per_tile = tl.cdiv(tl.cdiv(count, TILES), BLOCK) * BLOCK
        first = tile * per_tile
        # Empty tiles end here, all but one: a program has to have waited before the launch ends.
        if (first < count) | (tile == 0):
            if not WAIT_FIRST:
                gdc_wait()
            _copy_tile(
                batch, first, tl.minimum(first + per_tile, count), fixed, dst_col_ptr,
                src_col_ptr, table_stride, idx_mapping_ptr, BLOCK, AHEAD, NARROW, LOADS, STORES,
            )  # fmt: skip
    if LATE:
        gdc_launch_dependents()
