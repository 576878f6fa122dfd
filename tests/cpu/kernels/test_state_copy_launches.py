"""What the aligned step launches: grids, compiled variants, and 16 bytes an access."""

from __future__ import annotations

import re

import pytest
import torch
from copy_callers import block_caller, memcpy_caller
from copy_worlds import Cache, ints, make_world

import launchkit
from launchkit import hostonly
from launchkit.kernels import placement
from launchkit.kernels.state_copy.align import precopy_mamba_align_fused_kernel
from launchkit.kernels.state_copy.launches import (
    postprocess_align,
    precopy_align,
    preprocess_align,
)
from launchkit.kernels.state_copy.memcpy import batch_memcpy, batch_memcpy_kernel
from launchkit.kernels.state_copy.shapes import CopyShape, copy_shape

NAME = "launchkit.kernels.state_copy.align.precopy_mamba_align_fused_kernel"
SHAPE = CopyShape(tiles=8, block_size=1024, num_warps=4)


starts_early = pytest.mark.skipif(
    not placement._CAN_WAIT, reason="this Triton cannot call what an early start needs"
)


@pytest.fixture
def world():
    return make_world("cpu", Cache(groups=2))


def start(world, reqs, shape=None):
    columns = [ints([0] * reqs, "cpu") for _ in range(3)]
    precopy_align(*columns, world.tables, world.table, reqs, columns[0], shape=shape)


def test_a_step_launches_tiles_of_states_by_requests(host, world):
    start(world, 3, SHAPE)
    (launch,) = host.launches()
    assert (launch.kernel, launch.grid) == ("precopy_mamba_align_fused_kernel", (4 * 8, 3, 1))
    assert launch.block == (128, 1, 1)


@starts_early
def test_a_step_starts_early_by_a_fast_launch(host, world):
    start(world, 3, SHAPE)
    with launchkit.count_launches():
        before = launchkit.stats()[NAME].fast
        for reqs in (3, 5):
            start(world, reqs, SHAPE)
        assert launchkit.stats()[NAME].fast - before == 2
    for launch in host.launches():
        assert dict(launch.attributes) == {"programmatic_stream_serialization": 1}


def test_where_a_gpu_cannot_start_early_nothing_asks_for_it(world):
    with hostonly.activate(arch=80):
        start(world, 3)
        (launch,) = hostonly.launches()
        assert launch.attributes == ()
        assert launch.grid == (4, 3, 1)


@starts_early
def test_a_dependent_launch_reads_only_what_states_are_before_it_waits(host, world):
    kernel = precopy_mamba_align_fused_kernel
    before, waited, after = kernel_text(world, kernel, DEPENDENT=True, launch_pdl=True).partition(
        "griddepcontrol.wait"
    )
    # Base, stride, element size, inner size, width and group of a state, and its group's table.
    assert waited
    assert (before.count("ld.global"), before.count("st.global")) == (7, 0)
    assert after.count("griddepcontrol") == 1
    assert "griddepcontrol.launch_dependents" in after
    assert "griddepcontrol" not in kernel_text(world, kernel)


def kernel_text(world, kernel, **options):
    """Return the PTX of a launch in the grid of (requests, states, tiles)."""
    column, states = ints([0], "cpu"), world.table
    compiled = kernel[(1, len(states), 2)](
        column, column, column, world.tables.pointers, world.tables.stride_req, states.base_addrs,
        states.block_strides, states.elem_sizes, states.inner_sizes, states.conv_widths,
        states.group_indices, states.dim_row_counts, states.dim_row_strides, column, 1,
        COPY_BLOCK_SIZE=64, CONV_STATE_DIM_FIRST=False, TEMPORAL_TILES=2, **options,
    )  # fmt: skip
    return compiled.asm["ptx"]


def test_a_step_ends_with_the_shape_of_the_gpu(host, world):
    counts = [ints([4, 4], "cpu") for _ in range(6)]
    postprocess_align(*counts[:5], world.tables, world.table, counts[5], 2, 16)
    (launch,) = host.launches()
    assert launch.kernel == "postprocess_mamba_fused_kernel"
    assert launch.grid == (4, 2, 1)
    assert launch.block == (32 * copy_shape(1).num_warps, 1, 1)


@pytest.mark.parametrize(
    ("kib", "tiles"), [(0, 1), (1, 1), (32, 1), (33, 2), (80, 4), (2048, 64), (2049, 128)]
)
def test_a_tile_has_a_block_to_copy(host, kib, tiles):
    assert copy_shape(kib * 1024).tiles == tiles
    assert copy_shape(2**40).tiles == 128


@pytest.mark.parametrize(("reqs", "programs"), [(1, 1), (128, 1), (129, 2), (300, 3)])
def test_preparation_is_one_program_for_many_requests(host, reqs, programs):
    slots = [ints([0] * 301, "cpu") for _ in range(7)]
    preprocess_align(*slots, reqs, 16)
    assert [launch.grid for launch in host.launches()] == [(programs, 1, 1)]


def test_numbers_of_requests_share_one_compiled_variant(host, world):
    start(world, 2, SHAPE)
    with launchkit.watch_compiles() as seen:
        for reqs in (1, 3, 16, 17):
            start(world, reqs, SHAPE)
        assert not seen.events
        start(world, 2, CopyShape(tiles=4, block_size=1024, num_warps=4))
    assert seen.events


def test_aligned_bytes_move_sixteen_at_a_time(host):
    one = torch.zeros(1, dtype=torch.int64)
    kernel = launchkit.launch(
        batch_memcpy_kernel, (1,), one, one, one.int(), BLOCK_SIZE=1024, num_warps=4
    )
    text = kernel.asm["ptx"]
    assert len(re.findall(r"ld\.global[\w.:]*\.v2\.b64|ld\.global[\w.:]*\.v4\.b32", text)) >= 4
    assert len(re.findall(r"st\.global[\w.:]*\.v2\.b64|st\.global[\w.:]*\.v4\.b32", text)) >= 4


def test_a_batch_is_copies_by_tiles(host):
    one = torch.zeros(3, dtype=torch.int64)
    for largest_bytes in (2**21, 2**16):
        batch_memcpy(one, one, one, largest_bytes)
    assert [launch.grid for launch in host.launches()] == [(3 * 64, 1, 1), (3 * 2, 1, 1)]


@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_device_functions_compile_in_kernels_of_somebody_else(host, dim_first):
    one = torch.zeros(1, dtype=torch.int64)
    narrow = one.int()
    memcpy_caller[(1,)](one, one, 700, TILES=3)
    pointers = (one, 5, one, one, narrow, one, narrow, narrow, narrow, one)
    block_caller[(1,)](*pointers, 1, 0, 2, 1, DIM_FIRST=dim_first)
    assert [launch.kernel for launch in host.launches()] == ["memcpy_caller", "block_caller"]


def test_cpu_tensors_without_a_place_to_run_are_refused(world):
    with pytest.raises(launchkit.LaunchkitError, match="where no GPU kernel can run"):
        start(world, 1)
