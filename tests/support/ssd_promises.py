"""What the whole scan promises of its values and writes, in the interpreter and on a GPU alike.

Test modules import these tests and define two fixtures. ``place``: the ``device``, whether
kernels are ``interpreted``, and the ``dtype`` of activations where one is enough. ``dtype``:
each dtype of activations that the place can run.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ssd_cases import (
    assert_only_slots_changed,
    check,
    everything,
    make_problem,
    same_bits,
    scan,
    scan_into_cache,
)

STATE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)

LENGTHS = {
    "one token": (1,),
    "less than a chunk": (7,),
    "a chunk": (16,),
    "a token less than two chunks": (31,),
    "a token more than two chunks": (33,),
    "sequences of one token": (1,) * 6,
    "empty sequence first": (0, 18),
    "empty sequence in the middle": (13, 0, 20),
    "empty sequence last": (18, 0),
    "empty sequences around": (0, 0, 9, 0, 0, 12, 0),
}

SHAPES = {
    "head dimension 5": {"headdim": 5},
    "head dimension 80": {"headdim": 80},
    "one channel and one state": {"headdim": 1, "dstate": 1},
    "state dimension 256": {"dstate": 256},
    "state dimension 130": {"dstate": 130},
    "two groups of three heads": {"groups": 2, "heads": 6},
    "eight groups": {"groups": 8, "heads": 8},
    "chunk of 4": {"chunk_size": 4},
    "chunk of 64": {"chunk_size": 64},
}

OPTIONS = {
    "nothing": {},
    "D a head": {"D": "head"},
    "D a channel": {"D": "channel"},
    "gate": {"z": True},
    "bias": {"bias": True},
    "softplus": {"softplus": True},
    "bias and softplus": {"bias": True, "softplus": True},
    "limits": {"limit": (0.05, 0.2)},
    "initial states": {"initial": torch.float32},
}


def make(place, lengths, dtype=None, **kinds):
    return make_problem(lengths, dtype=dtype or place.dtype, device=place.device, **kinds)


@pytest.mark.parametrize("kinds", [{}, everything()], ids=["bare", "everything"])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_every_split_into_sequences_matches_the_reference(place, dtype, lengths, kinds):
    problem = make(place, lengths, dtype, seed=1, **kinds)
    out, _, cache = scan_into_cache(problem)
    check(problem, out, cache[1 : len(lengths) + 1], interpreted=place.interpreted)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_matches_the_reference(place, shape):
    problem = make(place, (5, 18), seed=2, **shape, **everything())
    out, states = scan(problem, return_intermediate_states=True)
    check(problem, out, states=states, interpreted=place.interpreted)


@pytest.mark.parametrize("kinds", OPTIONS.values(), ids=OPTIONS.keys())
def test_each_option_alone_matches_the_reference(place, kinds):
    problem = make(place, (5, 18), seed=3, **kinds)
    out, final = scan(problem)
    check(problem, out, final, interpreted=place.interpreted)


@pytest.mark.parametrize("state_dtype", STATE_DTYPES, ids=str)
def test_every_state_dtype_matches_the_reference(place, dtype, state_dtype):
    problem = make(place, (5, 0, 34), dtype, seed=4, **everything(initial=state_dtype))
    options = {"interpreted": place.interpreted, "state_dtype": state_dtype}
    out, states = scan(problem, return_intermediate_states=True, state_dtype=state_dtype)
    assert states.dtype == state_dtype
    check(problem, out, states=states, **options)
    out, _, cache = scan_into_cache(problem, state_dtype, state_dtype=state_dtype)
    check(problem, out, cache[1:4], **options)


@pytest.mark.parametrize("initial", STATE_DTYPES, ids=str)
def test_initial_states_need_not_have_the_dtype_of_the_states(place, initial):
    state_dtype = torch.float32 if initial != torch.float32 else torch.bfloat16
    for dstate in (16, 256):
        problem = make(place, (5, 20), dstate=dstate, seed=4, initial=initial)
        out, final = scan(problem, state_dtype=state_dtype)
        check(problem, out, final, interpreted=place.interpreted, state_dtype=state_dtype)


def test_states_default_to_the_dtype_of_c(place):
    problem = make(place, (5,), torch.float16)
    assert scan(problem)[1].dtype == torch.float16
    assert scan(problem, state_dtype=torch.float32)[1].dtype == torch.float32


def test_returned_written_and_intermediate_states_have_the_same_bits(place):
    problem = make(place, (5, 34, 16), seed=5, **everything())
    out, states = scan(problem, return_intermediate_states=True)
    again, final = scan(problem)
    fused, _, cache = scan_into_cache(problem, place.dtype)
    last = problem.metadata.last_chunk_indices.long()
    assert same_bits(states[last], final)
    assert same_bits(cache[1:4], final)
    assert same_bits(out, again)
    assert same_bits(out, fused)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype_of_cache", STATE_DTYPES, ids=str)
def test_the_fused_write_fills_its_slots_and_no_other_byte(place, dtype_of_cache, index_dtype):
    problem = make(place, (5, 0, 20), seed=6, initial=torch.float32)
    out, raw, cache = scan_into_cache(problem, dtype_of_cache, (6, 0, 3), index_dtype)
    check(problem, out, cache[[6, 0, 3]], interpreted=place.interpreted)
    assert_only_slots_changed(raw, cache, (6, 0, 3))


def test_a_negative_slot_is_skipped(place):
    problem = make(place, (5, 3, 20), seed=7)
    out, raw, cache = scan_into_cache(problem, slots=(-1, 2, -1))
    check(problem, out, interpreted=place.interpreted)
    assert_only_slots_changed(raw, cache, (2,))


def test_of_two_sequences_with_one_slot_either_wins_whole(place):
    problem = make(place, (5, 20), seed=8)
    _, final = scan(problem, state_dtype=torch.float32)
    _, raw, cache = scan_into_cache(problem, slots=(2, 2))
    # Each head's tiles are written by programs of their own, so only a tile is whole.
    assert ((cache[2] == final[0]) | (cache[2] == final[1])).all()
    assert_only_slots_changed(raw, cache, (2,))


@pytest.mark.parametrize("kinds", [{}, {"initial": torch.float32}], ids=["zeros", "initial"])
def test_an_empty_sequence_ends_in_its_initial_state(place, kinds):
    problem = make(place, (0, 5, 0, 20, 0), seed=9, **kinds)
    _, final = scan(problem, state_dtype=torch.float32)
    start = problem.options.get("initial_states", torch.zeros_like(final))
    for seq in (0, 2, 4):
        assert torch.equal(final[seq], start[seq])


def test_an_empty_sequence_may_be_marked_with_minus_one(place):
    problem = make(place, (13, 0, 20, 0), seed=10, **everything())
    out, final = scan(problem)
    metadata = problem.metadata
    metadata.last_chunk_indices[[1, 3]] = -1
    again, final_again = scan(problem, metadata=metadata)
    assert same_bits(out, again)
    assert same_bits(final, final_again)


def test_only_empty_sequences_end_in_their_initial_states(place):
    problem = make(place, (0, 0), initial=torch.float32)
    out, _, cache = scan_into_cache(problem)
    assert out.numel() == 0
    assert torch.equal(cache[1:3], problem.options["initial_states"])


def test_no_sequence_at_all_returns_no_state(place):
    out, final = scan(make(place, ()))
    assert out.shape == (0, 2, 8)
    assert final.shape == (0, 2, 8, 16)


@pytest.mark.parametrize("computed", [(0, 0, 0), (3, 16, 40)], ids=str)
def test_both_chunk_conventions_match_the_reference(place, computed):
    problem = make(place, (13, 20, 9), seed=11, **everything())
    for cut in (problem, replace(problem, computed=computed)):
        out, _, cache = scan_into_cache(cut)
        check(problem, out, cache[1:4], interpreted=place.interpreted)


@pytest.mark.parametrize("split", [1, 16, 23, 32])
@pytest.mark.parametrize("dtype_of_cache", STATE_DTYPES, ids=str)
def test_split_and_resume_matches_the_reference_of_one_shot(place, dtype_of_cache, split):
    problem = make(place, (40,), seed=12, **everything())
    whole = replace(problem, computed=(0,))
    (head, _, middle), (tail, _, end) = split_and_resume(problem, split, dtype_of_cache)
    carried = dtype_of_cache if dtype_of_cache != torch.float32 else None
    check(whole, torch.cat([head, tail]), end[1:2], interpreted=place.interpreted, carried=carried)
    check(problem.tokens(0, split), final=middle[1:2], interpreted=place.interpreted)


@pytest.mark.parametrize("split", [16, 32])
def test_split_and_resume_at_a_chunk_has_the_bits_of_one_shot(place, split):
    problem = make(place, (40,), seed=13, **everything())
    whole = replace(problem, computed=(0,))
    out, _, cache = scan_into_cache(whole, state_dtype=torch.float32)
    (head, _, _), (tail, _, end) = split_and_resume(problem, split, torch.float32)
    assert same_bits(torch.cat([head, tail]), out)
    assert same_bits(end[1:2], cache[1:2])


def split_and_resume(problem, split, dtype):
    """Return what two scans give, the second starting in the cache slot of the first."""
    (total,) = problem.lengths
    head = scan_into_cache(problem.tokens(0, split, (0,)), dtype, state_dtype=torch.float32)
    resumed = problem.tokens(split, total, (split,), initial_states=head[2][1:2].clone())
    return head, scan_into_cache(resumed, dtype, state_dtype=torch.float32)


@pytest.mark.parametrize("offset", [1, 16, 23, 32, 40])
def test_the_state_at_a_checkpoint_has_the_bits_of_a_prefix_only_run(place, offset):
    problem = make(place, (9, 40, 3), seed=14, **everything())
    marked = replace(problem, computed=(0, 5, 2), checkpoints=(0, offset, 3))
    out, states = scan(marked, return_intermediate_states=True)
    check(problem, out, interpreted=place.interpreted)
    checkpoints = marked.metadata.checkpoint_chunk_indices.tolist()
    assert checkpoints[0] == -1
    start = problem.options["initial_states"]
    for seq, first, length, computed in ((1, 9, offset, 5), (2, 49, 3, 2)):
        prefix = problem.tokens(
            first, first + length, (computed,), initial_states=start[seq : seq + 1]
        )
        _, final = scan(prefix)
        assert same_bits(states[checkpoints[seq]], final[0])
