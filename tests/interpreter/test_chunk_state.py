"""Chunk state in Triton's interpreter: values, and the bytes that must not change.

bf16 is for a GPU: the interpreter multiplies its bits, not its values.
"""

from __future__ import annotations

import pytest
import torch
from chunk_cases import bounds_of, check_states, guarded, make_chunks, margins_are_untouched

from launchkit.kernels.ssd.chunk_cumsum import chunk_cumsum
from launchkit.kernels.ssd.chunk_state import (
    _chunk_state_fwd_kernel,
    chunk_state,
    launch_chunk_state,
)
from launchkit.kernels.ssd.reference import chunk_state_reference

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

ALL_CONFIGS = tuple(_chunk_state_fwd_kernel.configs)
ROUNDOFF = {torch.float32: 0.0, torch.float16: 2.0**-11}
LENGTHS = (16, 5, 1, 15)


def run(case):
    return chunk_state(case.x, case.B, case.dt, case.dA, case.bounds)


def check(case, states):
    check_states(case, states, ROUNDOFF[case.x.dtype])


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dtype", ROUNDOFF, ids=str)
def test_states_match_the_reference(dtype, groups):
    case = make_chunks(LENGTHS, groups=groups, dtype=dtype)
    states = run(case)
    assert states.dtype == torch.float32
    assert states.shape == (4, 4, 5, 16)
    check(case, states)


@pytest.mark.parametrize(("headdim", "dstate"), [(80, 16), (5, 256), (64, 128), (1, 1)])
def test_every_size_of_a_state_matches_the_reference(headdim, dstate):
    case = make_chunks((7, 2), heads=2, headdim=headdim, dstate=dstate, dtype=torch.float16)
    check(case, run(case))


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes_match_the_reference(seed):
    rng = torch.Generator().manual_seed(200 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    chunk_size = 2 ** pick(0, 7)
    lengths = [pick(0, min(chunk_size, 40) + 1) for _ in range(pick(1, 4))]
    groups = pick(1, 3)
    sizes = {"heads": groups * pick(1, 3), "headdim": pick(1, 90), "dstate": pick(1, 140)}
    dtype = (torch.float32, torch.float16)[seed % 2]
    case = make_chunks(lengths, chunk_size, groups=groups, dtype=dtype, seed=seed, **sizes)
    check(case, run(case))


@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_matches_the_reference(monkeypatch, config):
    monkeypatch.setattr(_chunk_state_fwd_kernel, "configs", [config])
    case = make_chunks((67, 3), 128, heads=2, headdim=72, dstate=130, dtype=torch.float16)
    check(case, run(case))


def test_it_takes_what_chunk_cumsum_returns():
    case = make_chunks((16, 3), groups=1)
    steps = torch.rand(case.x.shape[0], 4)
    case.dA, case.dt = chunk_cumsum(steps, -torch.rand(4), 16, case.bounds)
    check(case, run(case))


def test_the_total_of_a_short_chunk_is_read_at_the_last_position():
    case = make_chunks((3, 16))
    case.dA[:, 0, -1] -= 1.0
    check(case, run(case))


def test_an_empty_chunk_leaves_no_state():
    case = make_chunks((0, 6, 0))
    states = run(case)
    assert not states[[0, 2]].any()
    check(case, states)


def test_many_one_token_sequences_match_the_reference():
    case = make_chunks((1,) * 9)
    check(case, run(case))


def test_views_of_any_stride_are_read_in_place():
    case = make_chunks(LENGTHS)
    expected = run(case)
    row = torch.full((case.x.shape[0], 7 + 20 + 9 + 32), torch.nan)
    x = row[:, 7:27].view(-1, 4, 5).copy_(case.x)
    B = row[:, 36:].view(-1, 2, 16).copy_(case.B)
    transposed = [tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0) for tensor in (x, B)]
    spread = [torch.full((*t.shape, 2), torch.nan)[..., 1].copy_(t) for t in (x, B)]
    for case.x, case.B in ((x, B), transposed, spread):
        assert torch.equal(run(case), expected)


def test_one_x_or_b_may_stand_for_all_tokens():
    case = make_chunks(LENGTHS)
    case.x = case.x[2:3].expand(case.x.shape)
    case.B = case.B[2:3, :, :1].expand(case.B.shape)
    check(case, run(case))


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float16), (torch.float16, torch.float32)])
def test_x_and_b_of_different_dtypes_are_multiplied_in_that_of_x(dtypes):
    case = make_chunks(LENGTHS, dtype=torch.float16)
    case.x, case.B = case.x.to(dtypes[0]), case.B.to(dtypes[1])
    check(case, run(case))


def test_a_sum_rounded_below_the_total_does_not_grow_the_state():
    case = make_chunks((16,))
    case.dA = case.dA * 1e6
    case.dA[..., 14] = case.dA[..., 15] - 200.0
    states = run(case)
    assert states.isfinite().all()
    check(case, states)


def test_the_strongest_decay_leaves_only_the_last_token():
    case = make_chunks((16,))
    case.dA = torch.linspace(0.0, -3e38, 16).expand(4, 1, 16).contiguous()
    only = torch.zeros_like(case.dt)
    only[..., -1] = case.dt[..., -1]
    states = run(case)
    check(case, states)
    expected = chunk_state_reference(case.x, case.B, only, case.dA, case.bounds)
    torch.testing.assert_close(states.double(), expected, rtol=1e-5, atol=1e-6)


def test_a_value_that_is_not_a_number_taints_its_own_row_and_chunk_only():
    case = make_chunks((4, 4), heads=2, groups=1)
    case.x[case.bounds[1] + 2, 1, 3] = torch.nan
    states = run(case)
    assert states[1, 1, 3].isnan().all()
    states[1, 1, 3] = 0.0
    assert not states.isnan().any()


def test_no_byte_around_the_output_changes():
    case = make_chunks(LENGTHS)
    inputs = (case.x, case.B, case.dt, case.dA, case.bounds)
    copies = [tensor.clone() for tensor in inputs]
    raw, states = guarded((4, 4, 5, 16))
    launch_chunk_state(*inputs, states)
    check(case, states)
    assert margins_are_untouched(raw)
    for tensor, copy in zip(inputs, copies, strict=True):
        assert torch.equal(tensor.nan_to_num(7.0), copy.nan_to_num(7.0))


def test_no_chunk_and_no_state_launch_nothing():
    none = torch.zeros(4, 0, 16)
    x, B = torch.zeros(3, 4, 5), torch.zeros(3, 2, 16)
    assert chunk_state(x, B, none, none, bounds_of(())).shape == (0, 4, 5, 16)
    some = torch.zeros(4, 1, 16)
    assert chunk_state(x[..., :0], B, some, some, bounds_of((1,))).shape == (1, 4, 0, 16)
