"""Chunk scan on a GPU: values, and the bytes that must not change."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import BEFORE, BEHIND, DTYPES, GUARD_BYTE
from output_cases import check_output, fresh_output, make_scan, scan_arguments
from poison import poison_fresh_tensors

from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel, bmm_chunk
from launchkit.kernels.ssd.chunk_scan import _chunk_scan_fwd_kernel, chunk_scan
from launchkit.kernels.ssd.tiles import drop_miscompiled

ALL_CONFIGS = tuple(_chunk_scan_fwd_kernel.configs)
KEPT = tuple(drop_miscompiled(ALL_CONFIGS, {}))
LENGTHS, SEQUENCES = (64, 5, 64, 1, 63), (0, 0, 1, 2, 2)


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config, so that no test measures anything."""
    pin(monkeypatch, ALL_CONFIGS[0])
    poison_fresh_tensors(monkeypatch)


def pin(monkeypatch, config):
    monkeypatch.setattr(_chunk_scan_fwd_kernel, "configs", [config])


def make(lengths=LENGTHS, sequences=SEQUENCES, chunk_size=64, **options):
    options = {"decay": 0.1, **options}
    return make_scan(lengths, sequences, chunk_size, device="cuda", **options)


def run(case, out=None):
    out = fresh_output(case) if out is None else out
    chunk_scan(*scan_arguments(case, out))
    return out


