"""Copies bytes between addresses: the device function of every state copy, and batched copies.

Ranges that begin and end at multiples of 16 bytes are copied 16 bytes an access. Others are
split where the destination becomes aligned: a head and a tail of a few bytes, and a body of
64-bit words between them. Words need source and destination at the same place in 8 bytes, since
a GPU refuses a word at an odd address; anything else goes byte by byte.
"""

# A kernel's parameters are Triton's, which has no types for them.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# mypy: disallow-untyped-decorators=False

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from launchkit import launch
from launchkit.kernels import arguments
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.state_copy.shapes import batch_options, copy_shape

_OP = "batch_memcpy"
_USUAL_BYTES = 2**20


@triton.jit
def tile_bytes(copy_size, COPY_BLOCK_SIZE: tl.constexpr, NUM_TILES: tl.constexpr):
    """Return the bytes of a tile: whole blocks of words, so that late tiles may be empty."""
    return tl.cdiv(tl.cdiv(copy_size, NUM_TILES), COPY_BLOCK_SIZE * 8) * (COPY_BLOCK_SIZE * 8)


@triton.jit
def _copy_block(
    src,
    dst,
    ROWS: tl.constexpr,
    ROW: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy ROWS * ROW elements, all of them under way at once, by addresses a constant apart."""
    lanes = tl.arange(0, ROW)
    held = ()
    for row in tl.static_range(ROWS):
        held += (tl.load(src + row * ROW + lanes, eviction_policy=LOAD_POLICY),)  # type: ignore[assignment]
    for row in tl.static_range(ROWS):
        tl.store(dst + row * ROW + lanes, held[row], eviction_policy=STORE_POLICY)


@triton.jit
def _copy_elements(
    src,
    dst,
    count,
    per_tile,
    tile_idx,
    COPY_BLOCK_SIZE: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy tile ``tile_idx``, of ``per_tile`` elements, of ``count``."""
    first = tile_idx * per_tile
    _copy_blocks(
        src + first, dst + first, tl.minimum(per_tile, count - first), COPY_BLOCK_SIZE,
        LOAD_POLICY, STORE_POLICY,
    )  # fmt: skip


@triton.jit
def _copy_blocks(
    src,
    dst,
    count,
    COPY_BLOCK_SIZE: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy ``count`` elements, if any."""
    # Whole blocks need no mask, which would be more work than the copy itself.
    ROW: tl.constexpr = 1024 if COPY_BLOCK_SIZE > 1024 else COPY_BLOCK_SIZE
    ROWS: tl.constexpr = COPY_BLOCK_SIZE // ROW
    whole = count // COPY_BLOCK_SIZE * COPY_BLOCK_SIZE
    if whole > 0:
        # Ahead of a loop, which most programs would go through once.
        _copy_block(src, dst, ROWS, ROW, LOAD_POLICY, STORE_POLICY)
        for start in range(COPY_BLOCK_SIZE, whole, COPY_BLOCK_SIZE):
            _copy_block(src + start, dst + start, ROWS, ROW, LOAD_POLICY, STORE_POLICY)
    if whole < count:
        offs = tl.arange(0, COPY_BLOCK_SIZE)
        mask = offs < (count - whole).to(tl.int32)
        held = tl.load(src + whole + offs, mask=mask, eviction_policy=LOAD_POLICY)
        tl.store(dst + whole + offs, held, mask=mask, eviction_policy=STORE_POLICY)


@triton.jit
def copy_words(
    src_addr,
    dst_addr,
    size,
    COPY_BLOCK_SIZE: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy ``size`` bytes, 16 an access: addresses and size are multiples of 16."""
    # Hints on values of this branch alone: elsewhere they would be untrue.
    _copy_blocks(
        tl.multiple_of(((src_addr >> 4) << 4).to(tl.pointer_type(tl.int64)), 16),
        tl.multiple_of(((dst_addr >> 4) << 4).to(tl.pointer_type(tl.int64)), 16),
        (size >> 4) << 1, COPY_BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
    )  # fmt: skip


@triton.jit
def _copy_edge(src_addr, dst_addr, count):
    """Copy fewer than 8 bytes."""
    offs = tl.arange(0, 8)
    mask = offs < count
    held = tl.load(src_addr.to(tl.pointer_type(tl.uint8)) + offs, mask=mask)
    tl.store(dst_addr.to(tl.pointer_type(tl.uint8)) + offs, held, mask=mask)


@triton.jit
def _move_elements(src, dst, count, ascending, COPY_BLOCK_SIZE: tl.constexpr):
    """Copy in blocks, each read whole before any of it is written, away from the overlap."""
    steps = tl.cdiv(count, COPY_BLOCK_SIZE)
    offs = tl.arange(0, COPY_BLOCK_SIZE)
    for step in range(steps):
        start = tl.where(ascending, step, steps - 1 - step) * COPY_BLOCK_SIZE
        mask = start + offs < count
        held = tl.load(src + start + offs, mask=mask)
        tl.debug_barrier()
        tl.store(dst + start + offs, held, mask=mask)


@triton.jit
def _move_bytes(src_addr, dst_addr, count, ascending, COPY_BLOCK_SIZE: tl.constexpr):
    src = src_addr.to(tl.pointer_type(tl.uint8))
    dst = dst_addr.to(tl.pointer_type(tl.uint8))
    _move_elements(src, dst, count, ascending, COPY_BLOCK_SIZE)


@triton.jit
def _move(src_addr, dst_addr, copy_size, COPY_BLOCK_SIZE: tl.constexpr):
    """Copy between ranges that overlap, as memmove does, by one program."""
    ascending = dst_addr - src_addr < 0
    in_phase = ((src_addr ^ dst_addr) & 7) == 0
    head = tl.where(in_phase, tl.minimum(-dst_addr & 7, copy_size), copy_size)
    words = (copy_size - head) >> 3
    tail_at = head + words * 8
    # The edge on the side that is copied first, then the words, then the other edge.
    first_at = tl.where(ascending, 0, tail_at)
    first_count = tl.where(ascending, head, copy_size - tail_at)
    last_at = tail_at - first_at
    _move_bytes(src_addr + first_at, dst_addr + first_at, first_count, ascending, COPY_BLOCK_SIZE)
    if words > 0:
        src = (src_addr + head).to(tl.pointer_type(tl.int64))
        dst = (dst_addr + head).to(tl.pointer_type(tl.int64))
        _move_elements(src, dst, words, ascending, COPY_BLOCK_SIZE)
    last_count = copy_size - words * 8 - first_count
    _move_bytes(src_addr + last_at, dst_addr + last_at, last_count, ascending, COPY_BLOCK_SIZE)


@triton.jit
def copy_range(
    src_addr,
    dst_addr,
    copy_size,
    per_tile,
    tile_idx,
    COPY_BLOCK_SIZE: tl.constexpr,
    LOAD_POLICY: tl.constexpr,
    STORE_POLICY: tl.constexpr,
):
    """Copy a tile of ``copy_size`` bytes, as ``_memcpy_u64_tiled``.

    per_tile: bytes of a tile, a multiple of 16; together the tiles are at least copy_size.
    """
    tile_idx = tl.full((), 0, tl.int64) + tile_idx
    distance = dst_addr - src_addr
    apart = (distance >= copy_size) | (-distance >= copy_size)
    # First what nearly every copy is: a program has few instructions to hide its latency behind.
    if apart & (((src_addr | dst_addr | copy_size | per_tile) & 15) == 0):
        first = tile_idx * per_tile
        copy_words(
            src_addr + first, dst_addr + first, tl.minimum(per_tile, copy_size - first),
            COPY_BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
        )  # fmt: skip
    elif not apart:
        if (tile_idx == 0) & (distance != 0):
            _move(src_addr, dst_addr, copy_size, COPY_BLOCK_SIZE)
    elif (distance & 7) != 0:
        _copy_elements(
            src_addr.to(tl.pointer_type(tl.uint8)), dst_addr.to(tl.pointer_type(tl.uint8)),
            copy_size, per_tile, tile_idx, COPY_BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
        )  # fmt: skip
    else:
        head = tl.minimum(-dst_addr & 7, copy_size)
        body = (copy_size - head) >> 3
        _copy_elements(
            (src_addr + head).to(tl.pointer_type(tl.int64)),
            (dst_addr + head).to(tl.pointer_type(tl.int64)),
            body, per_tile >> 3, tile_idx, COPY_BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
        )  # fmt: skip
        tail_at = head + body * 8
        if (tile_idx == 0) & (body * 8 < copy_size):
            _copy_edge(src_addr, dst_addr, head)
            _copy_edge(src_addr + tail_at, dst_addr + tail_at, copy_size - tail_at)


@triton.jit
def _memcpy_u64_tiled(
    src_addr,
    dst_addr,
    copy_size,
    tile_idx,
    COPY_BLOCK_SIZE: tl.constexpr,
    NUM_TILES: tl.constexpr,
):
    """Copy tile ``tile_idx`` of ``copy_size`` bytes from one int64 address to another.

    All NUM_TILES tiles together copy the range, and no byte outside it. The body's words (bytes,
    where words cannot be had) are dealt out in whole blocks of COPY_BLOCK_SIZE words, so that
    late tiles may be empty; head and tail belong to tile 0, which also moves ranges that overlap.
    """
    copy_size = copy_size.to(tl.int64)
    copy_range(
        src_addr.to(tl.int64), dst_addr.to(tl.int64), copy_size,
        tile_bytes(copy_size, COPY_BLOCK_SIZE, NUM_TILES), tile_idx, COPY_BLOCK_SIZE, "", "",
    )  # fmt: skip


@triton.jit
def batch_memcpy_kernel(
    src_ptrs,
    dst_ptrs,
    sizes,
    BLOCK_SIZE: tl.constexpr = 1024,
    NUM_TILES: tl.constexpr = 1,
    TILES_FIRST: tl.constexpr = False,
    LOAD_POLICY: tl.constexpr = "",
    STORE_POLICY: tl.constexpr = "",
    DEPENDENT: tl.constexpr = False,
):
    """Copy number ``program_id(0)``, tile ``program_id(1)``: see ``batch_memcpy``.

    TILES_FIRST: the grid has one axis, and neighbours in it are tiles of one copy.
    DEPENDENT, for launches with ``launch_pdl``: the launch after it may start early, and it
    waits for the one before it.
    """
    if DEPENDENT:
        gdc_wait()
    copy = tl.program_id(0)
    tile = tl.program_id(1)
    if TILES_FIRST:
        tile = copy % NUM_TILES
        copy = copy // NUM_TILES
    size = tl.load(sizes + copy).to(tl.int64)
    copy_range(
        tl.load(src_ptrs + copy).to(tl.int64), tl.load(dst_ptrs + copy).to(tl.int64), size,
        tile_bytes(size, BLOCK_SIZE, NUM_TILES), tile, BLOCK_SIZE, LOAD_POLICY, STORE_POLICY,
    )  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()


def batch_memcpy(
    src_ptrs: torch.Tensor,
    dst_ptrs: torch.Tensor,
    sizes: torch.Tensor,
    largest_bytes: int = _USUAL_BYTES,
) -> None:
    """Copy ``sizes[i]`` bytes from address ``src_ptrs[i]`` to ``dst_ptrs[i]``, in one launch.

    src_ptrs, dst_ptrs: (n,) uint64 or int64 with the same bits, addresses of any alignment on
        the tensors' device. The two ranges of a copy may overlap; those of different copies
        must not, since copies run in no order.
    sizes: (n,) int32 or int64, bytes. 0 copies nothing.
    largest_bytes: about the largest size, which decides how many programs share a copy; any
        size is copied right.

    Raises UsageError for shapes, dtypes or devices that do not fit. Addresses and sizes are not
    checked, which would wait for the GPU.
    """
    _check_batch(src_ptrs, dst_ptrs, sizes)
    require_launchable(_OP, src_ptrs)
    copies = src_ptrs.shape[0]
    if copies == 0:
        return
    shape = copy_shape(largest_bytes)
    with device_guard(src_ptrs):
        launch(
            batch_memcpy_kernel, (copies * shape.tiles,), src_ptrs, dst_ptrs, sizes,
            **batch_options(shape),
        )  # fmt: skip


def _check_batch(src_ptrs: torch.Tensor, dst_ptrs: torch.Tensor, sizes: torch.Tensor) -> None:
    count = arguments.sizes_of(_OP, "src_ptrs", src_ptrs)
    for name, tensor, allowed in (
        ("src_ptrs", src_ptrs, (torch.uint64, torch.int64)),
        ("dst_ptrs", dst_ptrs, (torch.uint64, torch.int64)),
        ("sizes", sizes, arguments.INDEX_DTYPES),
    ):
        arguments.require_tensor(_OP, name, tensor, allowed, src_ptrs.device)
        if tensor.dim() != 1 or tensor.shape != count:
            raise arguments.wrong_shape(_OP, name, tensor, "(n,), the same for all three")
        if not tensor.is_contiguous():
            raise arguments.refusal(_OP, name, "is strided", "Pass it contiguous.")
