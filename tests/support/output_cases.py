"""Inputs of the scan's last two kernels, and how far their results may be off.

Inputs hold NaN wherever a kernel must not look: in tokens of no chunk, behind a chunk's end,
above a diagonal, in states that no chunk starts from.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import torch
from chunk_cases import assert_within, bounds_of, surround

from launchkit.kernels.ssd.reference import (
    bmm_chunk_reference,
    chunk_scan_reference,
    rounding_tolerance,
)
from launchkit.kernels.ssd.tiles import product_dtype

TF32_CUT = 2.0**-10
"""What tensor cores drop of an fp32 operand, as a share of it: they keep 10 bits, cut off."""

SCAN_TENSORS = ("CB", "x", "dt", "dA", "C", "states", "bounds", "seq_idx")


def half_ulp(dtype):
    return torch.finfo(dtype).eps / 2


def make_products(
    lengths, chunk_size=16, groups=2, dstate=16, dtype=torch.float32, seed=0, device="cpu"
):
    """Return inputs of ``bmm_chunk``: C, B, chunk_size and bounds."""
    rng = torch.Generator(device).manual_seed(seed)

    def tokens():
        sizes = (sum(lengths), groups, dstate)
        values = torch.rand(*sizes, generator=rng, device=device) * 2 - 1
        return surround(values.to(dtype))

    bounds = bounds_of(lengths, device)
    return SimpleNamespace(C=tokens(), B=tokens(), chunk_size=chunk_size, bounds=bounds)


def check_products(case, CB, exact_fp32=False):
    """Compare ``bmm_chunk``'s result with float64; exactly 0 behind a chunk's end.

    exact_fp32: products of fp32 are not cut to TF32, as in the interpreter.
    """
    args = (case.chunk_size, case.bounds)
    expected = bmm_chunk_reference(case.C, case.B, *args)
    magnitude = bmm_chunk_reference(case.C.abs(), case.B.abs(), *args)
    dtype = product_dtype(case.C.dtype, case.B.dtype)
    relative = 0.0 if exact_fp32 else 2 * TF32_CUT
    if dtype != torch.float32:
        relative = half_ulp(dtype) if case.C.dtype != case.B.dtype else 0.0
    steps = 1 + case.C.shape[2] / 8
    limit = rounding_tolerance(expected, magnitude, steps, CB.dtype, relative)
    if relative and dtype == torch.float16:
        ones = torch.ones_like(case.C)
        limit = limit + 2.0**-25 * (
            bmm_chunk_reference(case.C.abs(), ones, *args)
            + bmm_chunk_reference(ones, case.B.abs(), *args)
        )
    assert_within(CB, expected, torch.where(magnitude == 0, 0.0, limit))


def make_scan(
    lengths,
    sequences,
    chunk_size=16,
    heads=4,
    headdim=5,
    dstate=16,
    groups=2,
    dtype=torch.float32,
    state_dtype=None,
    seed=0,
    device="cpu",
    decay=2.0,
    D=None,
    z=False,
    initial=False,
):
    """Return inputs of ``chunk_scan``: chunks of ``lengths``, each one's sequence in ``sequences``.

    D: "head", "channel" or None. z, initial: whether there are any; ``initial`` may be a dtype.
    """
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(*sizes):
        return torch.rand(*sizes, generator=rng, device=device) * 2 - 1

    nchunks, total = len(lengths), sum(lengths)
    state_dtype = state_dtype or dtype
    dt = (uniform(heads, nchunks, chunk_size) + 1) / 2
    states = uniform(nchunks, heads, headdim, dstate).to(state_dtype)
    num_seqs = max(sequences, default=-1) + 1
    initial_states = uniform(num_seqs, heads, headdim, dstate)
    initial_states[[s for s in range(num_seqs) if s not in sequences]] = torch.nan
    if isinstance(initial, bool):
        initial = state_dtype if initial else None
    skip = {"head": (heads,), "channel": (heads, headdim), None: ()}[D]
    case = SimpleNamespace(
        CB=uniform(nchunks, groups, chunk_size, chunk_size),
        x=surround(uniform(total, heads, headdim).to(dtype)),
        dt=dt,
        dA=(-decay * dt).cumsum(2),
        C=surround(uniform(total, groups, dstate).to(dtype)),
        states=states,
        bounds=bounds_of(lengths, device),
        seq_idx=torch.tensor(sequences, dtype=torch.int32, device=device),
        D=uniform(*skip) if D else None,
        z=surround(4 * uniform(total, heads, headdim).to(dtype)) if z else None,
        initial=initial_states.to(initial) if initial else None,
        lengths=tuple(lengths),
    )
    spoil_what_is_not_read(case, sequences)
    return case


def spoil_what_is_not_read(case, sequences):
    """Put NaN behind chunks' ends, above diagonals, and in states that no chunk starts from."""
    above = torch.ones(case.CB.shape[2:], device=case.CB.device).triu(1) > 0
    case.CB[:, :, above] = torch.nan
    for chunk, length in enumerate(case.lengths):
        case.CB[chunk, :, length:] = torch.nan
        case.CB[chunk, :, :, length:] = torch.nan
        case.dt[:, chunk, length:] = torch.nan
        case.dA[:, chunk, length:] = torch.nan
    following = itertools.zip_longest(sequences, sequences[1:])
    for chunk, (own, after) in enumerate(following):
        if own != after:
            case.states[chunk] = torch.nan


