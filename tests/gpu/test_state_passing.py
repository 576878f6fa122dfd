"""State passing on a GPU: values, bits, and the bytes that must not change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import triton
from chunk_cases import DTYPES, GUARD_BYTE, assert_within
from pinning import pin
from ssd_cases import make_cache, same_bits

from launchkit.benchmarks.baseline.stored_states import final_state_writeback_separate
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd.reference import rounding_tolerance, state_passing_reference
from launchkit.kernels.ssd.state_passing import _state_passing_fwd_kernel, state_passing

ALL_CONFIGS = tuple(_state_passing_fwd_kernel.configs)


@pytest.fixture(autouse=True)
def _one_config(monkeypatch):
    """Pin one config, so that no test measures anything."""
    pin(monkeypatch, _state_passing_fwd_kernel, triton.Config({"BLOCK_SIZE": 512}))


def make_case(last, heads, headdim, dstate, dtype, chunk=8, seed=0):
    rng = torch.Generator(device="cuda").manual_seed(seed)

    def rand(*shape):
        return torch.rand(*shape, generator=rng, device="cuda")

    nchunks = max(last) + 1
    return SimpleNamespace(
        states=(rand(nchunks, heads, headdim * dstate) * 4 - 2).to(dtype),
        dA=-rand(heads, nchunks, chunk).cumsum(-1) / chunk,
        last=torch.tensor(last, dtype=torch.int32, device="cuda"),
        initial=(rand(len(last), heads, headdim, dstate) * 4 - 2).to(dtype),
    )


def assert_near(actual, expected, magnitude, steps):
    limit = rounding_tolerance(expected, magnitude, steps, actual.dtype)
    assert_within(actual, expected, limit)


def check(case, initial, out, final):
    """Compare with the float64 reference, within fp32 recurrence and one rounding."""
    expected = state_passing_reference(case.states, case.dA, case.last, initial)
    absolute = None if initial is None else initial.abs()
    magnitude = state_passing_reference(case.states.abs(), case.dA, case.last, absolute)
    steps = case.states.shape[0]
    assert_near(out, expected[0], magnitude[0], steps)
    assert_near(final.flatten(2), expected[1], magnitude[1], steps)


def run_fused(case, initial, sizes, dtype, slots, rows):
    """Launch with the fused write into ``slots`` of a fresh cache; return (out, bytes, cache)."""
    raw, cache = make_cache(rows, *sizes, dtype, "cuda")
    out = state_passing(
        case.states,
        case.dA,
        case.last,
        initial,
        out_dtype=dtype,
        final_states_out=cache,
        final_state_indices=slots,
    )
    return out, raw, cache


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(3, 5, 16), (8, 80, 128), (4, 64, 256)], ids=str)
def test_states_match_the_reference(sizes, dtype, with_initial):
    case = make_case((0, 3, 3, 9), *sizes, dtype)
    initial = case.initial if with_initial else None
    slots = torch.tensor([4, 0, 2, 5], dtype=torch.int32, device="cuda")
    out, _, cache = run_fused(case, initial, sizes, dtype, slots, 6)
    check(case, initial, out, cache[slots.long()])


@pytest.mark.parametrize("state_dtype", DTYPES, ids=str)
def test_nemotron_3_nano_matches_the_reference(state_dtype):
    shape = MAMBA_SHAPES["Nemotron-3-Nano"]
    sizes = (shape.nheads, shape.headdim, shape.dstate)
    last = (3, 4, 8, 15)
    case = make_case(last, *sizes, torch.float32, chunk=shape.chunk_size)
    initial = case.initial.to(state_dtype)
    slots = torch.tensor([3, 1, 0, 2], dtype=torch.int32, device="cuda")
    out, _, cache = run_fused(case, initial, sizes, state_dtype, slots, 4)
    check(case, initial, out, cache[slots.long()])


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fused_final_states_have_the_bits_of_the_separate_write_back(dtype, with_initial):
    sizes = (8, 64, 128)
    case = make_case((0, 3, 7, 8), *sizes, dtype)
    slots = torch.tensor([7, 0, 4, 2], dtype=torch.int32, device="cuda")
    initial = case.initial if with_initial else None
    out, fused_bytes, _ = run_fused(case, initial, sizes, dtype, slots, 9)
    separate_bytes, separate = make_cache(9, *sizes, dtype, "cuda")
    final_state_writeback_separate(out, case.last, separate, slots)
    assert torch.equal(fused_bytes, separate_bytes)


@pytest.mark.parametrize("block_size", [64, 512, 2048])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_around_the_written_slots_are_unchanged(monkeypatch, dtype, block_size):
    pin(monkeypatch, _state_passing_fwd_kernel, triton.Config({"BLOCK_SIZE": block_size}))
    sizes = (3, 5, 17)
    case = make_case((1, 2), *sizes, dtype)
    slots = torch.tensor([3, 1], dtype=torch.int64, device="cuda")
    _, raw, cache = run_fused(case, None, sizes, dtype, slots, 5)
    cache[slots] = torch.zeros((), dtype=dtype, device="cuda")
    written = 2 * 3 * 5 * 17 * torch.finfo(dtype).bits // 8
    assert raw.count_nonzero().item() == raw.numel() - written
    assert (raw[raw != 0] == GUARD_BYTE).all()


@pytest.mark.parametrize("sizes", [(3, 9, 33), (2, 64, 40)], ids=str)
@pytest.mark.parametrize("config", ALL_CONFIGS, ids=str)
def test_every_config_matches_the_reference_and_gives_the_same_bits(monkeypatch, config, sizes):
    case = make_case((1, 4), *sizes, torch.bfloat16)
    slots = torch.tensor([1, 0], dtype=torch.int32, device="cuda")
    expected, _, _ = run_fused(case, case.initial, sizes, torch.float16, slots, 2)
    pin(monkeypatch, _state_passing_fwd_kernel, config)
    out, _, cache = run_fused(case, case.initial, sizes, torch.float16, slots, 2)
    check(case, case.initial, out, cache[slots.long()])
    assert same_bits(out, expected)


def test_an_unaligned_view_is_read_right():
    sizes = (3, 5, 16)
    case = make_case((1, 2, 4), *sizes, torch.float32)
    aligned, _, _ = run_fused(case, case.initial, sizes, torch.float32, case.last, 5)
    for name in ("states", "dA", "last", "initial"):
        tensor = getattr(case, name)
        shifted = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")[1:]
        setattr(case, name, shifted.view(tensor.shape).copy_(tensor))
    out, _, cache = run_fused(case, case.initial, sizes, torch.float32, case.last, 5)
    assert same_bits(out, aligned)
    check(case, case.initial, out, cache[case.last.long()])


def test_empty_sequences_disturb_no_other_in_either_notation():
    sizes = (3, 5, 16)
    slots = torch.arange(6, dtype=torch.int32, device="cuda")
    for last in ((-1, 1, 1, 1, 3, 3), (-1, 1, -1, -1, 3, -1)):
        case = make_case(last, *sizes, torch.float32)
        out, _, cache = run_fused(case, case.initial, sizes, torch.float32, slots, 6)
        check(case, case.initial, out, cache)
        for seq in (0, 2, 3, 5):
            assert same_bits(cache[seq], case.initial[seq])


def test_a_negative_slot_is_skipped():
    sizes = (3, 5, 16)
    case = make_case((1, 2), *sizes, torch.float32)
    slots = torch.tensor([-1, -1], device="cuda")
    _, raw, _ = run_fused(case, None, sizes, torch.float32, slots, 3)
    assert (raw == GUARD_BYTE).all()


def test_a_slot_beyond_two_to_the_31_elements_is_reached():
    sizes = (1, 1, 16)
    case = make_case((0,), *sizes, torch.float16)
    page = 2**30 + 16
    raw = torch.zeros(2 * page + 64, dtype=torch.float16, device="cuda")
    cache = raw.as_strided((3, *sizes), (page, 16, 16, 1))
    state_passing(
        case.states,
        case.dA,
        case.last,
        final_states_out=cache,
        final_state_indices=torch.tensor([2], dtype=torch.int32, device="cuda"),
    )
    assert same_bits(raw[2 * page : 2 * page + 16], case.states.flatten())
    assert raw.count_nonzero() == case.states.count_nonzero()


def test_a_strong_decay_forgets_the_past_without_nan():
    sizes = (3, 5, 16)
    case = make_case((4,), *sizes, torch.float32)
    for total in (-1e4, -1e30, -torch.inf):
        decays = torch.full_like(case.dA, total)
        assert same_bits(state_passing(case.states, decays, case.last, case.initial), case.states)


def test_split_and_resume_has_the_bits_of_one_shot():
    sizes = (8, 64, 128)
    case = make_case((9,), *sizes, torch.float32)
    slot = torch.zeros(1, dtype=torch.int32, device="cuda")
    whole, _, _ = run_fused(case, case.initial, sizes, torch.float32, slot, 1)
    head = SimpleNamespace(states=case.states[:4], dA=case.dA[:, :4], last=slot + 3)
    first, _, cache = run_fused(head, case.initial, sizes, torch.float32, slot, 1)
    rest = state_passing(case.states[4:], case.dA[:, 4:], slot + 5, cache)
    assert same_bits(torch.cat([first, rest]), whole)


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.device_count() < 2, reason="needs two GPUs"
)
def test_tensors_of_another_gpu_are_launched_there():
    sizes = (3, 5, 16)
    case = make_case((1, 2), *sizes, torch.float32)
    here = state_passing(case.states, case.dA, case.last)
    there = state_passing(*(tensor.to("cuda:1") for tensor in (case.states, case.dA, case.last)))
    assert there.device == torch.device("cuda:1")
    assert torch.equal(there.cpu(), here.cpu())
