"""Chunk products in Triton's interpreter: values, and the bytes that must not change."""

from __future__ import annotations

import pytest
import torch
import triton
from chunk_cases import guarded, margins_are_untouched
from output_cases import check_products, make_products

from launchkit.kernels.ssd.bmm import _bmm_chunk_fwd_kernel, bmm_chunk, launch_bmm_chunk

# How Triton 3.6's interpreter reads scalars; NumPy 2.4 makes it an error.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

# The interpreter multiplies bf16 wrongly; that is tested on GPUs.
DTYPES = (torch.float32, torch.float16)
LENGTHS = (16, 5, 1, 15)


def run(case, **options):
    return bmm_chunk(case.C, case.B, case.chunk_size, case.bounds, **options)


def check(case, CB):
    check_products(case, CB, exact_fp32=True)


def small_tiles(monkeypatch, m=16, n=16, k=16):
    config = triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k})
    monkeypatch.setattr(_bmm_chunk_fwd_kernel, "configs", [config])


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("dstate", [1, 16, 40, 256])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products_match_the_reference(dtype, dstate, groups):
    case = make_products(LENGTHS, dstate=dstate, groups=groups, dtype=dtype)
    CB = run(case)
    assert CB.dtype == torch.float32
    assert CB.shape == (4, groups, 16, 16)
    check(case, CB)


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes_match_the_reference(monkeypatch, seed):
    rng = torch.Generator().manual_seed(100 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    small_tiles(monkeypatch, *(16 * 2 ** pick(0, 2) for _ in range(3)))
    chunk_size = 2 ** pick(0, 7)
    lengths = [pick(0, min(chunk_size, 40) + 1) for _ in range(pick(1, 4))]
    case = make_products(lengths, chunk_size, pick(1, 4), pick(1, 40), DTYPES[seed % 2], seed)
    check(case, run(case))


@pytest.mark.parametrize("sizes", [(16, 32, 16), (32, 16, 32), (64, 64, 64)], ids=str)
def test_tiles_of_any_shape_fill_a_chunk_of_several(monkeypatch, sizes):
    small_tiles(monkeypatch, *sizes)
    case = make_products((64, 33), 64, dstate=24)
    check(case, run(case))


@pytest.mark.parametrize("other", [torch.float16, torch.float32], ids=str)
def test_unlike_dtypes_are_multiplied_in_the_narrower(other):
    case = make_products(LENGTHS, dtype=torch.float16)
    case.B = case.B.to(other)
    check(case, run(case))
    case.C, case.B = case.B, case.C
    check(case, run(case))


@pytest.mark.parametrize("out_dtype", [torch.float32, torch.float16], ids=str)
def test_products_are_rounded_to_the_dtype_asked_for(out_dtype):
    case = make_products(LENGTHS)
    CB = run(case, out_dtype=out_dtype)
    assert CB.dtype == out_dtype
    check(case, CB)


def test_views_of_any_stride_are_read_in_place():
    case = make_products(LENGTHS)
    row = torch.full((case.C.shape[0], 7 + 32 + 32 + 5), torch.nan)
    case.B = row[:, 7:39].view(-1, 2, 16).copy_(case.B)
    case.C = row[:, 39:71].view(-1, 2, 16).copy_(case.C)
    check(case, run(case))
    case.B, case.C = (t.permute(2, 1, 0).contiguous().permute(2, 1, 0) for t in (case.B, case.C))
    check(case, run(case))


def test_no_byte_around_the_output_changes(monkeypatch):
    small_tiles(monkeypatch, 32, 32, 16)
    case = make_products((8, 3, 5), chunk_size=8)
    raw, CB = guarded((3, 2, 8, 8))
    launch_bmm_chunk(case.C, case.B, 8, case.bounds, CB)
    check(case, CB)
    assert margins_are_untouched(raw)


def test_no_chunk_makes_no_product():
    case = make_products(())
    assert run(case).shape == (0, 2, 16, 16)
