"""State passing in Triton's interpreter: values, bits, and the bytes that must not change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import triton
from chunk_cases import GUARD_BYTE
from pinning import pin
from ssd_cases import make_cache

from launchkit.benchmarks.baseline.stored_states import final_state_writeback_separate
from launchkit.kernels.ssd.reference import rounding_tolerance, state_passing_reference
from launchkit.kernels.ssd.state_passing import _state_passing_fwd_kernel, state_passing

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def make_case(seed, last=(1, 2, 4), heads=3, headdim=5, dstate=16, chunk=4, dtype=torch.float32):
    """Return inputs of the kernel: states, dA, last, initial (S, H, P, N)."""
    rng = torch.Generator().manual_seed(seed)
    nchunks = max(last) + 1
    steps = torch.rand(heads, nchunks, chunk, generator=rng)
    return SimpleNamespace(
        states=torch.randn(nchunks, heads, headdim * dstate, generator=rng).to(dtype),
        dA=-steps.cumsum(-1) / 2,
        last=torch.tensor(last, dtype=torch.int32),
        initial=torch.randn(len(last), heads, headdim, dstate, generator=rng).to(dtype),
    )


def assert_near(actual, expected, magnitude, steps):
    """Compare with float64, NaN only where the reference has it."""
    assert torch.equal(actual.isnan(), expected.isnan())
    limit = rounding_tolerance(expected, magnitude, steps, actual.dtype)
    if actual.dtype == torch.bfloat16:
        # The interpreter cuts fp32 down to bf16 where a GPU rounds: twice the error.
        limit = limit + torch.finfo(torch.bfloat16).eps / 2 * expected.abs()
    excess = (actual.double() - expected).abs() - limit
    assert excess.nan_to_num(-1.0).max().item() <= 0


def check(case, initial, out, final=None):
    """Compare the states after each chunk, and the final ones, with the reference."""
    expected = state_passing_reference(case.states, case.dA, case.last, initial)
    absolute = None if initial is None else initial.abs()
    magnitude = state_passing_reference(case.states.abs(), case.dA, case.last, absolute)
    steps = case.states.shape[0]
    assert_near(out, expected[0], magnitude[0], steps)
    if final is not None:
        assert_near(final.flatten(2), expected[1], magnitude[1], steps)


def run_fused(case, initial, cache, slots, **options):
    """Pass the states, and write the final ones into ``slots`` of ``cache``."""
    return state_passing(
        case.states,
        case.dA,
        case.last,
        initial,
        final_states_out=cache,
        final_state_indices=slots,
        **options,
    )


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_after_each_chunk_match_the_reference(dtype, with_initial):
    case = make_case(1, dtype=dtype)
    initial = case.initial if with_initial else None
    out = state_passing(case.states, case.dA, case.last, initial)
    assert out.dtype == dtype
    check(case, initial, out)


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes_match_the_reference(seed):
    rng = torch.Generator().manual_seed(100 + seed)

    def pick(low, high):
        return int(torch.randint(low, high, (), generator=rng))

    lengths = [pick(0, 4) for _ in range(pick(1, 5))] + [1]
    last = tuple(sum(lengths[: index + 1]) - 1 for index in range(len(lengths)))
    sizes = {"heads": pick(1, 4), "headdim": pick(1, 12), "dstate": pick(1, 20)}
    case = make_case(seed, last, **sizes, chunk=pick(1, 9), dtype=DTYPES[seed % 3])
    _, cache = make_cache(len(last), **sizes, dtype=torch.float32)
    slots = torch.randperm(len(last), generator=rng)
    out = run_fused(case, case.initial, cache, slots)
    check(case, case.initial, out, cache[slots])


@pytest.mark.parametrize("block_size", [64, 128, 256, 512, 1024, 2048])
def test_every_config_gives_the_same_bits(monkeypatch, block_size):
    case = make_case(2, headdim=9, dstate=17)
    first = state_passing(case.states, case.dA, case.last, case.initial)
    config = triton.Config({"BLOCK_SIZE": block_size})
    pin(monkeypatch, _state_passing_fwd_kernel, config)
    out = state_passing(case.states, case.dA, case.last, case.initial)
    assert torch.equal(out, first)
    check(case, case.initial, out)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_final_states_fill_their_slots_and_no_other_byte(dtype, index_dtype):
    case = make_case(3, dtype=dtype)
    raw, cache = make_cache(7, 3, 5, 16, dtype)
    slots = torch.tensor([6, 0, 3], dtype=index_dtype)
    out = run_fused(case, None, cache, slots)
    check(case, None, out, cache[slots.long()])
    assert torch.equal(cache[slots.long()].flatten(2), out[case.last.long()])
    cache[slots.long()] = torch.zeros((), dtype=dtype)
    written = 3 * 3 * 80 * torch.finfo(dtype).bits // 8
    assert raw.count_nonzero().item() == raw.numel() - written
    assert (raw[raw != 0] == GUARD_BYTE).all()


def test_final_write_has_the_bits_of_the_separate_write_back():
    case = make_case(4, dtype=torch.bfloat16)
    slots = torch.tensor([2, 4, 1], dtype=torch.int32)
    _, fused = make_cache(5, 3, 5, 16, torch.bfloat16)
    _, separate = make_cache(5, 3, 5, 16, torch.bfloat16)
    out = run_fused(case, case.initial, fused, slots)
    final_state_writeback_separate(out, case.last, separate, slots)
    assert torch.equal(fused.view(torch.int16), separate.view(torch.int16))


def test_final_states_are_rounded_once_to_the_dtype_of_the_cache():
    case = make_case(5, dtype=torch.bfloat16)
    _, cache = make_cache(3, 3, 5, 16, torch.float32)
    slots = torch.arange(3)
    out = run_fused(case, case.initial.float(), cache, slots, out_dtype=torch.float16)
    assert out.dtype == torch.float16
    check(case, case.initial, out, cache)


def test_a_negative_slot_is_skipped():
    case = make_case(6)
    raw, cache = make_cache(2, 3, 5, 16, torch.float32)
    run_fused(case, None, cache[1:], torch.tensor([-1, -1, -1]))
    assert (raw == GUARD_BYTE).all()


EMPTY = {
    "first": (-1, 1, 3),
    "middle": (1, 1, 3),
    "middle, marked": (1, -1, 3),
    "two in the middle, marked": (1, -1, -1, 3),
    "last": (1, 3, 3),
    "last, marked": (1, 3, -1),
    "around": (-1, -1, 1, 1, 3, 3),
}


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("last", EMPTY.values(), ids=EMPTY.keys())
def test_an_empty_sequence_keeps_its_initial_state_and_disturbs_no_other(last, with_initial):
    case = make_case(7, last)
    initial = case.initial if with_initial else None
    _, cache = make_cache(len(last), 3, 5, 16, torch.float32)
    slots = torch.arange(len(last))
    out = run_fused(case, initial, cache, slots)
    check(case, initial, out, cache)
    seen = -1
    for seq, chunk in enumerate(last):
        if chunk <= seen:
            start = torch.zeros(3, 5, 16) if initial is None else initial[seq]
            assert torch.equal(cache[seq], start)
        seen = max(seen, chunk)


def test_only_empty_sequences_need_no_chunk():
    case = make_case(8, (-1, -1))
    _, cache = make_cache(2, 3, 5, 16, torch.float32)
    out = run_fused(case, case.initial, cache, torch.tensor([1, 0]))
    assert out.shape == (0, 3, 80)
    assert torch.equal(cache.flip(0), case.initial)


def test_no_sequence_launches_nothing():
    case = make_case(9)
    out = state_passing(case.states, case.dA, torch.empty(0, dtype=torch.int32))
    assert out.isnan().all()


def test_chunks_behind_the_last_sequence_are_left_unwritten():
    case = make_case(10, (1, 2))
    case.states = torch.cat([case.states, case.states])
    case.dA = torch.cat([case.dA, case.dA], dim=1)
    check(case, None, state_passing(case.states, case.dA, case.last))


def test_single_chunk_sequences_each_start_from_their_own_state():
    case = make_case(11, (0, 1, 2, 3, 4))
    check(case, case.initial, state_passing(case.states, case.dA, case.last, case.initial))


def test_views_of_any_stride_are_read_in_place():
    case = make_case(12)
    heads_first = case.states.transpose(0, 1).contiguous().transpose(0, 1)
    spread = torch.full((5, 3, 160), torch.nan)[..., ::2].copy_(heads_first)
    wide = torch.full((5, 3, 8), torch.nan).permute(1, 0, 2)[..., ::2].copy_(case.dA)
    initial = torch.full((6, 3, 5, 32), torch.nan)[::2, ..., ::2].copy_(case.initial)
    last = torch.full((3, 2), 99, dtype=torch.int32)[:, 1].copy_(case.last)
    table = torch.full((3, 4), 99)
    table[:, 2] = torch.tensor([1, 2, 0])
    cache = torch.full((3, 5, 16, 3), torch.nan).permute(3, 0, 1, 2)
    out = state_passing(
        spread,
        wide,
        last,
        initial,
        final_states_out=cache,
        final_state_indices=table[:, 2],
    )
    check(case, case.initial, out, cache[[1, 2, 0]])


def test_initial_states_with_transposed_head_and_state_dimensions_are_read_right():
    case = make_case(13)
    transposed = case.initial.transpose(2, 3).contiguous().transpose(2, 3)
    check(case, case.initial, state_passing(case.states, case.dA, case.last, transposed))
    flat = state_passing(case.states, case.dA, case.last, case.initial.flatten(2))
    check(case, case.initial, flat)


@pytest.mark.parametrize("total", [-1e4, -1e30, -torch.inf])
def test_a_strong_decay_forgets_the_past_without_nan(total):
    case = make_case(14)
    out = state_passing(case.states, torch.full_like(case.dA, total), case.last, case.initial)
    assert torch.equal(out, case.states)


def test_only_the_last_position_of_a_chunk_is_read():
    case = make_case(15)
    expected = state_passing(case.states, case.dA, case.last)
    case.dA[..., :-1] = torch.nan
    assert torch.equal(state_passing(case.states, case.dA, case.last), expected)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_the_carried_state_is_not_rounded_between_chunks():
    states = torch.tensor([60000.0, 60000.0, 0.0]).half().reshape(3, 1, 1)
    dA = torch.tensor([0.0, 0.0, -3.0]).reshape(1, 3, 1)
    last = torch.tensor([2], dtype=torch.int32)
    out = state_passing(states, dA, last).flatten()
    assert out[1].isinf()
    assert out[2].item() == pytest.approx(120000 * 2.718281828**-3, rel=2**-11)


def test_split_and_resume_has_the_bits_of_one_shot():
    case = make_case(16, (4,))
    whole = state_passing(case.states, case.dA, case.last, case.initial)
    _, cache = make_cache(1, 3, 5, 16, torch.float32)
    head = state_passing(
        case.states[:2],
        case.dA[:, :2],
        torch.tensor([1], dtype=torch.int32),
        case.initial,
        final_states_out=cache,
        final_state_indices=torch.tensor([0]),
    )
    rest = torch.tensor([2], dtype=torch.int32)
    tail = state_passing(case.states[2:], case.dA[:, 2:], rest, cache)
    assert torch.equal(torch.cat([head, tail]), whole)
