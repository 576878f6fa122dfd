"""The whole scan in Triton's interpreter: its values, and what it writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from chunk_cases import picker
from ssd_cases import check, everything, make_problem, scan
from ssd_promises import *  # noqa: F403  the tests that a GPU runs too

from launchkit.errors import UsageError


# bf16 is multiplied wrongly here.
@pytest.fixture(params=[torch.float32, torch.float16], ids=str)
def dtype(request):
    return request.param


@pytest.mark.parametrize("name", ["x", "B", "C"])
def test_bf16_products_are_refused_instead_of_multiplying_bits(name):
    problem = make_problem((5,), seed=1)
    problem = replace(problem, **{name: getattr(problem, name).bfloat16()})
    with pytest.raises(UsageError, match="bit patterns of bfloat16"):
        scan(problem)


@pytest.mark.parametrize("seed", range(8))
def test_random_problems_match_the_reference(seed):
    pick = picker(300 + seed)
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
