"""Inputs of the scan's first two kernels, and how far their results may be off.

Inputs hold NaN wherever a kernel must not look: in tokens of no chunk, and behind a chunk's end.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import torch

from launchkit.kernels.ssd.reference import (
    chunk_cumsum_reference,
    chunk_state_reference,
    rounding_tolerance,
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
GUARD_BYTE = 0xA5
BEFORE, BEHIND = 2, 3
"""Tokens of NaN in front of the first chunk and behind the last one."""


def bounds_of(lengths, device="cpu", before=BEFORE):
    """Return cu_chunk_seqlens of chunks of ``lengths``, the first behind ``before`` tokens."""
    bounds = itertools.accumulate(lengths, initial=before)
    return torch.tensor(list(bounds), dtype=torch.int32, device=device)


def surround(tokens):
    """Return (T, ...) tokens between rows of NaN."""
    sizes = tokens.shape[1:]
    before, behind = (tokens.new_full((n, *sizes), torch.nan) for n in (BEFORE, BEHIND))
    return torch.cat([before, tokens, behind])


def guarded(sizes, dtype=torch.float32, device="cpu", margin=64):
    """Return (bytes, view): a dense tensor of NaN with ``margin`` guard bytes on either side."""
    width = torch.finfo(dtype).bits // 8
    count = torch.Size(sizes).numel()
    raw = torch.full((count * width + 2 * margin,), GUARD_BYTE, dtype=torch.uint8, device=device)
    view = raw[margin:-margin].view(dtype).view(sizes)
    return raw, view.fill_(torch.nan)


def margins_are_untouched(raw, margin=64):
    """Whether the guard bytes of ``guarded`` still hold their value."""
    return bool((torch.cat([raw[:margin], raw[-margin:]]) == GUARD_BYTE).all())


def make_steps(lengths, heads=3, dtype=torch.float32, seed=0, device="cpu", low=-3.0, high=2.0):
    """Return inputs of ``chunk_cumsum``: dt, A, bias and bounds."""
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(low, high, *sizes):
        return torch.rand(*sizes, generator=rng, device=device) * (high - low) + low

    return SimpleNamespace(
        dt=surround(uniform(low, high, sum(lengths), heads).to(dtype)),
        A=-uniform(0.1, 2.0, heads),
        bias=uniform(-1.0, 1.0, heads),
        bounds=bounds_of(lengths, device),
    )


def make_chunks(
    lengths,
    chunk_size=16,
    heads=4,
    headdim=5,
    dstate=16,
    groups=2,
    dtype=torch.float32,
    seed=0,
    device="cpu",
    decay=2.0,
):
    """Return inputs of ``chunk_state``: x, B, dt, dA and bounds."""
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(low, high, *sizes):
        return torch.rand(*sizes, generator=rng, device=device) * (high - low) + low

    total, sizes = sum(lengths), (heads, len(lengths), chunk_size)
    dt = uniform(0.0, 1.0, *sizes)
    dA = torch.full(sizes, torch.nan, device=device)
    for chunk, length in enumerate(lengths):
        dt[:, chunk, length:] = 0.0
        sums = (-decay * dt[:, chunk]).cumsum(1)
        dA[:, chunk, :length] = sums[:, :length]
        dA[:, chunk, -1] = sums[:, -1]
        dt[:, chunk, length:] = torch.nan
    return SimpleNamespace(
        x=surround(uniform(-2.0, 2.0, total, heads, headdim).to(dtype)),
        B=surround(uniform(-1.0, 1.0, total, groups, dstate).to(dtype)),
        dt=dt,
        dA=dA,
        bounds=bounds_of(lengths, device),
    )


def assert_within(actual, expected, limit):
    """Compare with float64: NaN in the same places, elsewhere no further off than ``limit``."""
    actual = actual.double().cpu()
    assert torch.equal(actual.isnan(), expected.isnan())
    excess = (actual - expected).abs() - limit
    assert excess.nan_to_num(-1.0, posinf=torch.inf).max().item() <= 0


def check_steps(case, result, chunk_size, **options):
    """Compare ``chunk_cumsum``'s result with float64.

    A step costs a few roundings and, as an exponential, as many more as its argument is large.
    A sum costs one rounding for each of at most 16 levels, of all that it has summed up.
    """
    dA_cumsum, steps = result
    args = (case.A, chunk_size, case.bounds)
    expected_sums, expected = chunk_cumsum_reference(case.dt, *args, **options)
    bias = options.get("dt_bias")
    exponents = case.dt.double() + (0.0 if bias is None else bias.double())
    _, sizes = chunk_cumsum_reference(exponents.abs(), *args)
    unit = 2.0**-24
    limit = 8 * unit * (1 + sizes) * expected.abs() + torch.finfo(torch.float32).tiny
    assert_within(steps, expected, limit)
    decay = case.A.double().cpu().abs()[:, None, None]
    summed = (decay * expected.abs()).cumsum(2)
    assert_within(dA_cumsum, expected_sums, (decay * limit).cumsum(2) + 16 * unit * summed)


def check_states(case, states, relative=0.0):
    """Compare ``chunk_state``'s result with float64.

    relative: roundoff of the product's operands as a share of what is summed. Scaled B of
    fp16 may be subnormal, where its roundoff is a constant.
    """
    args = (case.dt, case.dA, case.bounds)
    expected = chunk_state_reference(case.x, case.B, *args)
    magnitude = chunk_state_reference(case.x.abs(), case.B.abs(), *args)
    # A decay is off by its exponent's roundoff, and is 0 from -104 on.
    steps = case.dt.shape[2] + 2 * min(case.dA.nan_to_num(0.0).abs().max().item(), 104.0)
    limit = rounding_tolerance(expected, magnitude, steps, torch.float32, relative)
    if case.x.dtype == torch.float16:
        ones = torch.ones_like(case.dt), torch.zeros_like(case.dA), case.bounds
        limit = limit + 2.0**-25 * chunk_state_reference(
            case.x.abs(), torch.ones_like(case.B), *ones
        )
    assert_within(states, expected, limit)
