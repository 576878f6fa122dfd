"""Chunk cumsum in Triton's interpreter: values, and the bytes that must not change."""

from __future__ import annotations

import math

import pytest
import torch
from chunk_cases import (
    DTYPES,
    bounds_of,
    check_steps,
    guarded,
    make_steps,
    margins_are_untouched,
    surround,
)

from launchkit.kernels.ssd.chunk_cumsum import (
    _chunk_cumsum_fwd_kernel,
    chunk_cumsum,
    launch_chunk_cumsum,
)

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

ALL_CONFIGS = tuple(_chunk_cumsum_fwd_kernel.configs)
LENGTHS = (8, 3, 1, 7, 8)


def run(case, chunk_size=8, **options):
    return chunk_cumsum(case.dt, case.A, chunk_size, case.bounds, **options)


@pytest.mark.parametrize("limit", [(0.0, math.inf), (0.3, 1.5)], ids=str)
@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_steps_and_sums_match_the_reference(dtype, with_bias, softplus, limit):
    case = make_steps(LENGTHS, dtype=dtype)
    bias = case.bias.to(dtype) if with_bias else None
    options = {"dt_bias": bias, "dt_softplus": softplus, "dt_limit": limit}
    result = run(case, **options)
    assert [tensor.dtype for tensor in result] == [torch.float32] * 2
    check_steps(case, result, 8, **options)


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes_match_the_reference(seed):
    rng = torch.Generator().manual_seed(100 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    chunk_size = 2 ** pick(0, 7)
    lengths = [pick(0, chunk_size + 1) for _ in range(pick(1, 5))]
    case = make_steps(lengths, heads=pick(1, 20), dtype=DTYPES[seed % 3], seed=seed)
    options = {"dt_bias": case.bias, "dt_softplus": True}
    check_steps(case, run(case, chunk_size, **options), chunk_size, **options)


@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_gives_the_same_bits(monkeypatch, config):
    case = make_steps(LENGTHS, heads=5)
    expected = run(case, dt_softplus=True)
    monkeypatch.setattr(_chunk_cumsum_fwd_kernel, "configs", [config])
    for tensor, other in zip(run(case, dt_softplus=True), expected, strict=True):
        assert torch.equal(tensor, other)


def test_behind_a_short_chunk_steps_are_zero_and_sums_are_the_total():
    case = make_steps((3, 1, 8))
    dA_cumsum, steps = run(case, dt_bias=case.bias, dt_limit=(0.5, 9.0))
    for chunk, length in enumerate((3, 1, 8)):
        assert not steps[:, chunk, length:].any()
        total = dA_cumsum[:, chunk, length - 1 : length]
        assert torch.equal(dA_cumsum[:, chunk, length:], total.expand(-1, 8 - length))
        assert (steps[:, chunk, :length] >= 0.5).all()


def test_an_empty_chunk_has_neither_steps_nor_decay():
    case = make_steps((0, 4, 0))
    dA_cumsum, steps = run(case, dt_bias=case.bias, dt_softplus=True)
    for tensor in (dA_cumsum, steps):
        assert not tensor[:, [0, 2]].any()
        assert not tensor.isnan().any()


def test_many_one_token_sequences_match_the_reference():
    case = make_steps((1,) * 9)
    check_steps(case, run(case, 16, dt_softplus=True), 16, dt_softplus=True)


def test_softplus_is_exact_where_exponentials_overflow_and_where_they_vanish():
    values = [19.5, 20.0, 20.5, 30.0, 88.0, 89.0, 1e4, 3e38, 0.0, 1e-6, -1e-6]
    values += [-5.0, -12.0, -16.0, -17.0, -40.0, -80.0]
    case = make_steps((len(values),), heads=1)
    case.dt = surround(torch.tensor(values)[:, None])
    case.A = torch.tensor([-1e-38])
    check_steps(case, run(case, 32, dt_softplus=True), 32, dt_softplus=True)


def test_without_softplus_a_negative_step_is_cut_at_zero():
    case = make_steps((4,), high=-1.0)
    dA_cumsum, steps = run(case)
    assert not steps.any()
    assert not dA_cumsum.any()


def test_views_of_any_stride_are_read_in_place():
    case = make_steps(LENGTHS, heads=5)
    expected = run(case, dt_bias=case.bias)
    wide = torch.full((case.dt.shape[0], 23), torch.nan)
    transposed = case.dt.T.contiguous().T
    spread = torch.full((case.dt.shape[0], 10), torch.nan)[:, ::2]
    case.A = torch.full((10,), torch.nan)[::2].copy_(case.A)
    case.bias = torch.full((10,), torch.nan)[::2].copy_(case.bias)
    for view in (wide[:, 3:8].copy_(case.dt), transposed, spread.copy_(case.dt)):
        case.dt = view
        for tensor, other in zip(run(case, dt_bias=case.bias), expected, strict=True):
            assert torch.equal(tensor, other)


def test_one_bias_may_stand_for_all_heads():
    case = make_steps(LENGTHS)
    options = {"dt_bias": torch.tensor(0.25).expand(3)}
    check_steps(case, run(case, **options), 8, **options)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("decay", [-1e3, -1e30, -3e38])
def test_a_strong_decay_leaves_sums_finite_and_decays_right(decay):
    case = make_steps((8, 5), low=0.2)
    case.A[1] = decay
    dA_cumsum, steps = run(case)
    assert dA_cumsum.isfinite().all()
    between = dA_cumsum[1, :, :, None] - dA_cumsum[1, :, None, :]
    later = torch.ones(8, 8).tril(-1).bool() & (steps[1, :, :, None] > 0)
    assert later.any()
    assert not between.exp()[later].any()
    assert torch.equal(dA_cumsum[[0, 2]], run(make_steps((8, 5), low=0.2))[0][[0, 2]])


def test_one_huge_step_does_not_blur_the_decays_behind_it():
    case = make_steps((8,), heads=1, low=0.1)
    case.A[:] = -1.0
    case.dt[3] = 1e7
    dA_cumsum, steps = run(case)
    behind = dA_cumsum[0, 0, 7] - dA_cumsum[0, 0, 3]
    own = steps[0, 0, 4:].double().sum().item()
    assert behind.item() == pytest.approx(-own, abs=8 * 128 * 2.0**-24)


def test_a_step_that_is_not_a_number_stays_one_and_taints_no_other_chunk():
    case = make_steps((4, 4), heads=2)
    case.dt[case.bounds[0] + 1, 0] = torch.nan
    for softplus in (False, True):
        dA_cumsum, steps = run(case, 4, dt_softplus=softplus)
        assert steps.isnan().nonzero().tolist() == [[0, 0, 1]]
        assert dA_cumsum.isnan().nonzero().tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 3]]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_an_infinite_decay_makes_no_nan_behind_the_end_of_a_chunk():
    case = make_steps((3,), low=0.1)
    case.A[:] = -math.inf
    dA_cumsum, _ = run(case)
    assert torch.equal(dA_cumsum[0, 0], torch.tensor([-128.0, -256.0] + [-384.0] * 6))


