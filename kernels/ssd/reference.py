"""What the kernels of the scan must compute, in float64 and plain torch. For tests.

Slow and obvious on purpose. Shares no code with the kernels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch


def ssd_recurrence_reference(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    cu_seqlens: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scan's output (T, H, P) and final states (S, H, P, N), token by token.

    Arguments are those of ``mamba_chunk_scan_combined_varlen``. This is the definition of the
    state-space model, without chunks. Both results are float64 on the CPU; tokens that belong
    to no sequence are NaN.
    """
    nheads = x.shape[1]
    wide, keys, queries = _wide(x), _per_head(B, nheads), _per_head(C, nheads)
    steps = steps_reference(dt, dt_bias, dt_softplus, dt_limit)
    decays = (steps * _wide(A)).exp()
    final = _initial_states(x, B, len(cu_seqlens) - 1, initial_states)
    out = torch.full(x.shape, torch.nan, dtype=torch.float64)
    for state, tokens in zip(final, _spans(cu_seqlens), strict=True):
        for t in range(tokens.start, tokens.stop):
            added = (steps[t, :, None] * wide[t])[:, :, None] * keys[t][:, None, :]
            state.mul_(decays[t][:, None, None]).add_(added)
            out[t] = (state @ queries[t][:, :, None]).squeeze(2)
    return _with_skip_and_gate(out, wide, D, z), final


