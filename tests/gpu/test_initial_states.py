"""Gathering initial states on a GPU: the shared promises, and what only a GPU shows."""

from __future__ import annotations

import pytest
import torch
from initial_states_promises import *  # noqa: F403  the tests that the interpreter runs too

from launchkit.kernels.initial_states import gather_initial_states


@pytest.fixture
def device():
    return "cuda"


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
def test_slots_beyond_two_to_the_31_elements_are_reached(index_dtype):
    page = 2**27 + 3
    rows = torch.zeros(17 * page + 64, dtype=torch.bfloat16, device="cuda")
    state = rows.as_strided((18, 4, 16), (page, 16, 1))
    state[17] = torch.randn(4, 16, device="cuda")
    indices = torch.tensor([17, 2], dtype=index_dtype, device="cuda")
    result = gather_initial_states(state, indices)
    assert torch.equal(result[0], state[17])
    assert not result[1].any()


def test_real_states_have_the_bits_of_torch():
    state = torch.randn(40, 64, 64, 128, device="cuda").bfloat16()
    table = torch.randint(0, 40, (32, 7), device="cuda", dtype=torch.int32)
    mask = torch.rand(32, device="cuda") < 0.5
    state[~torch.isin(torch.arange(40, device="cuda"), table[mask, 3])] = torch.nan
    wanted = torch.where(mask[:, None, None, None], state[table[:, 3]], 0)
    assert torch.equal(gather_initial_states(state, table[:, 3], mask), wanted)
