"""Copies between addresses on a GPU: every pair of phases with every size, and more at once."""

from __future__ import annotations

import pytest
import torch
from copy_bytes_promises import *  # noqa: F403  the tests that the interpreter runs too

from launchkit.kernels.state_copy.memcpy import batch_memcpy, batch_memcpy_kernel

SIZES = 4097
PITCH = 4096 + 64


def strips(seed):
    """Return a strip of random bytes for each size from 0 to 4096."""
    rng = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(0, 256, (SIZES, PITCH), dtype=torch.uint8, device="cuda", generator=rng)


@pytest.mark.parametrize("tiles", [1, 16])
@pytest.mark.parametrize("src_phase", range(8))
def test_every_phase_with_every_size_to_four_thousand_is_exact(src_phase, tiles):
    src, before = strips(1), strips(2)
    rows = torch.arange(SIZES, device="cuda")
    sizes = rows.int()
    for dst_phase in range(8):
        column = torch.arange(PITCH, device="cuda")
        inside = (column >= 32 + dst_phase) & (column < 32 + dst_phase + rows[:, None])
        moved = src.roll(dst_phase - src_phase, dims=1)
        expected = torch.where(inside, moved, before)
        dst = before.clone()
        reads = src.data_ptr() + rows * PITCH + 32 + src_phase
        writes = dst.data_ptr() + rows * PITCH + 32 + dst_phase
        grid = (SIZES, tiles)
        batch_memcpy_kernel[grid](reads, writes, sizes, BLOCK_SIZE=64, NUM_TILES=tiles)
        assert torch.equal(dst, expected), dst_phase


@pytest.mark.parametrize("shift", [16 * 1024, 5 * 16 * 1024, 24, 3])
@pytest.mark.parametrize("down", [True, False], ids=["down", "up"])
def test_large_overlapping_ranges_are_moved_as_by_memmove(shift, down):
    size, count = 8 * 16 * 1024 + 5, 300
    rng = torch.Generator("cuda").manual_seed(3)
    before = torch.randint(
        0, 256, (count, size + shift + 11), dtype=torch.uint8, device="cuda", generator=rng
    )
    src, dst = (shift, 0) if down else (0, shift)
    expected = before.clone()
    expected[:, dst : dst + size] = before[:, src : src + size]
    rows = torch.arange(count, device="cuda") * before.stride(0)
    sizes = torch.full((count,), size, dtype=torch.int32, device="cuda")
    for _ in range(10):
        memory = before.clone()
        start = memory.data_ptr() + rows
        batch_memcpy(start + src, start + dst, sizes)
        assert torch.equal(memory, expected)


def test_a_captured_batch_copies_what_its_tensors_hold_then():
    src = torch.randint(0, 256, (10**6,), dtype=torch.uint8, device="cuda")
    dst = torch.zeros_like(src)
    reads, writes = (torch.tensor([t.data_ptr()], device="cuda") for t in (src, dst))
    sizes = torch.tensor([17], dtype=torch.int32, device="cuda")
    batch_memcpy(reads, writes, sizes)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch_memcpy(reads, writes, sizes)
    sizes.fill_(10**6)
    graph.replay()
    assert torch.equal(src, dst)