def ssd_chunked_reference(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    seq_idx: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (output, states after every chunk, final states) by the five steps of the kernels.

    Arguments are those of ``mamba_chunk_scan_combined_varlen``; shapes (T, H, P), (nchunks, H,
    P, N) and (S, H, P, N), float64, on the CPU. Many times faster than the recurrence.
    """
    bounds = cu_chunk_seqlens
    dA_cumsum, steps = chunk_cumsum_reference(
        dt, A, chunk_size, bounds, dt_bias, dt_softplus, dt_limit
    )
    alone = chunk_state_reference(x, B, steps, dA_cumsum, bounds)
    passed, final = state_passing_reference(
        alone.flatten(2), dA_cumsum, last_chunk_indices, initial_states
    )
    states = passed.reshape(alone.shape)
    CB = bmm_chunk_reference(C, B, chunk_size, bounds)
    out = chunk_scan_reference(
        CB, x, steps, dA_cumsum, C, states, bounds, seq_idx, D, z, initial_states
    )
    return out, states, final.reshape(-1, *alone.shape[1:])


def steps_reference(
    dt: torch.Tensor,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
) -> torch.Tensor:
    """Return the float64 step of every token and head, (T, H), that ``dt`` stands for."""
    steps = _wide(dt)
    if dt_bias is not None:
        steps = steps + _wide(dt_bias)
    if dt_softplus:
        steps = torch.where(steps <= 20, steps.exp().log1p(), steps)
    return steps.clamp(*dt_limit)


def chunk_cumsum_reference(
    dt: torch.Tensor,
    A: torch.Tensor,
    chunk_size: int,
    cu_chunk_seqlens: torch.Tensor,
    dt_bias: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (dA_cumsum, dt_out) of ``chunk_cumsum``, float64 (H, nchunks, chunk_size).

    Behind the end of a shorter chunk dt_out is 0 and dA_cumsum the chunk's total.
    """
    steps = steps_reference(dt, dt_bias, dt_softplus, dt_limit)
    spans = list(_spans(cu_chunk_seqlens))
    dt_out = torch.zeros(dt.shape[1], len(spans), chunk_size, dtype=torch.float64)
    for chunk, tokens in enumerate(spans):
        dt_out[:, chunk, : tokens.stop - tokens.start] = steps[tokens].T
    return (dt_out * _wide(A)[:, None, None]).cumsum(2), dt_out


def chunk_state_reference(
    x: torch.Tensor,
    B: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
) -> torch.Tensor:
    """Return what each chunk alone adds to the state, float64 (nchunks, H, P, N).

    dt, dA_cumsum: as ``chunk_cumsum`` returns them, (H, nchunks, chunk_size).
    """
    nheads, nchunks, _ = dt.shape
    wide, keys = _wide(x), _per_head(B, nheads)
    sums, steps = _wide(dA_cumsum), _wide(dt)
    states = torch.zeros(nchunks, nheads, x.shape[2], B.shape[2], dtype=torch.float64)
    for chunk, tokens in enumerate(_spans(cu_chunk_seqlens)):
        length = tokens.stop - tokens.start
        left = (sums[:, chunk, -1:] - sums[:, chunk, :length]).clamp(max=0).exp()
        scale = left * steps[:, chunk, :length]
        states[chunk] = torch.einsum("hk,khp,khn->hpn", scale, wide[tokens], keys[tokens])
    return states


def bmm_chunk_reference(
    C: torch.Tensor, B: torch.Tensor, chunk_size: int, cu_chunk_seqlens: torch.Tensor
) -> torch.Tensor:
    """Return CB[c, g, m, k] = C[m] . B[k] within each chunk, float64; 0 behind its end."""
    wide_C, wide_B = _wide(C), _wide(B)
    spans = list(_spans(cu_chunk_seqlens))
    CB = torch.zeros(len(spans), C.shape[1], chunk_size, chunk_size, dtype=torch.float64)
    for chunk, tokens in enumerate(spans):
        length = tokens.stop - tokens.start
        products = torch.einsum("mgn,kgn->gmk", wide_C[tokens], wide_B[tokens])
        CB[chunk, :, :length, :length] = products
    return CB


def chunk_scan_reference(
    CB: torch.Tensor,
    x: torch.Tensor,
    dt: torch.Tensor,
    dA_cumsum: torch.Tensor,
    C: torch.Tensor,
    states: torch.Tensor,
    cu_chunk_seqlens: torch.Tensor,
    seq_idx: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the scan's output, float64 (T, H, P); NaN for tokens in no chunk.

    Arguments are those of ``chunk_scan``; CB, dt and dA_cumsum are not read behind a chunk's
    end nor CB above its diagonal.
    """
    nheads, ngroups = x.shape[1], C.shape[1]
    wide, queries = _wide(x), _per_head(C, nheads)
    products = _wide(CB).repeat_interleave(nheads // ngroups, dim=1)
    sums, steps, entering = _wide(dA_cumsum), _wide(dt), _wide(states).roll(1, 0)
    sequences = seq_idx.tolist()
    fresh = _initial_states(x, C, max([0, *sequences]) + 1, initial_states)
    out = torch.full(x.shape, torch.nan, dtype=torch.float64)
    for chunk, tokens in enumerate(_spans(cu_chunk_seqlens)):
        length = tokens.stop - tokens.start
        resumes = chunk > 0 and sequences[chunk - 1] == sequences[chunk]
        state = entering[chunk] if resumes else fresh[sequences[chunk]]
        own = sums[:, chunk, :length]
        between = (own[:, :, None] - own[:, None, :]).clamp(max=0).exp()
        weights = products[chunk, :, :length, :length] * between * steps[:, chunk, None, :length]
        causal = torch.ones(length, length).tril() > 0
        inside = weights.where(causal, 0.0) @ wide[tokens].transpose(0, 1)
        decayed = own.exp()[:, :, None] * (queries[tokens].transpose(0, 1) @ state.mT)
        out[tokens] = (inside + decayed).transpose(0, 1)
    return _with_skip_and_gate(out, wide, D, z)


def state_passing_reference(
    states: torch.Tensor,
    dA_cumsum: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    initial_states: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the float64 states after every chunk, and each sequence's final state.

    Arguments are those of ``state_passing``. The result's shapes are (nchunks, H, P*N), with NaN
    for chunks that belong to no sequence, and (S, H, P*N). Both are on the CPU.

    Each state is written out as the sum over all that went into it, every summand decayed by
    what lies between, instead of being carried from chunk to chunk as the kernel does.
    """
    nchunks, nheads, dim = states.shape
    num_seqs = last_chunk_indices.shape[0]
    wide = states.double().cpu()
    totals = dA_cumsum[:, :, -1].double().cpu()
    initial = torch.zeros(num_seqs, nheads, dim, dtype=torch.float64)
    if initial_states is not None:
        initial = initial_states.double().cpu().reshape(num_seqs, nheads, dim)
    out = torch.full((nchunks, nheads, dim), torch.nan, dtype=torch.float64)
    final = initial.clone()
    first = 0
    for seq, last in enumerate(last_chunk_indices.tolist()):
        for chunk in range(first, last + 1):
            state = _decay(totals, first, chunk) * initial[seq]
            for source in range(first, chunk + 1):
                state = state + _decay(totals, source + 1, chunk) * wide[source]
            out[chunk] = state
            final[seq] = state
        first = max(first, last + 1)
    return out, final


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double().cpu()


def _per_head(grouped: torch.Tensor, nheads: int) -> torch.Tensor:
    """Return (T, H, N) of (T, G, N): each head's group."""
    return _wide(grouped).repeat_interleave(nheads // grouped.shape[1], dim=1)


def _spans(cu_seqlens: torch.Tensor) -> Iterator[slice]:
    """Yield the tokens of each sequence or chunk."""
    bounds = cu_seqlens.tolist()
    for start, stop in itertools.pairwise(bounds):
        yield slice(start, stop)


def _initial_states(
    x: torch.Tensor, B: torch.Tensor, num_seqs: int, given: torch.Tensor | None
) -> torch.Tensor:
    """Return a copy of the initial states, or zeros, as float64 (S, H, P, N)."""
    if given is None:
        return torch.zeros(num_seqs, *x.shape[1:], B.shape[2], dtype=torch.float64)
    return _wide(given).clone()


def _with_skip_and_gate(
    out: torch.Tensor, x: torch.Tensor, D: torch.Tensor | None, z: torch.Tensor | None
) -> torch.Tensor:
    if D is not None:
        out = out + _wide(D).reshape(x.shape[1], -1) * x
    return out if z is None else out * torch.nn.functional.silu(_wide(z))


def _decay(totals: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Return, as (H, 1), how much of a state survives chunks ``first`` to ``last`` inclusive."""
    return totals[:, first : last + 1].sum(dim=1).exp().unsqueeze(1)


def rounding_tolerance(
    reference: torch.Tensor,
    magnitude: torch.Tensor,
    steps: float,
    dtype: torch.dtype,
    relative: float = 0.0,
) -> torch.Tensor:
    """Return how far an fp32 recurrence, stored as ``dtype``, may be from ``reference``.

    magnitude: the same sums as ``reference`` over absolute values; cancellation costs digits
        of the result but none of this. Same shape as ``reference``, float64, as the result.
    steps: how often the state was multiplied and added to. Each costs at most 8 units in the
        last place of fp32: the exponential (2 for the GPU's approximation, the rest for its
        rounded argument), the product and the sum. A sum in a decay's argument is as uncertain
        as it is large, so its size counts as that many steps.
    relative: what other roundings on the way cost of ``magnitude``, such as those of a
        product's operands: the sum of their unit roundoffs.

    Storing adds half a unit in the last place of ``dtype``. Overflow is not covered.
    """
    carried = (steps * 8 * 2.0**-24 + relative) * magnitude
    half_ulp = torch.finfo(dtype).eps / 2
    stored = half_ulp * (reference.abs() + carried) + half_ulp * torch.finfo(dtype).tiny
    flushed = torch.finfo(torch.float32).tiny * (1 + magnitude)
    return carried + stored + flushed
