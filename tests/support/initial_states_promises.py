"""What gathering initial states promises, in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``device``.
"""

from __future__ import annotations

import pytest
import torch
from ssd_cases import make_cache

from launchkit.kernels.initial_states import gather_initial_states

SLOTS, SIZES = 9, (3, 5, 17)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
INDEX_DTYPES = (torch.int32, torch.int64)
ROWS = (7, 0, 8, 7, 3)
MASK = (True, False, True, True, False)


def make_state(device, dtype=torch.float32, padding=64, seed=0):
    """Return a cache of random values in padded pages, NaN in between."""
    raw, state = make_cache(SLOTS, *SIZES, dtype, device, padding)
    raw.view(dtype).fill_(torch.nan)
    rng = torch.Generator().manual_seed(seed)
    state.copy_(torch.randn(SLOTS, *SIZES, generator=rng).to(dtype))
    return state


def make_indices(rows, device, dtype=torch.int64, stride=1, offset=0):
    """Return indices as an engine has them: part of a larger tensor of other numbers."""
    wide = torch.full((offset + len(rows) * stride,), 2**30, dtype=dtype, device=device)
    indices = wide[offset::stride]
    indices.copy_(torch.tensor(rows))
    return indices


def make_mask(mask, device, stride=1):
    wide = torch.zeros(len(mask) * stride, dtype=torch.bool, device=device)
    wide[::stride] = torch.tensor(mask, device=device)
    return wide[::stride]


def expected(state, rows, mask):
    """Return the states by walking the rows."""
    found = torch.zeros(len(rows), *SIZES, dtype=state.dtype)
    for seq, (row, present) in enumerate(zip(rows, mask, strict=True)):
        if present and row >= 0:
            found[seq] = state[row].cpu()
    return found


def check(state, rows, mask, indices, has_initial_state):
    result = gather_initial_states(state, indices, has_initial_state)
    assert result.is_contiguous()
    assert (result.dtype, result.device) == (state.dtype, state.device)
    assert torch.equal(result.cpu(), expected(state, rows, mask))


@pytest.mark.parametrize("index_dtype", INDEX_DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_are_gathered_from_padded_pages(device, dtype, index_dtype):
    state = make_state(device, dtype)
    check(state, ROWS, (True,) * 5, make_indices(ROWS, device, index_dtype), None)
    check(state, ROWS, MASK, make_indices(ROWS, device, index_dtype), make_mask(MASK, device))


@pytest.mark.parametrize("padding", [0, 1, 64])
@pytest.mark.parametrize("stride", [1, 3, 16])
def test_indices_and_flags_may_be_columns(device, stride, padding):
    state = make_state(device, padding=padding)
    for offset in (0, 1):
        indices = make_indices(ROWS, device, torch.int32, stride, offset)
        check(state, ROWS, MASK, indices, make_mask(MASK, device, stride))


@pytest.mark.parametrize("garbage", [-1, -(2**31), 2**31 - 1])
def test_a_masked_sequence_reads_no_slot(device, garbage):
    state = make_state(device)
    state[0] = torch.nan
    rows = [row if present else garbage for row, present in zip(ROWS, MASK, strict=True)]
    indices = make_indices(rows, device, torch.int32)
    check(state, rows, MASK, indices, make_mask(MASK, device))


def test_nan_in_slots_of_masked_sequences_stays_there(device):
    state = make_state(device)
    state[[0, 3]] = torch.nan
    result = gather_initial_states(state, make_indices(ROWS, device), make_mask(MASK, device))
    assert not result[[1, 4]].any()
    assert result.isfinite().all()


def test_a_negative_slot_stands_for_zeros(device):
    state, rows = make_state(device), (-1, 4, -7)
    check(state, rows, (True,) * 3, make_indices(rows, device), None)


def test_nan_of_a_slot_that_is_read_comes_along(device):
    state = make_state(device)
    state[7, 1, 2, 3] = torch.nan
    result = gather_initial_states(state, make_indices((7,), device))
    assert result.isnan().sum() == 1
    assert result[0, 1, 2, 3].isnan()


def test_no_sequence_gives_no_state(device):
    result = gather_initial_states(make_state(device), make_indices((), device))
    assert result.shape == (0, *SIZES)


def test_the_cache_stays_as_it_was(device):
    state = make_state(device)
    before = state.clone()
    gather_initial_states(state, make_indices(ROWS, device), make_mask(MASK, device))
    assert torch.equal(state, before)


@pytest.mark.parametrize("sizes", [(1,), (1023,), (1025,), (2, 1, 700)], ids=str)
def test_slots_of_other_shapes_are_gathered(device, sizes):
    state = torch.randn(6, *sizes, generator=torch.Generator().manual_seed(1)).to(device)
    indices = make_indices((5, 0, 5), device)
    assert torch.equal(gather_initial_states(state, indices), state[[5, 0, 5]])
