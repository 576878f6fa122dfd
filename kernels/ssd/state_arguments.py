"""Checks of the states that enter and leave the scan. Shared by state passing and the whole op.

They also return strides as the kernels take them: of (rows, H, P*N), P and N walked as one.
"""

from __future__ import annotations

import torch

from launchkit.kernels import arguments

NO_STRIDES = (0, 0, 0)
"""Strides of a state that is absent."""

Strides = tuple[int, ...]


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
    if initial_states.dim() not in (3, 4) or (
        initial_states.shape[:2] != (num_seqs, nheads)
        or initial_states.numel() != num_seqs * nheads * dim
    ):
        wanted = f"(S, H, P, N) with S {num_seqs}, H {nheads}, P*N {dim}"
        raise arguments.wrong_shape(op, "initial_states", initial_states, wanted)
    arguments.require_tensor(op, "initial_states", initial_states, arguments.STATE_DTYPES, device)
    if initial_states.dim() == 3:
        return initial_states, initial_states.stride()
    strides = arguments.flat_strides(initial_states)
    if strides is None:
        initial_states = initial_states.contiguous()
        strides = (nheads * dim, dim, 1)
    return initial_states, strides


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
    if final_states_out is None and final_state_indices is None:
        return NO_STRIDES
    if final_states_out is None or final_state_indices is None:
        missing = "final_states_out" if final_states_out is None else "final_state_indices"
        raise arguments.refusal(op, missing, "is missing", "Pass both final arguments or neither.")
    if final_state_indices.shape != (num_seqs,):
        wanted = f"(S,) with S {num_seqs}"
        raise arguments.wrong_shape(op, "final_state_indices", final_state_indices, wanted)
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


def refuse_overlap(op: str, cache: torch.Tensor | None, name: str, read: torch.Tensor) -> None:
    """Raise UsageError if the cache reaches into what the op reads as ``name``.

    Sequences run in no order, and tuning repeats a launch.
    """
    if cache is not None and arguments.overlap(cache, read):
        problem = f"overlaps {name}, which other programs of the launch read"
        raise arguments.refusal(op, "final_states_out", problem, f"Pass a copy of {name}.")


def _cache_strides(op: str, cache: torch.Tensor, nheads: int, dim: int) -> Strides:
    shape = cache.shape
    if len(shape) != 4 or shape[1] != nheads or shape[2] * shape[3] != dim:
        wanted = f"(slots, H, P, N) with H {nheads}, P*N {dim}"
        raise arguments.wrong_shape(op, "final_states_out", cache, wanted)
    strides = arguments.flat_strides(cache)
    if strides is None:
        problem = f"has strides {cache.stride()}, so P and N cannot be walked as one"
        raise arguments.refusal(
            op, "final_states_out", problem, "Pass a cache whose last two dimensions are dense."
        )
    sizes = (shape[0], nheads, dim)
    if 0 in strides and any(
        size > 1 and stride == 0 for size, stride in zip(sizes, strides, strict=True)
    ):
        problem = f"has strides {cache.stride()}, so elements of it share memory"
        raise arguments.refusal(op, "final_states_out", problem, "Pass a cache of its own.")
    return strides