def check(case, out=None):
    """Run, and compare with the reference; NaN must stay where no token is, and only there."""
    check_output(case, run(case, out))


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("sizes", [(5, 16), (80, 16), (5, 256), (80, 256), (64, 128)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_match_the_reference(dtype, sizes, groups, initial):
    headdim, dstate = sizes
    sizes = {"heads": 8, "headdim": headdim, "dstate": dstate, "groups": groups}
    check(make(**sizes, dtype=dtype, initial=initial))


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("z", [False, True])
@pytest.mark.parametrize("D", [None, "head", "channel"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_skip_and_gate_match_the_reference(dtype, D, z, initial):
    check(make(dtype=dtype, D=D, z=z, initial=initial))


@pytest.mark.parametrize("state_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", ["Nemotron-3-Nano", "Granite-4.0-h-micro"])
def test_a_real_layer_matches_the_reference(model, state_dtype):
    shape = MAMBA_SHAPES[model]
    sizes = {"heads": shape.nheads, "headdim": shape.headdim, "dstate": shape.dstate}
    lengths = (shape.chunk_size, 17, shape.chunk_size - 1)
    kinds = {"dtype": torch.bfloat16, "state_dtype": state_dtype, "D": "head", "initial": True}
    case = make(lengths, (0, 0, 1), shape.chunk_size, groups=shape.ngroups, **sizes, **kinds)
    check(case)


@pytest.mark.parametrize("sizes", [(64, 128, 128), (80, 160, 64)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("config", KEPT, ids=str)
def test_every_kept_config_matches_the_reference(monkeypatch, config, dtype, sizes):
    pin(monkeypatch, config)
    headdim, dstate, chunk_size = sizes
    kinds = {"dtype": dtype, "D": "channel", "z": True, "initial": torch.float32}
    lengths = (chunk_size, 3, chunk_size - 9, chunk_size)
    case = make(lengths, (0, 0, 1, 1), chunk_size, headdim=headdim, dstate=dstate, **kinds)
    first = run(case)
    check_output(case, first)
    live = slice(BEFORE, int(case.bounds[-1]))
    for _ in range(5):
        assert torch.equal(run(case)[live], first[live])


@pytest.mark.parametrize("config", KEPT, ids=str)
def test_every_kept_config_is_right_without_initial_states_and_gate(monkeypatch, config):
    pin(monkeypatch, config)
    check(make((128, 128, 57), (0, 1, 1), 128, headdim=64, dstate=128, dtype=torch.bfloat16))


@pytest.mark.parametrize("dstate", [16, 160])
@pytest.mark.parametrize("initial", DTYPES, ids=str)
@pytest.mark.parametrize("state_dtype", DTYPES, ids=str)
def test_states_of_any_dtype_are_entered(state_dtype, initial, dstate):
    kinds = {"dtype": torch.bfloat16, "state_dtype": state_dtype, "initial": initial}
    check(make(dstate=dstate, **kinds))


@pytest.mark.parametrize("dstate", [1, 17, 33, 65, 100, 129])
def test_a_state_dimension_that_is_no_power_of_two_is_read_right(dstate):
    check(make(dstate=dstate, dtype=torch.bfloat16, initial=True))


@pytest.mark.parametrize("chunk_size", [1, 2, 16, 256, 1024])
def test_every_chunk_size_matches_the_reference(chunk_size):
    lengths = (chunk_size, 1, (chunk_size + 1) // 2)
    check(make(lengths, (0, 0, 1), chunk_size, dtype=torch.float16, initial=True))


def test_many_one_token_sequences_match_the_reference():
    case = make((1,) * 300, tuple(range(300)), 16, dtype=torch.bfloat16, initial=True)
    check(case)


def test_it_takes_what_bmm_chunk_returns(monkeypatch):
    monkeypatch.setattr(_bmm_chunk_fwd_kernel, "configs", _bmm_chunk_fwd_kernel.configs[:1])
    case = make(dtype=torch.bfloat16)
    B = torch.rand_like(case.C)
    case.CB = bmm_chunk(case.C, B, 64, case.bounds)
    check(case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("out_dtype", DTYPES, ids=str)
def test_the_output_may_have_another_dtype(dtype, out_dtype):
    case = make(dtype=dtype)
    check(case, fresh_output(case, out_dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_of_any_stride_and_alignment_are_read_in_place(dtype):
    case = make(dtype=dtype, D="channel", z=True, initial=True)
    options = {"dtype": dtype, "device": "cuda"}
    row = torch.full((case.x.shape[0], 7 + 20 + 20 + 32 + 5), torch.nan, **options)
    case.x = row[:, 7:27].view(-1, 4, 5).copy_(case.x)
    case.z = row[:, 27:47].view(-1, 4, 5).copy_(case.z)
    case.C = row[:, 47:79].view(-1, 2, 16).copy_(case.C)
    case.D = case.D.T.contiguous().T
    case.initial = case.initial.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0)
    check(case)
    for name in ("x", "z", "C"):
        tensor = getattr(case, name)
        setattr(case, name, tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0))
    check(case)


@pytest.mark.parametrize("config", KEPT, ids=str)
@pytest.mark.parametrize("step", [1, 3])
def test_a_view_as_output_leaves_all_other_bytes(monkeypatch, config, step):
    pin(monkeypatch, config)
    case = make(dtype=torch.bfloat16)
    total, heads, headdim = case.x.shape
    width = heads * headdim * 3
    raw = torch.full((total, 2 * width), GUARD_BYTE, dtype=torch.uint8, device="cuda")
    wide = raw.view(torch.bfloat16).view(total, heads, 3 * headdim)
    out = wide[..., 1 : 1 + step * headdim : step]
    run(case, out)
    live = slice(BEFORE, int(case.bounds[-1]))
    compared = fresh_output(case)
    compared[live] = out[live]
    check_output(case, compared)
    out[live] = torch.full((2,), GUARD_BYTE, dtype=torch.uint8, device="cuda").view(torch.bfloat16)
    assert (raw == GUARD_BYTE).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("decay", [1e3, 1e10, 1e30])
def test_a_strong_decay_makes_nothing_infinite(decay, dtype):
    check(make(decay=decay, initial=True, dtype=dtype))


def test_a_sum_rounded_below_a_later_one_does_not_grow_what_it_weighs():
    case = make(decay=1e6, dtype=torch.bfloat16)
    case.dA[:, 0, 3] = case.dA[:, 0, 4] - 200.0
    out = run(case)
    assert out[BEFORE : int(case.bounds[-1])].isfinite().all()
    check_output(case, out)


def test_a_value_that_is_not_a_number_taints_its_own_channel_and_chunk_only():
    case = make((64, 64), (0, 0), heads=2, groups=1, dtype=torch.bfloat16)
    token = int(case.bounds[1]) + 35
    case.x[token, 1, 2] = torch.nan
    out = run(case)
    assert out[token : int(case.bounds[2]), 1, 2].isnan().all()
    out[int(case.bounds[1]) : int(case.bounds[2]), 1, 2] = 0.0
    assert not out[BEFORE : int(case.bounds[-1])].isnan().any()


def test_a_token_beyond_two_to_the_31_elements_is_reached():
    case = make((33, 2), (0, 0), dtype=torch.bfloat16, z=True)
    out = fresh_output(case)
    total, stride = BEFORE + 35 + BEHIND, 2**26 + 16
    raw = torch.empty(total * stride, dtype=torch.bfloat16, device="cuda")
    views = {}
    for index, (name, tensor) in enumerate({**vars(case), "out": out}.items()):
        if name in ("x", "C", "z", "out"):
            view = raw[index * 2**20 :].as_strided(tensor.shape, (stride, tensor.stride(1), 1))
            views[name] = view.copy_(tensor)
    case.x, case.C, case.z = (views[name] for name in ("x", "C", "z"))
    check(case, views["out"])


def test_states_beyond_two_to_the_31_elements_are_reached():
    nchunks, rows = 2**14 + 2, 2**17
    case = make((1,) * nchunks, (0,) * nchunks, 1, heads=1, headdim=64, dstate=16, groups=1)
    states = torch.empty(nchunks, 1, rows // 1024, 1024, dtype=torch.float16, device="cuda")
    x, C = torch.zeros(2, 1, 128, device="cuda"), torch.rand(2, 1, 1024, device="cuda")
    bounds = torch.zeros(nchunks + 1, dtype=torch.int32, device="cuda")
    bounds[-2:] = torch.tensor([1, 2])
    states[-2] = torch.rand(128, 1024, device="cuda")
    out = torch.full((2, 1, 128), torch.nan, device="cuda")
    chunk_scan(case.CB, x, case.dt, case.dA, C, states, bounds, case.seq_idx, out)
    decay = case.dA[0, -1, 0].double().exp()
    expected = decay * (states[-2, 0].double() @ C[1, 0].double())
    torch.testing.assert_close(out[1, 0].double(), expected, rtol=2.0**-9, atol=0.0)
