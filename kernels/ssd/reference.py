"""What the kernels of the scan must compute, in float64 and plain torch. For tests.

Slow and obvious on purpose. Shares no code with the kernels.
"""

from __future__ import annotations

import torch


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


def _decay(totals: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Return, as (H, 1), how much of a state survives chunks ``first`` to ``last`` inclusive."""
    return totals[:, first : last + 1].sum(dim=1).exp().unsqueeze(1)


def rounding_tolerance(
    reference: torch.Tensor, magnitude: torch.Tensor, steps: int, dtype: torch.dtype
) -> torch.Tensor:
    """Return how far an fp32 recurrence, stored as ``dtype``, may be from ``reference``.

    magnitude: the same sums as ``reference`` over absolute values; cancellation costs digits
        of the result but none of this. Same shape as ``reference``, float64, as the result.
    steps: how often the state was multiplied and added to. Each costs at most 8 units in the
        last place of fp32: the exponential (2 for the GPU's approximation, the rest for its
        rounded argument), the product and the sum.

    Storing adds half a unit in the last place of ``dtype``. Overflow is not covered.
    """
    carried = steps * 8 * 2.0**-24 * magnitude
    half_ulp = torch.finfo(dtype).eps / 2
    stored = half_ulp * (reference.abs() + carried) + half_ulp * torch.finfo(dtype).tiny
    flushed = torch.finfo(torch.float32).tiny * (1 + magnitude)
    return carried + stored + flushed
