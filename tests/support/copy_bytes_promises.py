"""What copies between addresses promise, run in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``place``: the ``device``, whether
kernels are ``interpreted``, and how many ``repeats`` look for races.
"""

from __future__ import annotations

import pytest
import torch
from copy_callers import memcpy_caller
from copy_worlds import random_bytes

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.memcpy import batch_memcpy, batch_memcpy_kernel
from launchkit.kernels.state_copy.reference import memmove_reference

GUARD = 32
SMALL_SIZES = (0, 1, 7, 8, 9, 15, 16, 17)
PHASES = [(src, dst) for src in range(8) for dst in range(8)]


def launch_copies(src, dst, sizes, tiles, block):
    """Copy between lists of addresses with the kernel itself."""
    device = sizes.device
    grid = (len(sizes), tiles)
    addresses = [torch.tensor(each, dtype=torch.int64, device=device) for each in (src, dst)]
    batch_memcpy_kernel[grid](*addresses, sizes, BLOCK_SIZE=block, NUM_TILES=tiles)


def check_copies(place, copies, tiles, block):
    """Carry out (source phase, destination phase, size) each in a strip of its own."""
    pitch = 2 * GUARD + max(size for *_, size in copies) + 8
    pitch += -pitch % 16
    src = random_bytes(pitch * len(copies), 1).to(place.device)
    before = random_bytes(pitch * len(copies), 2).to(place.device)
    expected = before.clone()
    starts = []
    for number, (src_phase, dst_phase, size) in enumerate(copies):
        read, written = (number * pitch + GUARD + phase for phase in (src_phase, dst_phase))
        expected[written : written + size] = src[read : read + size]
        starts.append((read, written))
    sizes = torch.tensor([size for *_, size in copies], dtype=torch.int32, device=place.device)
    for _ in range(place.repeats):
        dst = before.clone()
        launch_copies(
            [src.data_ptr() + read for read, _ in starts],
            [dst.data_ptr() + written for _, written in starts],
            sizes,
            tiles,
            block,
        )
        assert torch.equal(dst, expected)


@pytest.mark.parametrize("tiles", [1, 3])
def test_every_pair_of_phases_copies_the_bytes_and_no_other(place, tiles):
    chosen = PHASES if tiles == 1 else PHASES[::5]
    sizes = [SMALL_SIZES[n % len(SMALL_SIZES)] + 8 * (n % 3) for n in range(len(chosen))]
    check_copies(
        place, [(*pair, size) for pair, size in zip(chosen, sizes, strict=True)], tiles, 16
    )


@pytest.mark.parametrize(("src", "dst"), [(0, 0), (8, 0), (3, 3), (11, 3), (1, 2)])
def test_every_size_up_to_two_words_is_copied(place, src, dst):
    check_copies(place, [(src, dst, size) for size in range(18)], 1, 16)


@pytest.mark.parametrize("tiles", [1, 8, 16])
def test_sizes_around_a_whole_block_of_every_tile_are_copied(place, tiles):
    whole = 8 * 16 * tiles
    sizes = (whole - 1, whole, whole + 1, 3 * whole + 8)
    copies = [(phase, phase, size) for phase, size in zip((0, 5, 8, 0), sizes, strict=True)]
    check_copies(place, [*copies, (1, 4, whole + 3)], tiles, 16)


def test_sizes_around_sixteen_tiles_of_real_blocks_are_copied(place):
    whole = 8 * 1024 * 16
    check_copies(place, [(0, 0, whole - 1), (0, 0, whole), (0, 0, whole + 1)], 16, 1024)


OVERLAPS = [
    (distance, size)
    for distance in (1, 5, 8, 16, 64, 200)
    for size in (1, 7, 17, 130, 1000)
    if size > distance or size == 17
]


@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize("down", [True, False], ids=["down", "up"])
def test_ranges_that_overlap_are_moved_as_by_memmove(place, down, tiles):
    cases = OVERLAPS if tiles == 1 else OVERLAPS[::4]
    pitch = 2048
    before = random_bytes(pitch * len(cases), 3)
    expected = bytearray(before.numpy().tobytes())
    moves = []
    for number, (distance, size) in enumerate(cases):
        low = number * pitch + 64 + number % 8
        src, dst = (low + distance, low) if down else (low, low + distance)
        memmove_reference(expected, src, dst, size)
        moves.append((src, dst, size))
    wanted = torch.frombuffer(expected, dtype=torch.uint8).to(place.device)
    sizes = torch.tensor([size for *_, size in moves], dtype=torch.int32, device=place.device)
    for _ in range(place.repeats):
        memory = before.to(place.device, copy=True)
        start = memory.data_ptr()
        launch_copies(
            [start + src for src, *_ in moves], [start + dst for _, dst, _ in moves], sizes,
            tiles, 16,
        )  # fmt: skip
        assert torch.equal(memory, wanted)


def test_a_copy_onto_itself_changes_nothing(place):
    memory = random_bytes(100, 4).to(place.device)
    before = memory.clone()
    address = memory.data_ptr() + 3
    launch_copies([address], [address], torch.tensor([90], device=place.device), 2, 16)
    assert torch.equal(memory, before)


@pytest.mark.parametrize(("src_at", "dst_at"), [(0, 16), (3, 4)])
def test_a_kernel_of_somebody_else_copies_by_tiles(place, src_at, dst_at):
    src, dst = (random_bytes(900, seed).to(place.device) for seed in (6, 7))
    expected = dst.clone()
    expected[dst_at : dst_at + 700] = src[src_at : src_at + 700]
    memcpy_caller[(3,)](src[src_at:], dst[dst_at:], 700, TILES=3)
    assert torch.equal(dst, expected)


@pytest.mark.parametrize("dtype", [torch.uint64, torch.int64], ids=str)
def test_a_batch_takes_addresses_signed_or_not(place, dtype):
    src = random_bytes(600, 5).to(place.device)
    dst = torch.zeros(600, dtype=torch.uint8, device=place.device)
    expected = dst.clone()
    reads, writes, sizes = (0, 101, 300), (300, 7, 100), (250, 40, 0)
    for read, written, size in zip(reads, writes, sizes, strict=True):
        expected[written : written + size] = src[read : read + size]
    batch_memcpy(
        torch.tensor([src.data_ptr() + read for read in reads]).view(dtype).to(place.device),
        torch.tensor([dst.data_ptr() + place_ for place_ in writes]).view(dtype).to(place.device),
        torch.tensor(sizes, dtype=torch.int32, device=place.device),
    )
    assert torch.equal(dst, expected)


def test_an_empty_batch_launches_nothing(place, monkeypatch):
    from launchkit.kernels.state_copy import memcpy

    monkeypatch.setattr(memcpy, "launch", None)
    none = torch.empty(0, dtype=torch.int64, device=place.device)
    batch_memcpy(none, none, none.int())


NUMBERS = torch.arange(4)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("sizes", lambda numbers: numbers[:3].int(), "sizes has shape"),
        ("sizes", lambda numbers: numbers[:2].float(), "sizes is float32"),
        ("dst_ptrs", lambda numbers: numbers[:2].int(), "dst_ptrs is int32"),
        ("src_ptrs", lambda numbers: numbers[::2], "src_ptrs is strided"),
        ("src_ptrs", lambda numbers: numbers.tolist(), "src_ptrs is a list"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(place, name, value, named):
    numbers = NUMBERS.to(place.device)
    fitting = {"src_ptrs": numbers[:2], "dst_ptrs": numbers[:2], "sizes": numbers[:2].int()}
    with pytest.raises(UsageError, match=named):
        batch_memcpy(**{**fitting, name: value(numbers)})
