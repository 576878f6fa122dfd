"""Random schedules in Triton's interpreter: every path does what plain Python does."""

from __future__ import annotations

from functools import partial

import pytest
from mamba_states import Geometry
from mamba_worlds import BatchedWorld, FusedWorld, SlotWorld, check_schedule

from launchkit.kernels.state_copy.shapes import CopyShape

SMALL = Geometry(groups=2, layers=1)
PATHS = {
    "batch rows": FusedWorld,
    "slots": SlotWorld,
    "slots, tables by batch row": partial(SlotWorld, by_slot=False),
}


@pytest.mark.parametrize("seed", range(4))
def test_batched_copies_follow_the_reference(seed):
    check_schedule(BatchedWorld, SMALL, seed, steps=12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dim_first", [False, True], ids=["SD", "DS"])
def test_fused_copies_follow_the_reference(path, dim_first):
    geometry = Geometry(groups=2, layers=1, dim_first=dim_first)
    make = partial(PATHS[path], shape=CopyShape(tiles=1, block_size=64, num_warps=1))
    check_schedule(make, geometry, seed=5, steps=10)


@pytest.mark.parametrize("path", PATHS)
def test_fused_copies_in_16_tiles_follow_the_reference(path):
    make = partial(PATHS[path], shape=CopyShape(tiles=16, block_size=4, num_warps=1))
    check_schedule(make, Geometry(groups=2, layers=1, temporal=(5, 43)), seed=7, steps=4)


def test_misaligned_pages_are_copied_right():
    geometry = Geometry(groups=1, layers=1, offset=4, page_padding=4)
    check_schedule(BatchedWorld, geometry, seed=3, steps=8)
