"""What initial states in a cache promise: the bits of states that were copied out of it before.

Test modules import these tests and define the fixture ``place``, as for ``ssd_promises``. They are
run in the interpreter and on a GPU alike.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ssd_cases import check, everything, make_cache, make_problem, same_bits, scan

from launchkit.kernels.ssd import scan as scan_module

STATE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SLOTS = 6
LENGTHS = {"one token": 1, "less than a chunk": 7, "a chunk": 16, "two chunks and a token": 33}
SHAPES = {
    "head dimension 5": {"headdim": 5},
    "state dimension 256": {"dstate": 256},
    "state dimension 130": {"dstate": 130, "headdim": 3},
    "one channel and one state": {"headdim": 1, "dstate": 1},
    "two groups": {"groups": 2, "heads": 4, "chunk_size": 4},
}
PLACES = {"in place": (3, 3), "elsewhere": (1, 4), "written nowhere": (2, -1)}


@pytest.fixture
def indexed_launches(monkeypatch):
    """How often state passing read a slot itself."""
    scan_module.mamba_chunk_scan_combined_varlen.op_plans.clear()
    launches, launch = [], scan_module.launch_indexed_passing

    def noted(*args):
        launches.append(args)
        launch(*args)

    monkeypatch.setattr(scan_module, "launch_indexed_passing", noted)
    return launches


def make_states(place, problem, dtype, seed=0):
    """Return (bytes, cache) of random states in padded pages."""
    sizes = (*problem.x.shape[1:], problem.B.shape[2])
    raw, cache = make_cache(SLOTS, *sizes, dtype, place.device)
    rng = torch.Generator().manual_seed(seed)
    cache.copy_((torch.rand(SLOTS, *sizes, generator=rng) * 4 - 2).to(dtype))
    return raw, cache


def again(raw, cache):
    """Return a copy of a cache, bytes around it included."""
    copied = raw.clone()
    return copied, copied.view(cache.dtype).as_strided(cache.shape, cache.stride())


def indices_of(slots, place, dtype=torch.int32):
    """Return slots as a column of a table of others."""
    table = torch.full((len(slots), 3), 2**30, dtype=dtype, device=place.device)
    table[:, 1] = torch.tensor(slots)
    return table[:, 1]


def flags_of(has, place):
    return None if has is None else torch.tensor(has, device=place.device)


def snapshot(cache, slots, has):
    """Return the states that sequences start in, by walking the slots."""
    present = [True] * len(slots) if has is None else has
    return torch.stack(
        [
            cache[slot] if present_ and slot >= 0 else torch.zeros_like(cache[0])
            for slot, present_ in zip(slots, present, strict=True)
        ]
    )


def run_both(place, problem, dtype, start, end, has=None, index_dtype=torch.int32, **options):
    """Scan from a cache by index, and from a copy of its states; all bits must be equal.

    Returns what the first one gave: (out, returned, cache before, cache after). ``end``: slots to
    write final states to, None for none.
    """
    raw, cache = make_states(place, problem, dtype)
    other_raw, other = again(raw, cache)
    before = cache.clone()
    options = {"state_dtype": dtype, **options}
    final, final_other = {}, {}
    if end is not None:
        slots = indices_of(end, place, index_dtype)
        final = {"final_states_out": cache, "final_state_indices": slots}
        final_other = {**final, "final_states_out": other}
    out, returned = scan(
        problem, initial_state_cache=cache,
        initial_state_indices=indices_of(start, place, index_dtype),
        has_initial_state=flags_of(has, place), **final, **options,
    )  # fmt: skip
    copied = snapshot(other, start, has)
    expected, expected_returned = scan(problem, initial_states=copied, **final_other, **options)
    assert same_bits(out, expected)
    assert same_bits(raw, other_raw)
    if returned is not None:
        assert same_bits(returned, expected_returned)
    return out, returned, before, cache


def make(place, lengths, **kinds):
    return make_problem(lengths, device=place.device, **{"dtype": place.dtype, **kinds})


@pytest.mark.parametrize("slots", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize("dtype", STATE_DTYPES, ids=str)
def test_a_sequence_that_starts_in_a_slot_has_the_bits_of_one_from_a_copy(
    place, indexed_launches, dtype, slots
):
    start, end = slots
    problem = make(place, (33,), seed=1, **everything(initial=None))
    run_both(place, problem, dtype, (start,), (end,))
    assert len(indexed_launches) == 1


@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS.keys())
def test_every_length_has_the_bits_of_a_copy_and_matches_the_reference(
    place, indexed_launches, length
):
    problem = make(place, (length,), seed=2, **everything(initial=None))
    out, _, before, after = run_both(place, problem, torch.float32, (3,), (3,))
    started = problem.with_options(initial_states=before[3:4])
    check(started, out, after[3:4], interpreted=place.interpreted, state_dtype=torch.float32)
    assert len(indexed_launches) == 1


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_has_the_bits_of_a_copy(place, indexed_launches, shape):
    run_both(place, make(place, (18,), seed=3, **shape), torch.float32, (3,), (3,))
    assert len(indexed_launches) == 1


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("has", [None, (True,), (False,)], ids=str)
def test_a_masked_sequence_starts_from_zeros(place, indexed_launches, has, index_dtype):
    problem = make(place, (20,), seed=4)
    run_both(place, problem, torch.float32, (2,), (2,), has, index_dtype)
    assert len(indexed_launches) == 1


@pytest.mark.parametrize(
    ("slot", "has"), [(2**30, (False,)), (-1, None), (-1, (True,)), (0, (False,))]
)
def test_a_slot_that_is_not_read_may_hold_anything(place, indexed_launches, slot, has):
    problem = make(place, (20,), seed=5)
    _, cache = make_states(place, problem, torch.float32)
    cache[0] = torch.nan
    out, _ = scan(
        problem, initial_state_cache=cache, initial_state_indices=indices_of((slot,), place),
        has_initial_state=flags_of(has, place), state_dtype=torch.float32,
        final_states_out=cache, final_state_indices=indices_of((4,), place),
    )  # fmt: skip
    expected, final = scan(problem, state_dtype=torch.float32)
    assert same_bits(out, expected)
    assert same_bits(cache[4:5], final)
    assert len(indexed_launches) == 1


def test_no_byte_but_the_final_slot_changes(place, indexed_launches):
    problem = make(place, (20,), seed=6)
    raw, cache = make_states(place, problem, torch.float32)
    before_raw, before = again(raw, cache)
    scan(
        problem, initial_state_cache=cache, initial_state_indices=indices_of((1,), place),
        state_dtype=torch.float32, final_states_out=cache,
        final_state_indices=indices_of((4,), place),
    )  # fmt: skip
    assert not same_bits(cache[4], before[4])
    cache[4] = before[4]
    assert same_bits(raw, before_raw)
    assert len(indexed_launches) == 1


def test_an_empty_sequence_moves_its_state(place, indexed_launches):
    problem = make(place, (0,))
    _, _, before, after = run_both(place, problem, torch.float32, (1,), (4,))
    assert same_bits(after[4], before[1])
    assert len(indexed_launches) == 1


def test_another_cache_may_hold_the_final_states(place, indexed_launches):
    problem = make(place, (20,), seed=7)
    _, cache = make_states(place, problem, torch.float32)
    finals = [torch.zeros_like(cache, dtype=torch.float16) for _ in range(2)]
    slots, start = indices_of((2,), place), indices_of((3,), place)
    options = {"state_dtype": torch.float32, "final_state_indices": slots}
    out, _ = scan(problem, initial_state_cache=cache, initial_state_indices=start,
                  final_states_out=finals[0], **options)  # fmt: skip
    expected, _ = scan(
        problem, initial_states=cache[3:4].clone(), final_states_out=finals[1], **options
    )
    assert same_bits(out, expected)
    assert same_bits(*finals)
    assert len(indexed_launches) == 1


SEVERAL = {
    "each its own": ((1, 3, 5), (1, 3, 5)),
    "shared": ((2, 2, 2), (1, 2, 3)),
    "crossed": ((1, 3, 5), (3, 5, 1)),
}


@pytest.mark.parametrize("has", [None, (True, False, True)], ids=str)
@pytest.mark.parametrize("slots", SEVERAL.values(), ids=SEVERAL.keys())
def test_several_sequences_start_in_what_slots_held_before(place, indexed_launches, slots, has):
    problem = make(place, (5, 0, 20), seed=8, **everything(initial=None))
    run_both(place, problem, torch.float32, *slots, has)
    assert indexed_launches == []


@pytest.mark.parametrize("every", [False, True], ids=["final", "every"])
def test_returned_states_are_those_of_a_copy(place, indexed_launches, every):
    problem = make(place, (20,), seed=9)
    run_both(place, problem, torch.float32, (3,), None, return_intermediate_states=every)
    assert indexed_launches == []


def test_states_of_a_checkpoint_are_those_of_a_copy(place, indexed_launches):
    problem = replace(make(place, (40,), seed=10), computed=(5,), checkpoints=(23,))
    run_both(place, problem, torch.float32, (3,), None, return_intermediate_states=True)
    assert indexed_launches == []


@pytest.mark.parametrize("other", [torch.float16, torch.bfloat16], ids=str)
def test_a_cache_of_another_dtype_than_the_states_is_copied(place, indexed_launches, other):
    problem = make(place, (20,), seed=11)
    run_both(place, problem, torch.float32, (3,), (3,), state_dtype=other)
    assert indexed_launches == []


def test_caches_that_lie_across_each_other_are_copied(place, indexed_launches):
    """The final slot may then be another part of the slot that is read."""
    problem = make(place, (20,), seed=12)
    sizes = (*problem.x.shape[1:], problem.B.shape[2])
    results = []
    for in_cache in (True, False):
        memory = torch.randn(
            4 * sizes[0] * sizes[1] * sizes[2], generator=torch.Generator().manual_seed(0)
        )
        memory = memory.to(place.device)
        row = memory.numel() // 4
        cache, shifted = memory[: 3 * row].view(3, *sizes), memory[row // 2 : row // 2 + 3 * row]
        options = {"initial_states": cache[1:2].clone()}
        if in_cache:
            options = {"initial_state_cache": cache,
                       "initial_state_indices": indices_of((1,), place)}  # fmt: skip
        out, _ = scan(
            problem, state_dtype=torch.float32, final_states_out=shifted.view(3, *sizes),
            final_state_indices=indices_of((1,), place), **options,
        )  # fmt: skip
        results.append((out, memory))
    assert all(same_bits(one, other) for one, other in zip(*results, strict=True))
    assert indexed_launches == []
