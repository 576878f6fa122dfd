"""Checks of the states that enter and leave the scan. Shared by the whole op and its kernels.

They also return strides as most kernels take them: of (rows, H, P*N), P and N walked as one.
"""

from __future__ import annotations

import torch

from launchkit.kernels import arguments, overlap
from launchkit.kernels.ssd import checks

NO_STRIDES = (0, 0, 0)
"""Strides of a state that is absent."""

Strides = tuple[int, ...]


def check_last_chunks(
    op: str, last_chunk_indices: torch.Tensor, nheads: int, device: torch.device
) -> int:
    """Return S, having checked that ``last_chunk_indices`` is (S,) int32 on ``device``.

    Raises UsageError also for more heads or sequences than an axis of a grid holds.
    """
    checks.require_sizes(op, "last_chunk_indices", last_chunk_indices, "S", None)
    arguments.require_tensor(op, "last_chunk_indices", last_chunk_indices, (torch.int32,), device)
    num_seqs = last_chunk_indices.shape[0]
    checks.require_grid_axis(op, "states", nheads, "heads")
    checks.require_grid_axis(op, "last_chunk_indices", num_seqs, "sequences")
    return num_seqs


def require_initial(
    op: str,
    initial_states: torch.Tensor | None,
    sizes: tuple[int, int, int],
    device: torch.device,
) -> None:
    """Raise UsageError unless initial states are (S, H, P, N), of any S and any strides.

    sizes: H, P and N.
    """
    if initial_states is not None:
        name = "initial_states"
        checks.require_sizes(op, name, initial_states, "S, H, P, N", None, *sizes)
        arguments.require_tensor(op, name, initial_states, arguments.STATE_DTYPES, device)


def check_initial(
    op: str,
    initial_states: torch.Tensor | None,
    num_seqs: int,
    nheads: int,
    dim: int,
    device: torch.device,
) -> tuple[torch.Tensor | None, Strides]:
    """Return initial states and their strides as (S, H, P*N); copy them if need be.

    Raises UsageError for a shape, dtype or device that does not fit.
    """
    if initial_states is None:
        return None, NO_STRIDES
    shape = arguments.sizes_of(op, "initial_states", initial_states)
    if len(shape) not in (3, 4) or (
        shape[:2] != (num_seqs, nheads) or initial_states.numel() != num_seqs * nheads * dim
    ):
        wanted = f"(S, H, P, N) with S {num_seqs}, H {nheads}, P*N {dim}"
        raise arguments.wrong_shape(op, "initial_states", initial_states, wanted)
    arguments.require_tensor(op, "initial_states", initial_states, arguments.STATE_DTYPES, device)
    if initial_states.dim() == 3:
        return initial_states, initial_states.stride()
    checks.require_state_channels(op, "initial_states", initial_states, "S, H, P, N")
    strides = arguments.flat_strides(initial_states)
    if strides is None:
        initial_states = initial_states.contiguous()
        strides = (nheads * dim, dim, 1)
    return initial_states, strides


def require_both_final(
    op: str, final_states_out: torch.Tensor | None, final_state_indices: torch.Tensor | None
) -> None:
    """Raise UsageError where one of the two is given without the other."""
    if (final_states_out is None) != (final_state_indices is None):
        missing = "final_states_out" if final_states_out is None else "final_state_indices"
        raise arguments.refusal(op, missing, "is missing", "Pass both final arguments or neither.")


def check_final(
    op: str,
    final_states_out: torch.Tensor | None,
    final_state_indices: torch.Tensor | None,
    num_seqs: int,
    nheads: int,
    dim: int,
    device: torch.device,
) -> Strides:
    """Return the cache's strides as (slots, H, P*N).

    Raises UsageError for a shape, dtype or device that does not fit, one argument without the
    other, and a cache whose elements share memory.
    """
    require_both_final(op, final_states_out, final_state_indices)
    if final_states_out is None or final_state_indices is None:
        return NO_STRIDES
    checks.require_sizes(op, "final_state_indices", final_state_indices, "S", num_seqs)
    arguments.require_tensor(
        op, "final_state_indices", final_state_indices, arguments.INDEX_DTYPES, device
    )
    arguments.require_tensor(
        op, "final_states_out", final_states_out, arguments.STATE_DTYPES, device
    )
    return _cache_strides(op, final_states_out, nheads, dim)


def require_state_sizes(
    op: str, argument: str, state: torch.Tensor, headdim: int, dstate: int
) -> None:
    """Raise UsageError unless a (rows, H, P, N) tensor has these P and N, the same way round."""
    if state.shape[2:] != (headdim, dstate):
        wanted = f"(rows, H, P, N) with P {headdim}, N {dstate}"
        raise arguments.wrong_shape(op, argument, state, wanted)


def _cache_strides(op: str, cache: torch.Tensor, nheads: int, dim: int) -> Strides:
    shape = cache.shape
    if len(shape) != 4 or shape[1] != nheads or shape[2] * shape[3] != dim:
        wanted = f"(slots, H, P, N) with H {nheads}, P*N {dim}"
        raise arguments.wrong_shape(op, "final_states_out", cache, wanted)
    checks.require_state_channels(op, "final_states_out", cache, "slots, H, P, N")
    strides = arguments.flat_strides(cache)
    if strides is None:
        problem = f"has strides {cache.stride()}, so P and N cannot be walked as one"
        raise arguments.refusal(
            op, "final_states_out", problem, "Pass a cache whose last two dimensions are dense."
        )
    overlap.refuse_self_overlap(op, "final_states_out", cache)
    return strides
