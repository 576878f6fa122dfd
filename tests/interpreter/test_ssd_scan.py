"""The whole scan in Triton's interpreter: its values, and what it writes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from ssd_cases import check, everything, make_problem, scan
from ssd_promises import *  # noqa: F403  the tests that a GPU runs too

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


@pytest.fixture
def place():
    return SimpleNamespace(device="cpu", interpreted=True, dtype=torch.float32)


# bf16 is multiplied wrongly here.
@pytest.fixture(params=[torch.float32, torch.float16], ids=str)
def dtype(request):
    return request.param


@pytest.mark.parametrize("seed", range(8))
def test_random_problems_match_the_reference(seed):
    rng = torch.Generator().manual_seed(300 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    groups = pick(1, 3)
    lengths = tuple(pick(0, 24) for _ in range(pick(1, 5)))
    problem = make_problem(
        lengths,
        heads=groups * pick(1, 3),
        headdim=pick(1, 20),
        dstate=pick(1, 40),
        groups=groups,
        chunk_size=2 ** pick(2, 6),
        seed=seed,
        **(everything(D="head") if seed % 2 else {"z": True}),
    )
    problem = replace(problem, computed=tuple(pick(0, 40) for _ in lengths))
    out, states = scan(problem, return_intermediate_states=True)
    check(problem, out, states=states, interpreted=True)
