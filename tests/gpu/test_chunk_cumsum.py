"""Chunk cumsum on a GPU: values, and the bytes that must not change."""

from __future__ import annotations

import math

import pytest
import torch
from chunk_cases import (
    DTYPES,
    check_steps,
    guarded,
    make_steps,
    margins_are_untouched,
    surround,
)
from poison import poison_fresh_tensors

from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.chunk_cumsum import (
    _chunk_cumsum_fwd_kernel,
    chunk_cumsum,
    launch_chunk_cumsum,
)

ALL_CONFIGS = tuple(_chunk_cumsum_fwd_kernel.configs)
LENGTHS = (64, 3, 1, 63, 40)


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config, so that no test measures anything."""
    pin(monkeypatch, ALL_CONFIGS[0])
    poison_fresh_tensors(monkeypatch)


def pin(monkeypatch, config):
    monkeypatch.setattr(_chunk_cumsum_fwd_kernel, "configs", [config])


def make(lengths, heads=5, dtype=torch.float32, **kinds):
    return make_steps(lengths, heads, dtype, device="cuda", **kinds)


def run(case, chunk_size=64, **options):
    return chunk_cumsum(case.dt, case.A, chunk_size, case.bounds, **options)


@pytest.mark.parametrize("limit", [(0.0, math.inf), (0.3, 1.5)], ids=str)
@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_steps_and_sums_match_the_reference(dtype, with_bias, softplus, limit):
    case = make(LENGTHS, dtype=dtype)
    bias = case.bias.to(dtype) if with_bias else None
    options = {"dt_bias": bias, "dt_softplus": softplus, "dt_limit": limit}
    check_steps(case, run(case, **options), 64, **options)


@pytest.mark.parametrize("model", ["Nemotron-3-Nano", "Granite-4.0-h-micro"])
def test_a_real_layer_matches_the_reference(model):
    shape = MAMBA_SHAPES[model]
    lengths = (shape.chunk_size, shape.chunk_size, 17, 1, shape.chunk_size - 1)
    case = make(lengths, shape.nheads, torch.bfloat16)
    options = {"dt_bias": case.bias, "dt_softplus": True}
    check_steps(case, run(case, shape.chunk_size, **options), shape.chunk_size, **options)


@pytest.mark.parametrize("sizes", [(5, 64), (33, 16)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_matches_the_reference(monkeypatch, config, dtype, sizes):
    pin(monkeypatch, config)
    heads, chunk_size = sizes
    case = make((chunk_size, 5, 1, chunk_size - 1), heads, dtype)
    options = {"dt_bias": case.bias, "dt_softplus": True, "dt_limit": (0.1, 1.5)}
    check_steps(case, run(case, chunk_size, **options), chunk_size, **options)


@pytest.mark.parametrize("chunk_size", [1, 2, 16, 128, 256, 1024])
def test_every_chunk_size_matches_the_reference(chunk_size):
    case = make((chunk_size, 1, (chunk_size + 1) // 2))
    check_steps(case, run(case, chunk_size, dt_softplus=True), chunk_size, dt_softplus=True)


def test_behind_a_short_chunk_steps_are_zero_and_sums_are_the_total():
    case = make((3, 1, 64))
    dA_cumsum, steps = run(case, dt_bias=case.bias, dt_limit=(0.5, 9.0))
    for chunk, length in enumerate((3, 1, 64)):
        assert not steps[:, chunk, length:].any()
        total = dA_cumsum[:, chunk, length - 1 : length].expand(-1, 64 - length)
        torch.testing.assert_close(dA_cumsum[:, chunk, length:], total, rtol=1e-6, atol=0.0)


def test_many_one_token_sequences_match_the_reference():
    case = make((1,) * 300)
    check_steps(case, run(case, 16, dt_softplus=True), 16, dt_softplus=True)


def test_softplus_is_exact_where_exponentials_overflow_and_where_they_vanish():
    values = [19.5, 20.0, 20.5, 30.0, 88.0, 89.0, 1e4, 3e38, 0.0, 1e-6, -1e-6]
    values += [-5.0, -12.0, -16.0, -17.0, -40.0, -80.0]
    case = make((len(values),), heads=1)
    case.dt = surround(torch.tensor(values, device="cuda")[:, None])
    case.A = torch.tensor([-1e-38], device="cuda")
    check_steps(case, run(case, 32, dt_softplus=True), 32, dt_softplus=True)


def test_views_of_any_stride_and_alignment_are_read_in_place():
    case = make(LENGTHS)
    expected = run(case)
    wide = torch.full((case.dt.shape[0], 23), torch.nan, device="cuda")
    transposed = case.dt.T.contiguous().T
    spread = torch.full((case.dt.shape[0], 10), torch.nan, device="cuda")[:, ::2]
    for view in (wide[:, 3:8].copy_(case.dt), transposed, spread.copy_(case.dt)):
        case.dt = view
        check_steps(case, run(case), 64)
        assert torch.equal(run(case)[1], expected[1])


@pytest.mark.parametrize("decay", [-1e3, -1e30, -3e38, -math.inf])
def test_a_strong_decay_leaves_sums_finite_and_decays_right(decay):
    case = make((64, 5), low=0.2)
    case.A[1] = decay
    dA_cumsum, steps = run(case)
    assert dA_cumsum.isfinite().all()
    between = dA_cumsum[1, :, :, None] - dA_cumsum[1, :, None, :]
    later = torch.ones(64, 64, device="cuda").tril(-1).bool() & (steps[1, :, :, None] > 0)
    assert later.any()
    assert not between.exp()[later].any()


def test_a_step_that_is_not_a_number_stays_one_and_taints_no_other_chunk():
    case = make((4, 4), heads=2)
    case.dt[3, 0] = torch.nan
    for softplus in (False, True):
        dA_cumsum, steps = run(case, 4, dt_softplus=softplus)
        assert steps.isnan().nonzero().tolist() == [[0, 0, 1]]
        assert dA_cumsum.isnan().nonzero().tolist() == [[0, 0, 1], [0, 0, 2], [0, 0, 3]]


def test_a_token_beyond_two_to_the_31_elements_is_reached():
    case = make((2, 1), dtype=torch.float16)
    stride = 2**29 + 16
    case.dt = torch.empty(5 * stride, dtype=torch.float16, device="cuda").as_strided(
        (5, 5), (stride, 1)
    )
    case.dt.copy_(torch.rand(5, 5, device="cuda"))
    check_steps(case, run(case), 64)


@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_no_byte_around_the_outputs_changes(monkeypatch, config):
    pin(monkeypatch, config)
    case = make(LENGTHS)
    sums_bytes, sums = guarded((5, 5, 64), device="cuda")
    steps_bytes, steps = guarded((5, 5, 64), device="cuda")
    limits = (0.0, math.inf)
    launch_chunk_cumsum(case.dt, case.A, None, False, limits, 64, case.bounds, sums, steps)
    check_steps(case, (sums, steps), 64)
    assert margins_are_untouched(sums_bytes)
    assert margins_are_untouched(steps_bytes)
