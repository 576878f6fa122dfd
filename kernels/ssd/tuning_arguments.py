"""Index tensors for tuning the scan's kernels offline: ``launchkit tune --make``.

A manifest has no values. With zeros for the bounds of chunks the kernels would do nothing; here
they get those of one batch: full chunks, shared out evenly among the sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_TOKENS = ("x_ptr", "dt_ptr", "C_ptr")
"""Tensors whose first dimension is the batch's tokens, where a kernel has one."""


def fill(kernel: str, arguments: dict[str, Any]) -> None:
    """Fill in the index tensors of one launch of an SSD kernel; leave everything else.

    ``arguments``: by parameter name, disposable tensors as ``launchkit tune`` makes them.
    ``cu_chunk_seqlens``: (nchunks + 1,), ``last_chunk_indices`` and indices of states: (S,).
    """
    for name, values in _VALUES.items():
        tensor = arguments.get(name)
        if isinstance(tensor, torch.Tensor):
            tensor.copy_(values(tensor.shape[0], arguments))


def _bounds(count: int, arguments: dict[str, Any]) -> torch.Tensor:
    tokens = next(arguments[name].shape[0] for name in _TOKENS if name in arguments)
    chunk_size = int(arguments["chunk_size"])
    return (torch.arange(count) * chunk_size).clamp(max=tokens)


def _last_chunks(sequences: int, arguments: dict[str, Any]) -> torch.Tensor:
    nchunks = int(arguments["states_ptr"].shape[0])
    return (torch.arange(1, sequences + 1) * nchunks).div(sequences, rounding_mode="floor") - 1


def _slots_of(states: str) -> Callable[[int, dict[str, Any]], torch.Tensor]:
    def slots(sequences: int, arguments: dict[str, Any]) -> torch.Tensor:
        cache = arguments.get(states)
        count = sequences if cache is None else cache.shape[0]
        return torch.arange(sequences) % max(count, 1)

    return slots


def _ones(count: int, arguments: dict[str, Any]) -> torch.Tensor:
    return torch.ones(count)


_VALUES: dict[str, Callable[[int, dict[str, Any]], torch.Tensor]] = {
    "cu_chunk_seqlens_ptr": _bounds,
    "last_chunk_indices_ptr": _last_chunks,
    "final_state_indices_ptr": _slots_of("final_states_ptr"),
    "final_index_ptr": _slots_of("final_states_ptr"),
    "initial_index_ptr": _slots_of("initial_ptr"),
    "has_initial_ptr": _ones,
}
