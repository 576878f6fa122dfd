"""The float64 forms of the scan agree: recurrence, chunks, and one sum over all pairs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from chunk_cases import picker
from ssd_cases import check, chunked, everything, magnitudes, make_problem, recurrence

from launchkit.kernels.ssd.reference import (
    bmm_chunk_reference,
    chunk_cumsum_reference,
    chunk_scan_reference,
    chunk_state_reference,
    steps_reference,
)


def sum_over_pairs(problem):
    """Return the output as each token's sum over all tokens before it, without any state."""
    p = problem.options
    ratio = problem.x.shape[1] // problem.B.shape[1]
    x = problem.x.double()
    B, C = (t.double().repeat_interleave(ratio, 1) for t in (problem.B, problem.C))
    d = problem.dt.double() + p.get("dt_bias", torch.zeros(())).double()
    if p.get("dt_softplus"):
        d = torch.nn.functional.softplus(d, threshold=20)
    d = d.clamp(*p.get("dt_limit", (0.0, torch.inf)))
    y = torch.empty_like(x)
    for seq, (start, stop) in enumerate(zip(problem.bounds, problem.bounds[1:], strict=False)):
        own = slice(start, stop)
        dA = (d[own] * problem.A.double()).T
        # between[h, t, s]: the sum of dA over s < r <= t.
        between = torch.zeros(len(dA), stop - start, stop - start, dtype=torch.float64)
        for t in range(stop - start):
            for s in range(t):
                between[:, t, s] = dA[:, s + 1 : t + 1].sum(1)
        weights = torch.einsum("thn,shn->hts", C[own], B[own]) * between.exp()
        weights = weights.tril() * d[own].T[:, None, :]
        y[own] = torch.einsum("hts,shp->thp", weights, x[own])
        if "initial_states" in p:
            before = dA.cumsum(1).exp().T[:, :, None]
            state = p["initial_states"][seq].double()
            y[own] += before * torch.einsum("thn,hpn->thp", C[own], state)
    if "D" in p:
        y += x * p["D"].double().reshape(x.shape[1], -1)
    z = p.get("z")
    return y if z is None else y * z.double() / (1 + (-z.double()).exp())


def assert_equal(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)


LENGTHS = [
    (1,),
    (16,),
    (37,),
    (5, 0, 12, 1),
    (0, 0, 21, 0),
    (0, 33, 8),
    (1, 1, 1, 1, 1),
    (0, 0),
    (),
]
KINDS = {
    "bare": {},
    "everything": everything(),
    "everything, D a head": everything(D="head"),
    "initial states": {"initial": torch.float32},
    "softplus": {"softplus": True, "bias": True},
    "gate": {"z": True},
}


