"""Chunk products on a GPU: values, and the bytes that must not change."""

from __future__ import annotations

import pytest
import torch
from chunk_cases import BEFORE, BEHIND, DTYPES, guarded, margins_are_untouched
from output_cases import check_products, make_products
from poison import poison_fresh_tensors

from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel, bmm_chunk, launch_bmm_chunk
from launchkit.kernels.ssd.tiles import drop_miscompiled

ALL_CONFIGS = tuple(_bmm_chunk_fwd_kernel.configs)
KEPT_FOR_CASTS = tuple(drop_miscompiled(ALL_CONFIGS, {}))
LENGTHS = (64, 5, 1, 63)


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config, so that no test measures anything."""
    pin(monkeypatch, ALL_CONFIGS[0])
    poison_fresh_tensors(monkeypatch)


def pin(monkeypatch, config):
    monkeypatch.setattr(_bmm_chunk_fwd_kernel, "configs", [config])


def make(lengths=LENGTHS, chunk_size=64, **sizes):
    return make_products(lengths, chunk_size, device="cuda", **sizes)


def run(case, **options):
    return bmm_chunk(case.C, case.B, case.chunk_size, case.bounds, **options)


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("dstate", [16, 40, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_match_the_reference(dtype, dstate, groups):
    case = make(dstate=dstate, groups=groups, dtype=dtype)
    check_products(case, run(case))


@pytest.mark.parametrize("model", ["Nemotron-3-Nano", "Granite-4.0-h-micro"])
def test_a_real_layer_matches_the_reference(model):
    shape = MAMBA_SHAPES[model]
    lengths = (shape.chunk_size, 17, shape.chunk_size - 1)
    sizes = {"groups": shape.ngroups, "dstate": shape.dstate, "dtype": torch.bfloat16}
    case = make(lengths, shape.chunk_size, **sizes)
    check_products(case, run(case))


@pytest.mark.parametrize("sizes", [(128, 128), (64, 40)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_matches_the_reference(monkeypatch, config, dtype, sizes):
    pin(monkeypatch, config)
    chunk_size, dstate = sizes
    case = make((chunk_size, 3, chunk_size - 9), chunk_size, dstate=dstate, dtype=dtype)
    first = run(case)
    check_products(case, first)
    for _ in range(5):
        assert torch.equal(run(case), first)


@pytest.mark.parametrize("config", KEPT_FOR_CASTS, ids=str)
def test_every_config_kept_for_casts_matches_the_reference(monkeypatch, config):
    pin(monkeypatch, config)
    case = make((128, 3, 119), 128, dstate=256, dtype=torch.bfloat16)
    case.C = case.C.float()
    first = run(case)
    check_products(case, first)
    for _ in range(5):
        assert torch.equal(run(case), first)


@pytest.mark.parametrize("left", DTYPES, ids=str)
@pytest.mark.parametrize("right", DTYPES, ids=str)
def test_any_two_dtypes_are_multiplied_in_the_narrower(left, right):
    case = make(dtype=torch.float32)
    case.C, case.B = case.C.to(left), case.B.to(right)
    check_products(case, run(case))


@pytest.mark.parametrize("out_dtype", DTYPES, ids=str)
def test_products_are_rounded_to_the_dtype_asked_for(out_dtype):
    case = make(dtype=torch.bfloat16)
    CB = run(case, out_dtype=out_dtype)
    assert CB.dtype == out_dtype
    check_products(case, CB)


@pytest.mark.parametrize("chunk_size", [1, 2, 16, 256, 1024])
def test_every_chunk_size_matches_the_reference(chunk_size):
    case = make((chunk_size, 1, (chunk_size + 1) // 2), chunk_size, dtype=torch.float16)
    check_products(case, run(case))


def test_many_one_token_sequences_match_the_reference():
    case = make((1,) * 300, 16, dtype=torch.bfloat16)
    check_products(case, run(case))


def test_an_empty_chunk_has_products_of_zero():
    case = make((0, 6, 0), dtype=torch.bfloat16)
    CB = run(case)
    assert not CB[[0, 2]].any()
    check_products(case, CB)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views_of_any_stride_and_alignment_are_read_in_place(dtype):
    case = make(dtype=dtype)
    row = torch.full((case.C.shape[0], 7 + 32 + 32 + 5), torch.nan, dtype=dtype, device="cuda")
    B = row[:, 7:39].view(-1, 2, 16).copy_(case.B)
    C = row[:, 39:71].view(-1, 2, 16).copy_(case.C)
    transposed = [tensor.permute(2, 1, 0).contiguous().permute(2, 1, 0) for tensor in (C, B)]
    spread = [tensor.new_full((*tensor.shape, 2), torch.nan)[..., 1] for tensor in (C, B)]
    for view, tensor in zip(spread, (C, B), strict=True):
        view.copy_(tensor)
    for case.C, case.B in ((C, B), transposed, spread):
        check_products(case, run(case))


def test_a_value_that_is_not_a_number_taints_its_own_row_only():
    case = make((8, 8), dtype=torch.bfloat16)
    case.C[int(case.bounds[1]) + 3, 1, 5] = torch.nan
    CB = run(case)
    assert CB[1, 1, 3, :8].isnan().all()
    CB[1, 1, 3] = 0.0
    assert not CB.isnan().any()


def test_a_token_beyond_two_to_the_31_elements_is_reached():
    case = make((33, 2), dtype=torch.bfloat16)
    total, stride = BEFORE + 35 + BEHIND, 2**26 + 16
    raw = torch.empty(total * stride, dtype=torch.bfloat16, device="cuda")
    for name, offset in (("C", 0), ("B", 2**20)):
        tensor = getattr(case, name)
        view = raw[offset:].as_strided(tensor.shape, (stride, tensor.stride(1), 1))
        setattr(case, name, view.copy_(tensor))
    check_products(case, run(case))


@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_no_byte_around_the_output_changes(monkeypatch, config):
    pin(monkeypatch, config)
    case = make((16, 3, 9), 16, dtype=torch.bfloat16)
    raw, CB = guarded((3, 2, 16, 16), device="cuda")
    launch_bmm_chunk(case.C, case.B, 16, case.bounds, CB)
    check_products(case, CB)
    assert margins_are_untouched(raw)
