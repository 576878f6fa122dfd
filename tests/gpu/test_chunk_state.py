"""Chunk state on a GPU: values, and the bytes that must not change."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import (
    BEFORE,
    BEHIND,
    DTYPES,
    check_states,
    guarded,
    make_chunks,
    margins_are_untouched,
)
from poison import poison_fresh_tensors

from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.chunk_cumsum import _chunk_cumsum_fwd_kernel, chunk_cumsum
from launchkit.kernels.ssd.chunk_state import (
    _chunk_state_fwd_kernel,
    chunk_state,
    launch_chunk_state,
)

ALL_CONFIGS = tuple(_chunk_state_fwd_kernel.configs)
LENGTHS = (64, 5, 1, 63)

# Of fp32 the tensor cores keep 10 bits of both operands, cut off; of the others B is rounded.
ROUNDOFF = {torch.float32: 2 * 2.0**-10, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config, so that no test measures anything."""
    pin(monkeypatch, ALL_CONFIGS[0])
    poison_fresh_tensors(monkeypatch)


def pin(monkeypatch, config):
    monkeypatch.setattr(_chunk_state_fwd_kernel, "configs", [config])


def make(lengths, chunk_size=64, **sizes):
    return make_chunks(lengths, chunk_size, device="cuda", **sizes)


def run(case):
    return chunk_state(case.x, case.B, case.dt, case.dA, case.bounds)


def check(case, states):
    check_states(case, states, ROUNDOFF[case.x.dtype])


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("sizes", [(5, 16), (80, 16), (64, 256), (80, 128)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_match_the_reference(dtype, sizes, groups):
    headdim, dstate = sizes
    case = make(LENGTHS, heads=8, headdim=headdim, dstate=dstate, groups=groups, dtype=dtype)
    check(case, run(case))


@pytest.mark.parametrize("model", ["Nemotron-3-Nano", "Granite-4.0-h-micro"])
def test_a_real_layer_matches_the_reference(model):
    shape = MAMBA_SHAPES[model]
    sizes = {"heads": shape.nheads, "headdim": shape.headdim, "dstate": shape.dstate}
    lengths = (shape.chunk_size, 17, shape.chunk_size - 1)
    groups, dtype = shape.ngroups, torch.bfloat16
    case = make(lengths, shape.chunk_size, groups=groups, dtype=dtype, decay=0.3, **sizes)
    check(case, run(case))


@pytest.mark.parametrize("sizes", [(64, 128), (72, 40)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_matches_the_reference(monkeypatch, config, dtype, sizes):
    pin(monkeypatch, config)
    headdim, dstate = sizes
    case = make((128, 3, 70), 128, headdim=headdim, dstate=dstate, dtype=dtype, decay=0.3)
    first = run(case)
    check(case, first)
    for _ in range(5):
        assert torch.equal(run(case), first)


@pytest.mark.parametrize("chunk_size", [1, 2, 16, 256, 1024])
def test_every_chunk_size_matches_the_reference(chunk_size):
    case = make((chunk_size, 1, (chunk_size + 1) // 2), chunk_size, dtype=torch.float16)
    check(case, run(case))


def test_it_takes_what_chunk_cumsum_returns(monkeypatch):
    monkeypatch.setattr(_chunk_cumsum_fwd_kernel, "configs", _chunk_cumsum_fwd_kernel.configs[:1])
    case = make(LENGTHS, dtype=torch.bfloat16)
    steps = torch.rand(case.x.shape[0], 4, device="cuda")
    A = -torch.rand(4, device="cuda")
    case.dA, case.dt = chunk_cumsum(steps, A, 64, case.bounds)
    check(case, run(case))


def test_an_empty_chunk_leaves_no_state():
    case = make((0, 6, 0), dtype=torch.bfloat16)
    states = run(case)
    assert not states[[0, 2]].any()
    check(case, states)


def test_many_one_token_sequences_match_the_reference():
    case = make((1,) * 300, 16, dtype=torch.bfloat16)
    check(case, run(case))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_of_any_stride_and_alignment_are_read_in_place(dtype):
    case = make(LENGTHS, dtype=dtype)
    row = torch.full((case.x.shape[0], 7 + 20 + 9 + 32), torch.nan, dtype=dtype, device="cuda")
    x = row[:, 7:27].view(-1, 4, 5).copy_(case.x)
    B = row[:, 36:].view(-1, 2, 16).copy_(case.B)
    transposed = [tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0) for tensor in (x, B)]
    spread = [tensor.new_full((*tensor.shape, 2), torch.nan)[..., 1] for tensor in (x, B)]
    for view, tensor in zip(spread, (x, B), strict=True):
        view.copy_(tensor)
    for case.x, case.B in ((x, B), transposed, spread):
        check(case, run(case))


@pytest.mark.parametrize("other", [torch.float32, torch.bfloat16], ids=str)
def test_x_and_b_of_different_dtypes_are_multiplied_in_that_of_x(other):
    case = make(LENGTHS, dtype=torch.float16)
    case.B = case.B.to(other)
    check(case, run(case))


def test_a_sum_rounded_below_the_total_does_not_grow_the_state():
    case = make((64,), dtype=torch.bfloat16)
    case.dA = case.dA * 1e6
    case.dA[..., 62] = case.dA[..., 63] - 200.0
    states = run(case)
    assert states.isfinite().all()
    check(case, states)


def test_the_strongest_decay_makes_nothing_infinite():
    case = make((64,), dtype=torch.bfloat16)
    sums = torch.linspace(0.0, -3e38, 64, device="cuda")
    case.dA = sums.expand(4, 1, 64).contiguous()
    states = run(case)
    assert states.isfinite().all()
    check(case, states)


def test_a_value_that_is_not_a_number_taints_its_own_row_and_chunk_only():
    case = make((4, 4), heads=2, groups=1, dtype=torch.bfloat16)
    case.x[case.bounds[1] + 2, 1, 3] = torch.nan
    states = run(case)
    assert states[1, 1, 3].isnan().all()
    states[1, 1, 3] = 0.0
    assert not states.isnan().any()


def test_a_token_beyond_two_to_the_31_elements_is_reached():
    case = make((33, 2), dtype=torch.bfloat16)
    total, stride = BEFORE + 35 + BEHIND, 2**26 + 16
    raw = torch.empty(total * stride, dtype=torch.bfloat16, device="cuda")
    for name, offset in (("x", 0), ("B", 2**20)):
        tensor = getattr(case, name)
        _, *sizes = tensor.shape
        strides = (stride, tensor.stride(1), 1)
        view = raw[offset:].as_strided((total, *sizes), strides)
        setattr(case, name, view.copy_(tensor))
    check(case, run(case))


@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_no_byte_around_the_output_changes(monkeypatch, config):
    pin(monkeypatch, config)
    case = make(LENGTHS, dtype=torch.bfloat16)
    raw, states = guarded((4, 4, 5, 16), device="cuda")
    launch_chunk_state(case.x, case.B, case.dt, case.dA, case.bounds, states)
    check(case, states)
    assert margins_are_untouched(raw)
