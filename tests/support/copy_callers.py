"""Kernels of somebody else that call the device functions of the state copies."""

import triton
import triton.language as tl

from launchkit.kernels.state_copy.block import _copy_mamba_state_block
from launchkit.kernels.state_copy.memcpy import _memcpy_u64_tiled


@triton.jit
def memcpy_caller(src, dst, size, TILES: tl.constexpr):
    _memcpy_u64_tiled(
        src.to(tl.int64), dst.to(tl.int64), size, tl.program_id(0), COPY_BLOCK_SIZE=16,
        NUM_TILES=TILES,
    )  # fmt: skip


@triton.jit
def block_caller(
    tables, table_stride, bases, strides, elem_sizes, inner_sizes, widths, groups, row_counts,
    row_strides, row, src_col, dst_col, bias, DIM_FIRST: tl.constexpr,
):  # fmt: skip
    _copy_mamba_state_block(
        tl.program_id(0), row, src_col, dst_col, bias, tables, table_stride, bases, strides,
        elem_sizes, inner_sizes, widths, groups, row_counts, row_strides, 64, DIM_FIRST,
    )  # fmt: skip
