"""Where sequences of the scan start in slots of a state cache: checks, and whether to copy first."""

from __future__ import annotations

from typing import NamedTuple

import torch

from launchkit.kernels import arguments
from launchkit.kernels.initial_states import check_slots, launch_gather
from launchkit.kernels.overlap import ranges_cross
from launchkit.kernels.ssd import checks
from launchkit.kernels.ssd.state_arguments import Strides


class CachedStarts(NamedTuple):
    """The slots that sequences start in."""

    cache: torch.Tensor
    """(slots, H, P, N) with dense slots."""
    indices: torch.Tensor
    """(S,): a negative one stands for zeros."""
    has_initial: torch.Tensor | None
    """(S,) bool; None: every sequence has one."""


def check_starts(
    op: str,
    initial_states: torch.Tensor | None,
    cache: torch.Tensor | None,
    indices: torch.Tensor | None,
    has_initial: torch.Tensor | None,
    num_seqs: int,
    sizes: tuple[int, int, int],
    device: torch.device,
) -> CachedStarts | None:
    """Return where sequences start, or None if no cache is given. ``sizes``: H, P and N.

    Raises UsageError for shapes, dtypes or devices that do not fit, one argument without the
    other, a cache together with initial states, and one whose slots are not dense.
    """
    if cache is None or indices is None:
        refuse_parts(op, cache, indices, has_initial)
        return None
    if initial_states is not None:
        problem = "is given together with initial_state_cache"
        raise arguments.refusal(op, "initial_states", problem, "Leave one of the two out.")
    name = "initial_state_cache"
    checks.require_sizes(op, name, cache, "slots, H, P, N", None, *sizes)
    arguments.require_tensor(op, name, cache, arguments.STATE_DTYPES, device)
    check_slots(op, cache, indices, has_initial, name, "initial_state_indices", num_seqs)
    if not arguments.rows_are_dense(cache):
        problem = f"has strides {cache.stride()}, so a slot of it is not dense"
        raise arguments.refusal(op, name, problem, "Pass a cache with dense slots.")
    return CachedStarts(cache, indices, has_initial)


def refuse_parts(
    op: str,
    cache: torch.Tensor | None,
    indices: torch.Tensor | None,
    has_initial: torch.Tensor | None = None,
) -> None:
    """Raise UsageError where something of a cache of initial states is given without the rest."""
    if cache is not None and indices is not None:
        return
    for name, tensor in (
        ("initial_state_cache", cache),
        ("initial_state_indices", indices),
        ("has_initial_state", has_initial),
    ):
        if tensor is not None:
            advice = "Pass initial_state_cache and initial_state_indices, or neither."
            raise arguments.refusal(op, name, "is given without its cache or indices", advice)


def read_in_place(
    starts: CachedStarts | None,
    final: torch.Tensor | None,
    final_strides: Strides,
    final_state_indices: torch.Tensor | None,
    state_dtype: torch.dtype,
) -> CachedStarts | None:
    """Return the starts if state passing may read the slot itself, instead of a copy made before.

    It takes one sequence (of several, one may start in the slot that another ends in, and they
    run in no order), a final state written by the same kernel, a cache of the dtype in which
    states are handed on, and a final cache that is the same, or lies elsewhere.
    """
    if starts is None or final is None or final_state_indices is None:
        return None
    if starts.indices.shape[0] != 1 or starts.cache.dtype != state_dtype:
        return None
    # Stand-ins for tensors, while torch.compile traces, have no address.
    if torch.compiler.is_compiling():
        return None
    cache = starts.cache
    dim = cache.shape[2] * cache.shape[3]
    same_layout = (cache.data_ptr(), cache.dtype, (cache.stride(0), dim, 1)) == (
        final.data_ptr(), final.dtype, tuple(final_strides),
    )  # fmt: skip
    return starts if same_layout or not ranges_cross(cache, final) else None


def gather_starts(starts: CachedStarts, num_seqs: int) -> tuple[torch.Tensor, Strides]:
    """Return a copy of the states that sequences start in, and its strides as (S, H, P*N)."""
    cache = starts.cache
    _, nheads, headdim, dstate = cache.shape
    dim = headdim * dstate
    initial = torch.empty((num_seqs, *cache.shape[1:]), dtype=cache.dtype, device=cache.device)
    if num_seqs > 0:
        launch_gather(cache, cache.stride(0), starts.indices, starts.has_initial, initial)
    return initial, (nheads * dim, dim, 1)
