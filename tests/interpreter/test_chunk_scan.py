"""Chunk scan in Triton's interpreter: values, and the bytes that must not change."""

from __future__ import annotations

import pytest
import torch
import triton
from chunk_cases import BEFORE, GUARD_BYTE
from output_cases import check_output, expected_output, fresh_output, make_scan, scan_arguments

from launchkit.kernels.ssd.chunk_scan import _chunk_scan_fwd_kernel, chunk_scan

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

# The interpreter multiplies bf16 wrongly; that is tested on GPUs.
DTYPES = (torch.float32, torch.float16)
LENGTHS, SEQUENCES = (16, 5, 16, 1, 15), (0, 0, 1, 2, 2)


def make(lengths=LENGTHS, sequences=SEQUENCES, **options):
    return make_scan(lengths, sequences, **options)


def run(case, out=None):
    out = fresh_output(case) if out is None else out
    assert chunk_scan(*scan_arguments(case, out)) is None
    return out


def check(case, out=None):
    """Run, and compare with the reference; NaN must stay where no token is, and only there."""
    check_output(case, run(case, out), exact_fp32=True)


def tiles(monkeypatch, m=16, n=16, k=16):
    config = triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k})
    monkeypatch.setattr(_chunk_scan_fwd_kernel, "configs", [config])


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("z", [False, True])
@pytest.mark.parametrize("D", [None, "head", "channel"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_match_the_reference(dtype, D, z, initial):
    check(make(dtype=dtype, D=D, z=z, initial=initial))


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("sizes", [(5, 16), (80, 16), (5, 256), (5, 1)], ids=str)
def test_every_width_matches_the_reference(sizes, groups, initial):
    headdim, dstate = sizes
    case = make(headdim=headdim, dstate=dstate, groups=groups, initial=initial, D="channel")
    check(case)


@pytest.mark.parametrize("dstate", [17, 33, 65, 100, 129])
def test_a_state_dimension_that_is_no_power_of_two_is_read_right(dstate):
    check(make((8, 3), (0, 0), chunk_size=8, heads=2, dstate=dstate))


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes_match_the_reference(monkeypatch, seed):
    rng = torch.Generator().manual_seed(100 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    tiles(monkeypatch, *(16 * 2 ** pick(0, 2) for _ in range(3)))
    chunk_size = 2 ** pick(0, 7)
    sequences = sorted(pick(0, 3) for _ in range(pick(1, 5)))
    lengths = [pick(0, min(chunk_size, 30) + 1) for _ in sequences]
    groups = pick(1, 3)
    sizes = {"heads": 2 * groups, "groups": groups, "headdim": pick(1, 20), "dstate": pick(1, 40)}
    kinds = {"D": (None, "head", "channel")[seed % 3], "z": seed % 2 == 0, "initial": seed > 2}
    dtype = DTYPES[seed % 2]
    check(make(lengths, sequences, chunk_size=chunk_size, dtype=dtype, seed=seed, **sizes, **kinds))


@pytest.mark.parametrize("sizes", [(16, 32, 16), (32, 16, 32), (64, 64, 64)], ids=str)
def test_tiles_of_any_shape_fill_a_chunk_of_several(monkeypatch, sizes):
    tiles(monkeypatch, *sizes)
    case = make((64, 33), (0, 0), chunk_size=64, heads=2, headdim=40, z=True, D="head")
    check(case)


@pytest.mark.parametrize("dstate", [16, 160])
@pytest.mark.parametrize("initial", DTYPES, ids=str)
@pytest.mark.parametrize("state_dtype", DTYPES, ids=str)
def test_states_of_any_dtype_are_entered(state_dtype, initial, dstate):
    check(make(heads=2, dstate=dstate, state_dtype=state_dtype, initial=initial))


def test_a_sequence_in_each_chunk_starts_anew_each_time():
    lengths, sequences = (1,) * 6, (0, 1, 2, 4, 5, 7)
    check(make(lengths, sequences, heads=2))
    check(make(lengths, sequences, heads=2, initial=True))


def test_a_single_token_matches_the_reference():
    check(make((1,), (0,), initial=True, D="head", z=True))


def test_products_of_another_dtype_are_taken():
    case = make()
    case.CB = case.CB.half()
    check(case)


def test_the_output_may_have_another_dtype():
    case = make(dtype=torch.float16)
    check(case, fresh_output(case, torch.float32))


def test_views_of_any_stride_are_read_in_place():
    case = make(D="channel", z=True, initial=True)
    row = torch.full((case.x.shape[0], 7 + 20 + 20 + 32 + 5), torch.nan)
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


def test_a_view_as_output_leaves_all_other_bytes():
    case = make(dtype=torch.float16)
    total, heads, headdim = case.x.shape
    raw = torch.full((total, heads * headdim * 3 * 2), GUARD_BYTE, dtype=torch.uint8)
    wide = raw.view(torch.float16).view(total, heads, 3 * headdim)
    out = wide[..., 1::3][..., :headdim]
    run(case, out)
    stop = int(case.bounds[-1])
    compared = fresh_output(case)
    compared[BEFORE:stop] = out[BEFORE:stop]
    check_output(case, compared, exact_fp32=True)
    out[BEFORE:stop] = torch.tensor([GUARD_BYTE] * 2, dtype=torch.uint8).view(torch.float16)
    assert (raw == GUARD_BYTE).all()


@pytest.mark.parametrize("decay", [1e3, 1e10, 1e30])
def test_a_strong_decay_makes_nothing_infinite(decay):
    check(make(decay=decay, initial=True))


def test_a_sum_rounded_below_a_later_one_does_not_grow_what_it_weighs():
    case = make(decay=1e6)
    case.dA[:, 0, 3] = case.dA[:, 0, 4] - 200.0
    out = run(case)
    assert out[BEFORE : int(case.bounds[-1])].isfinite().all()
    check_output(case, out, exact_fp32=True)


def test_a_value_that_is_not_a_number_taints_its_own_channel_and_chunk_only():
    case = make((8, 8), (0, 0), heads=2, groups=1)
    token = int(case.bounds[1]) + 3
    case.x[token, 1, 2] = torch.nan
    out = run(case)
    assert out[token : int(case.bounds[2]), 1, 2].isnan().all()
    out[int(case.bounds[1]) : int(case.bounds[2]), 1, 2] = 0.0
    assert not out[BEFORE : int(case.bounds[-1])].isnan().any()


def test_every_token_of_a_chunk_is_compared():
    case = make(D="channel", z=True, initial=True)
    assert expected_output(case)[BEFORE : int(case.bounds[-1])].isfinite().all()


def test_no_chunk_leaves_the_output_alone():
    case = make((), ())
    out = fresh_output(case)
    run(case, out)
    assert out.isnan().all()
