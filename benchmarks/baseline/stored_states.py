"""How the scan's results were stored before they were written by its own kernels.

Only for comparison: tests require the same bits from the fused form.
"""

from __future__ import annotations

import torch


def final_state_writeback_separate(
    out: torch.Tensor,
    last_chunk_indices: torch.Tensor,
    ssm_state: torch.Tensor,
    state_indices: torch.Tensor,
) -> None:
    """Copy each sequence's final state into its cache slot with torch, in four device operations.

    out: (nchunks, H, P*N), the states after every chunk, of the cache's dtype.
    last_chunk_indices: (S,) int32; no sequence is empty.
    ssm_state: (slots, H, P, N), changed in place.
    state_indices: (S,) int32, each sequence's slot.

    The operations: widen the chunk indices, gather, widen the slots, ``index_put_``.
    """
    final = out[last_chunk_indices]
    ssm_state[state_indices] = final.view(-1, *ssm_state.shape[1:])


def gather_separate(
    ssm_state: torch.Tensor, state_indices: torch.Tensor, has_initial_state: torch.Tensor
) -> torch.Tensor:
    """Return the states that sequences start in, with torch, in four device operations.

    ssm_state: (slots, H, P, N). state_indices: (S,) int32. has_initial_state: (S,) bool.

    The operations: widen the slots, gather, fill a zero, select.
    """
    gathered = ssm_state[state_indices]
    # What torch.where makes of a plain 0, in a way that a CUDA graph captures too.
    zero = gathered.new_empty(()).fill_(0)
    return torch.where(has_initial_state[:, None, None, None], gathered, zero)
