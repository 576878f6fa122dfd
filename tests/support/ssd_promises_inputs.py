"""What the whole scan promises of the tensors it reads, in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``place``; see ``ssd_promises``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from ssd_cases import check, everything, make_problem, same_bits, scan, scan_into_cache

TOKENS = ("x", "dt", "B", "C")


def make(place, lengths, **kinds):
    return make_problem(lengths, dtype=place.dtype, device=place.device, **kinds)


def convert(problem, change):
    """Return the problem with every tensor of tokens, z too, put through ``change``."""
    tokens = {name: change(getattr(problem, name)) for name in TOKENS}
    return replace(problem, **tokens).with_options(z=change(problem.options["z"]))


def columns_of_one_projection(problem):
    """Return the problem with its tensors as columns of one (T, width) tensor, and an out there.

    So does a layer whose input projection makes all of them at once.
    """
    flat = [getattr(problem, name).flatten(1) for name in TOKENS]
    flat += [problem.options["z"].flatten(1), torch.full_like(flat[0], torch.nan)]
    projection = torch.cat(flat, dim=1)
    parts = list(projection.split([part.shape[1] for part in flat], dim=1))
    shapes = [getattr(problem, name).shape[1:] for name in TOKENS] + [problem.x.shape[1:]] * 2
    x, dt, B, C, z, out = (
        part.unflatten(1, shape) for part, shape in zip(parts, shapes, strict=True)
    )
    return replace(problem, x=x, dt=dt, B=B, C=C).with_options(z=z), out, projection


def last_dimension_first(tensor):
    """Return equal values, with the tokens lying next to each other in memory."""
    return tensor.movedim(0, -1).contiguous().movedim(-1, 0)


def every_other(tensor):
    """Return equal values, each with a NaN behind it in memory."""
    spread = torch.full((*tensor.shape, 2), torch.nan, dtype=tensor.dtype, device=tensor.device)
    return spread[..., 0].copy_(tensor)


def off_alignment(tensor):
    """Return equal values at an address that is aligned to one element only."""
    longer = tensor.new_empty(tensor.numel() + 1)
    return longer[1:].view(tensor.shape).copy_(tensor)


def amid_nan(tensor):
    """Return equal values with NaN before the first token and behind the last."""
    padded = torch.full_like(tensor.new_empty(len(tensor) + 40, *tensor.shape[1:]), torch.nan)
    return padded[20:-20].copy_(tensor)


def with_small_tensors(problem, change):
    """Return the problem with what does not grow with the tokens put through ``change``."""
    names = ("D", "dt_bias", "initial_states")
    options = {name: change(problem.options[name]) for name in names}
    return replace(problem, A=change(problem.A)).with_options(**options)


def assert_unchanged(place, problem, expected, actual):
    """Raise unless both runs gave (out, states) alike.

    The interpreter gives the same bits. A GPU may add in another order where memory is laid
    out in another way, so there the reference decides.
    """
    if place.interpreted:
        assert all(same_bits(left, right) for left, right in zip(expected, actual, strict=True))
    else:
        check(problem, *actual)


def test_columns_of_one_projection_are_read_and_written_in_place(place):
    problem = make(place, (5, 30), seed=20, **everything())
    columns, out, projection = columns_of_one_projection(problem)
    before = projection.clone()
    assert_unchanged(place, problem, scan(problem), scan(columns, out=out))
    unread = projection.shape[1] - problem.x[0].numel()
    assert same_bits(projection[:, :unread], before[:, :unread])


@pytest.mark.parametrize(
    "change",
    [last_dimension_first, every_other, off_alignment, amid_nan],
    ids=lambda change: change.__name__,
)
def test_views_of_any_stride_and_alignment_change_nothing(place, change):
    problem = make(place, (5, 30), seed=21, **everything())
    out = change(torch.full_like(problem.x, torch.nan))
    assert_unchanged(place, problem, scan(problem), scan(convert(problem, change), out=out))


@pytest.mark.parametrize(
    "change", [last_dimension_first, every_other, off_alignment], ids=lambda change: change.__name__
)
def test_small_tensors_of_any_stride_and_alignment_change_nothing(place, change):
    problem = make(place, (5, 30), seed=22, **everything())
    changed = with_small_tensors(problem, change)
    assert_unchanged(place, problem, scan(problem), scan(changed))


def test_initial_states_with_p_and_n_transposed_are_read_right(place):
    problem = make(place, (5, 30), seed=23, **everything())
    transposed = problem.options["initial_states"].mT.contiguous().mT
    changed = problem.with_options(initial_states=transposed)
    assert_unchanged(place, problem, scan(problem), scan(changed))


def test_metadata_at_any_offset_gives_the_same_bits(place):
    problem = make(place, (5, 0, 30), seed=24, **everything())
    expected, final = scan(problem)
    names = ("cu_seqlens", "cu_chunk_seqlens", "seq_idx", "last_chunk_indices")
    metadata = problem.metadata
    moved = {name: off_alignment(getattr(metadata, name)) for name in names}
    written, again = scan(problem, metadata=replace(metadata, **moved))
    assert same_bits(written, expected)
    assert same_bits(again, final)


def test_slot_indices_may_be_a_column_of_a_table(place):
    problem = make(place, (5, 30), seed=25)
    _, _, expected = scan_into_cache(problem)
    table = torch.full((2, 3), 99, dtype=torch.int32, device=place.device)
    table[:, 1] = torch.tensor([2, 1], device=place.device)
    cache = torch.full_like(expected, torch.nan)
    scan(problem, final_states_out=cache, final_state_indices=table[:, 1])
    assert same_bits(cache[[2, 1]], expected[[1, 2]])
    assert cache[[0, 3]].isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_output_is_rounded_to_its_own_dtype(place, dtype):
    problem = make(place, (5, 30), seed=26, **everything())
    out, _ = scan(problem, out=torch.full_like(problem.x, torch.nan, dtype=dtype))
    check(problem, out, interpreted=place.interpreted)


def test_dt_may_be_wider_than_the_activations(place):
    problem = make(place, (5, 30), seed=27, **everything())
    wide = replace(problem, dt=problem.dt.float(), A=problem.A.bfloat16())
    out, final = scan(wide)
    check(wide, out, final, interpreted=place.interpreted)


def test_nan_of_one_sequence_stays_there(place):
    problem = make(place, (13, 5, 20), seed=28, **everything())
    expected, final = scan(problem)
    poisoned = convert(problem, lambda tensor: tensor.clone())
    for tensor in (poisoned.x, poisoned.dt, poisoned.B, poisoned.C, poisoned.options["z"]):
        tensor[13:18] = torch.nan
    initial = problem.options["initial_states"].clone()
    initial[1] = torch.nan
    out, final_again = scan(poisoned.with_options(initial_states=initial))
    assert same_bits(out[:13], expected[:13])
    assert same_bits(out[18:], expected[18:])
    assert same_bits(final_again[[0, 2]], final[[0, 2]])


def test_nan_of_later_tokens_reaches_no_earlier_chunk(place):
    problem = make(place, (30,), seed=29, **everything())
    expected, _ = scan(problem)
    # A chunk's tokens are one product, in which a later x counts as zero times x.
    for name, clean in (("x", 16), ("B", 20), ("C", 20), ("dt", 16)):
        poisoned = convert(problem, lambda tensor: tensor.clone())
        getattr(poisoned, name)[20:] = torch.nan
        out, _ = scan(poisoned)
        assert same_bits(out[:clean], expected[:clean])
        assert out[20:].isnan().all()


def test_nan_in_the_cache_does_not_leak(place):
    problem = make(place, (5, 20), seed=30)
    expected, final = scan(problem, state_dtype=torch.float32)
    cache = torch.full((5, *final.shape[1:]), torch.nan, device=place.device)
    slots = torch.tensor([4, -1], device=place.device)
    out, _ = scan(
        problem, final_states_out=cache, final_state_indices=slots, state_dtype=torch.float32
    )
    assert same_bits(out, expected)
    assert same_bits(cache[4], final[0])
    assert cache[:4].isnan().all()


@pytest.mark.parametrize("size", [1e3, 1e5, 1e30])
def test_a_strong_decay_leaves_only_a_token_itself(place, size):
    problem = make(place, (5, 30), seed=31, D="head", initial=torch.float32)
    # Steps are 0.01 and more, so that every decay is too small even for float64.
    strong = replace(problem, A=problem.A - size * 1e2)
    out, final = scan(strong)
    check(strong, out, final, interpreted=place.interpreted, steps=64)


def test_sums_that_round_up_do_not_overflow(place):
    problem = make(place, (64,), chunk_size=64, seed=32)
    # Half of the steps are 0, the rest decay by 60 to 200: the sum reaches thousands.
    dt = torch.where(problem.x[..., 0] > 0, 0, 20 + 70 * problem.dt)
    steep = replace(problem, dt=dt, A=problem.A - 3.0)
    out, final = scan(steep, state_dtype=torch.float32)
    check(steep, out, final, interpreted=place.interpreted)


def test_softplus_turns_into_the_identity_at_twenty(place):
    problem = make(place, (5, 30), seed=33, softplus=True)
    dt = torch.linspace(18, 22, problem.dt.numel(), device=place.device).view_as(problem.dt)
    near = replace(problem, dt=dt, A=problem.A / 100)
    out, final = scan(near)
    check(near, out, final, interpreted=place.interpreted)


def test_both_limits_bind(place):
    problem = make(place, (5, 30), seed=34, limit=(0.05, 0.2))
    assert (problem.dt < 0.05).any()
    assert (problem.dt > 0.2).any()
    out, final = scan(problem)
    check(problem, out, final, interpreted=place.interpreted)
    clamped = replace(problem, dt=problem.dt.float().clamp(0.05, 0.2))
    again, _ = scan(clamped.with_options(dt_limit=(0.0, torch.inf)))
    assert same_bits(out, again)


def test_the_inputs_are_left_as_they_were(place):
    problem = make(place, (5, 30), seed=35, **everything())
    tensors = [getattr(problem, name) for name in (*TOKENS, "A")]
    tensors += [value for value in problem.options.values() if isinstance(value, torch.Tensor)]
    before = [tensor.clone() for tensor in tensors]
    scan_into_cache(problem)
    assert all(same_bits(tensor, copy) for tensor, copy in zip(tensors, before, strict=True))