def test_no_byte_around_the_outputs_changes():
    case = make_steps(LENGTHS, heads=5)
    inputs = [tensor.clone() for tensor in (case.dt, case.A, case.bias, case.bounds)]
    sums_bytes, sums = guarded((5, 5, 8))
    steps_bytes, steps = guarded((5, 5, 8))
    launch_chunk_cumsum(case.dt, case.A, case.bias, True, (0.0, 1.0), 8, case.bounds, sums, steps)
    options = {"dt_bias": case.bias, "dt_softplus": True, "dt_limit": (0.0, 1.0)}
    check_steps(case, (sums, steps), 8, **options)
    assert margins_are_untouched(sums_bytes)
    assert margins_are_untouched(steps_bytes)
    for tensor, copy in zip((case.dt, case.A, case.bias, case.bounds), inputs, strict=True):
        assert torch.equal(tensor.nan_to_num(7.0), copy.nan_to_num(7.0))


def test_no_chunk_and_no_head_launch_nothing():
    no_chunks = chunk_cumsum(torch.zeros(4, 3), torch.zeros(3), 8, bounds_of(()))
    no_heads = chunk_cumsum(torch.zeros(4, 0), torch.zeros(0), 8, bounds_of((2,)))
    assert [tensor.shape for tensor in no_chunks] == [(3, 0, 8)] * 2
    assert [tensor.shape for tensor in no_heads] == [(0, 1, 8)] * 2