def fresh_output(case, dtype=None):
    """Return an output full of NaN, which tokens of no chunk must keep."""
    return torch.full_like(case.x, torch.nan, dtype=dtype or case.x.dtype)


def scan_arguments(case, out):
    """Return the arguments of ``chunk_scan`` and ``launch_chunk_scan``, in order."""
    tensors = (getattr(case, name) for name in SCAN_TENSORS)
    return (*tensors, out, case.D, case.z, case.initial)


def expected_output(case):
    """Return the float64 output, NaN for tokens of no chunk."""
    tensors = (getattr(case, name) for name in SCAN_TENSORS)
    return chunk_scan_reference(*tensors, case.D, case.z, case.initial)


def check_output(case, out, exact_fp32=False):
    """Compare ``chunk_scan``'s result with float64, within the roundings that it may make."""
    expected = expected_output(case)
    magnitude = _absolute(case)
    gate = 1.0 if case.z is None else torch.nn.functional.silu(case.z.double().cpu()).abs()
    # An exponential is as uncertain as its argument is large, until nothing is left of it.
    exponents = [case.dA] if case.z is None else [case.dA, case.z]
    largest = sum(min(t.nan_to_num(0.0).abs().max().item(), 104.0) for t in exponents)
    steps = 4 + (case.dA.shape[2] + case.C.shape[2] + 4 * largest) / 8
    relative = max(_roundoff(case.x.dtype, exact_fp32), _roundoff(case.C.dtype, exact_fp32))
    limit = rounding_tolerance(expected, magnitude * gate, steps, out.dtype, relative)
    if torch.float16 in (case.x.dtype, case.C.dtype):
        # Weights and states below fp16's normal range keep a constant error.
        limit = limit + 2.0**-25 * _absolute(case, ones=True) * gate
    assert_within(out, expected, limit)


def _roundoff(dtype, exact_fp32):
    """Return what the two operands of a product lose, the computed or the stored one."""
    if dtype == torch.float32:
        return 0.0 if exact_fp32 else 2 * TF32_CUT
    return half_ulp(dtype)


def _absolute(case, ones=False):
    """Return the output's sums over absolute values, before the gate.

    ones: with weights, states and decays of one.
    """
    sums = {name: getattr(case, name) for name in SCAN_TENSORS}
    for name in ("CB", "x", "C", "states"):
        sums[name] = sums[name].abs()
    initial = None if case.initial is None else case.initial.abs()
    D = None if case.D is None else case.D.abs()
    if ones:
        sums |= {name: torch.ones_like(sums[name]) for name in ("CB", "dt", "states")}
        sums["dA"] = torch.zeros_like(case.dA)
        initial = None if initial is None else torch.ones_like(initial)
    return chunk_scan_reference(*sums.values(), D, None, initial)
