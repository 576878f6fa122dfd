"""Random schedules in Triton's interpreter: every path does what plain Python does."""

from __future__ import annotations

from functools import partial

import pytest
from mamba_states import Geometry
from mamba_worlds import BatchedWorld, FusedWorld, SlotWorld, check_schedule

from launchkit.kernels.state_copy.shapes import CopyShape

PATHS = {
    "batch rows": FusedWorld,
    "slots": SlotWorld,
    "slots, tables by batch row": partial(SlotWorld, by_slot=False),
}


# Seeds whose schedules contain every kind of move, and resumptions both announced and not.
@pytest.mark.parametrize("seed", [207, 121, 5])
def test_batched_copies_follow_the_reference(seed):
    check_schedule(BatchedWorld, Geometry(), seed, steps=12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_fused_copies_follow_the_reference(path, dim_first):
    make = partial(PATHS[path], shape=CopyShape(tiles=1, block_size=64, num_warps=1))
    check_schedule(make, Geometry(dim_first=dim_first), seed=216, steps=8)


@pytest.mark.parametrize("path", PATHS)
def test_fused_copies_in_16_tiles_follow_the_reference(path):
    make = partial(PATHS[path], shape=CopyShape(tiles=16, block_size=4, num_warps=1))
    check_schedule(make, Geometry(temporal=(5, 43)), seed=123, steps=5)


@pytest.mark.parametrize("offset", [4, 6])
def test_misaligned_pages_are_copied_right(offset):
    geometry = Geometry(groups=1, offset=offset, page_padding=offset, temporal_itemsize=2)
    check_schedule(BatchedWorld, geometry, seed=81, steps=10)
