"""Random schedules on a GPU: every path does what plain Python does, in any cut of the copies."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from mamba_batches import FUNCS, batch, output, request
from mamba_states import Geometry, States, make_config
from mamba_worlds import BatchedWorld, FusedWorld, SlotWorld, check_schedule

from launchkit.kernels.state_copy.batched import (
    collect_mamba_copy_meta,
    do_mamba_copy_block,
)
from launchkit.kernels.state_copy.buffers import CpuGpuBuffer, MambaBuffers
from launchkit.kernels.state_copy.host_align import preprocess_mamba
from launchkit.kernels.state_copy.shapes import CopyShape

PATHS = {
    "batch rows": FusedWorld,
    "slots": SlotWorld,
    "slots, tables by batch row": partial(SlotWorld, by_slot=False),
}
SHAPES = {
    "1 tile": CopyShape(tiles=1, block_size=1024, num_warps=4),
    "16 tiles": CopyShape(tiles=16, block_size=128, num_warps=4),
    "default": None,
}
# Small blocks of 1,024 words are shared by several tiles, and conv windows by several blocks.
LARGE = partial(Geometry, groups=3, layers=4, temporal=(24, 64, 7), dim=257, block_size=4)


@pytest.mark.parametrize("seed", [207, 121, 5])
def test_batched_copies_follow_the_reference(seed):
    check_schedule(BatchedWorld, LARGE(), seed, steps=12, device="cuda")


@pytest.mark.parametrize("seed", [216, 81])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_fused_copies_follow_the_reference(path, shape, dim_first, seed):
    make = partial(PATHS[path], shape=SHAPES[shape])
    geometry = LARGE(dim_first=dim_first)
    check_schedule(make, geometry, seed, steps=10, device="cuda")


@pytest.mark.parametrize("path", PATHS)
def test_misaligned_pages_are_copied_right(path):
    geometry = LARGE(offset=6, page_padding=6, temporal_itemsize=2)
    check_schedule(PATHS[path], geometry, seed=81, steps=10, device="cuda")


def test_addresses_are_not_overwritten_before_the_device_has_read_them():
    geometry = LARGE(groups=1, layers=1)
    states = States(geometry, "cuda")
    make_buffer = partial(CpuGpuBuffer, device="cuda")
    copies = MambaBuffers.create(4, states.config, FUNCS, make_buffer, "cuda", False).preprocess
    _, temporal = states.context["g0.0"].kv_cache
    wanted = temporal.clone()
    for block in range(1, 9):
        if block == 2:
            # Compiled by now: from here on nothing else may make the host wait.
            torch.cuda.synchronize()
            torch.cuda._sleep(200_000_000)
        copies.offset = 0
        req = request(0, (block, block + 20))
        collect_mamba_copy_meta(copies, states.config, FUNCS, [1], 0, 1, 0, req, states.context)
        do_mamba_copy_block(copies)
    wanted[21:29] = wanted[1:9]
    assert torch.equal(temporal.view(torch.int32), wanted.view(torch.int32))


def test_columns_are_not_overwritten_before_the_device_has_read_them():
    states = States(LARGE(groups=1, layers=1), "cuda")
    make_buffer = partial(CpuGpuBuffer, device="cuda")
    buffers = MambaBuffers.create(4, states.config, FUNCS, make_buffer, "cuda", True)
    table = torch.arange(32, dtype=torch.int32, device="cuda").reshape(4, 8)
    lookup = SimpleNamespace(get_device_tensor=lambda rows: table[:rows])
    _, temporal = states.context["g0.0"].kv_cache
    wanted = temporal.clone()
    columns = {"a": 0}
    caching = SimpleNamespace(enable_prefix_caching=True)
    for turn in range(6):
        rows = batch({"a": 1})
        rows.block_table = {1: lookup}
        preprocess_mamba(
            output({"a": 1}), states.config, caching, columns, rows,
            {"a": request(4 * turn + 4)}, states.context, FUNCS, buffers.preprocess,
            buffers.postprocess_align,
        )  # fmt: skip
        assert columns == {"a": turn + 1}
        if turn == 0:
            # The first call has bound the context, which waits; from here on nothing may.
            torch.cuda.synchronize()
            torch.cuda._sleep(200_000_000)
    wanted[1:7] = wanted[0]
    assert torch.equal(temporal.view(torch.int32), wanted.view(torch.int32))


def test_staging_buffers_are_pinned():
    make_buffer = partial(CpuGpuBuffer, device="cuda")
    buffers = MambaBuffers.create(4, make_config(Geometry()), FUNCS, make_buffer, "cuda", True)
    staging = buffers.postprocess_align.mamba_state_idx_buf
    assert staging.cpu.is_pinned()
    assert buffers.preprocess.src_ptrs.cpu.is_pinned()
    staging.np[:] = [3, 1, 4, 1]
    moved = staging.copy_to_gpu(3)
    torch.cuda.synchronize()
    assert moved.tolist() == [3, 1, 4]
    assert staging.gpu.tolist() == [3, 1, 4, 0]
    assert not CpuGpuBuffer(4, dtype=torch.int32, device="cuda", pin_memory=False).cpu.is_pinned()