@pytest.mark.parametrize("kinds", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_the_three_forms_agree(lengths, kinds):
    problem = make_problem(lengths, heads=4, groups=2, chunk_size=8, seed=len(lengths), **kinds)
    out, final = recurrence(problem)
    by_chunks, states, chunked_final = chunked(problem)
    assert_equal(by_chunks, out)
    assert_equal(chunked_final, final)
    assert_equal(sum_over_pairs(problem), out)
    for seq, chunk in enumerate(problem.metadata.last_chunk_indices.tolist()):
        if problem.lengths[seq]:
            assert_equal(states[chunk], final[seq])


@pytest.mark.parametrize("seed", range(12))
def test_random_sizes_agree_in_both_chunk_conventions(seed):
    pick = picker(seed)
    groups = pick(1, 4)
    lengths = tuple(pick(0, 30) for _ in range(pick(1, 6)))
    problem = make_problem(
        lengths,
        heads=groups * pick(1, 4),
        headdim=pick(1, 9),
        dstate=pick(1, 12),
        groups=groups,
        chunk_size=2 ** pick(0, 6),
        seed=seed,
        **(everything() if seed % 2 else {}),
    )
    out, final = recurrence(problem)
    computed = tuple(pick(0, 50) for _ in lengths)
    checkpoints = tuple(pick(0, length + 1) for length in lengths)
    for cut in (problem, replace(problem, computed=computed, checkpoints=checkpoints)):
        by_chunks, _, chunked_final = chunked(cut)
        assert_equal(by_chunks, out)
        assert_equal(chunked_final, final)


def test_a_state_at_a_checkpoint_is_the_final_one_of_the_tokens_before_it():
    problem = make_problem((40,), chunk_size=16, initial=torch.float32)
    for offset in (1, 16, 23, 40):
        cut = replace(problem, computed=(5,), checkpoints=(offset,))
        (chunk,) = cut.metadata.checkpoint_chunk_indices.tolist()
        _, prefix = recurrence(problem.tokens(0, offset))
        assert_equal(chunked(cut)[1][chunk], prefix[0])


def test_resuming_from_the_final_state_continues_the_sequence():
    problem = make_problem((40,), **everything())
    out, final = recurrence(problem)
    head, middle = recurrence(problem.tokens(0, 17))
    tail, end = recurrence(problem.tokens(17, 40, initial_states=middle))
    assert_equal(torch.cat([head, tail]), out)
    assert_equal(end, final)


def test_softplus_is_the_identity_above_twenty():
    dt = torch.tensor([[-3.0, 19.5, 20.0, 20.5, 400.0]])
    steps = steps_reference(dt, dt_softplus=True)[0]
    assert_equal(steps[:3], (1 + dt[0, :3].double().exp()).log())
    assert steps[3:].tolist() == [20.5, 400.0]
    assert steps_reference(dt, torch.tensor([1.0] * 5), True, (0.5, 100.0))[0, 4] == 100.0


def test_the_cumulative_sum_stands_still_behind_a_short_chunk():
    problem = make_problem((3, 11), heads=4, chunk_size=8)
    sums, steps = chunk_cumsum_reference(
        problem.dt, problem.A, 8, problem.metadata.cu_chunk_seqlens
    )
    assert sums.shape == steps.shape == (4, 3, 8)
    assert (steps[:, 0, 3:] == 0).all()
    assert (steps[:, 0, :3] > 0).all()
    assert (sums[:, 0, 3:] == sums[:, 0, 2:3]).all()


def test_each_step_reads_nothing_behind_the_end_of_a_chunk():
    problem = make_problem((3, 11), chunk_size=8, initial=torch.float32)
    p, bounds = problem, problem.metadata.cu_chunk_seqlens
    sums, steps = chunk_cumsum_reference(p.dt, p.A, 8, bounds)
    alone = chunk_state_reference(p.x, p.B, steps, sums, bounds)
    CB = bmm_chunk_reference(p.C, p.B, 8, bounds)
    assert CB[0, :, 3:].abs().max() == 0 == CB[0, :, :, 3:].abs().max()
    steps[:, 0, 3:], sums[:, 0, 3:-1], CB[0, :, 3:], CB[0, :, :, 3:] = (torch.nan,) * 4
    assert torch.equal(chunk_state_reference(p.x, p.B, steps, sums, bounds), alone)
    CB.masked_fill_(torch.ones(8, 8).triu(1) > 0, torch.nan)
    out, states, _ = chunked(p)
    start = p.options["initial_states"]
    seq_idx = p.metadata.seq_idx
    again = chunk_scan_reference(
        CB, p.x, steps, sums, p.C, states, bounds, seq_idx, initial_states=start
    )
    assert_equal(again, out)


def test_magnitudes_bound_the_values():
    problem = make_problem((40, 9), **everything())
    for value, magnitude in zip(chunked(problem), magnitudes(problem), strict=True):
        assert (value.abs() <= magnitude * (1 + 1e-12)).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounded_inputs_are_taken_as_they_are(dtype):
    problem = make_problem((20,), dtype=dtype, **everything(initial=dtype))
    wide = replace(problem, **{name: getattr(problem, name).float() for name in "xBC"})
    wide = replace(wide, dt=problem.dt.float())
    assert torch.equal(recurrence(problem)[0], recurrence(wide)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_the_tolerance_passes_roundings(dtype):
    problem = make_problem((40, 9), dtype=dtype, **everything())
    out, final = recurrence(problem)
    check(problem, out.to(dtype), final.to(dtype), chunked(problem)[1].to(dtype))
    check(problem, out.float(), final.float(), interpreted=True)


def drop_the_oldest_token(problem):
    x = problem.x.clone()
    x[0] = 0
    return replace(problem, x=x)


def swap_the_groups(problem):
    return replace(problem, B=problem.B.flip(1))


def start_the_second_sequence_from_the_first(problem):
    return replace(problem, lengths=(49, 0))


def decay_a_ten_thousandth_more(problem):
    return replace(problem, A=problem.A * 1.0001)


def forget_the_initial_states(problem):
    return problem.with_options(initial_states=None)


def take_another_limit(problem):
    return problem.with_options(dt_limit=(0.02, 1.499))


FAULTS = (
    drop_the_oldest_token,
    swap_the_groups,
    start_the_second_sequence_from_the_first,
    decay_a_ten_thousandth_more,
    forget_the_initial_states,
    take_another_limit,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_tolerance_of_exact_products_tells_a_fault_from_rounding(fault):
    problem = make_problem((40, 9), heads=4, groups=2, **everything())
    out, _ = recurrence(fault(problem))
    with pytest.raises(AssertionError, match="what rounding explains"):
        check(problem, out.float(), interpreted=True)
