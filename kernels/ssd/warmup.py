"""Warm-up of the scan: compiles and tunes every variant that a served model can meet.

A first launch with new key values tunes (seconds to minutes), one with a new branch, stride
class or alignment class compiles (a second or more). Here both happen before requests do, on
scratch tensors: no live state is read or written.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from launchkit.kernels import arguments
from launchkit.kernels.ssd import checks, state_arguments
from launchkit.kernels.ssd.initial_cache import refuse_parts
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.ssd.scan_arguments import check_optional, check_tokens

_OP = "warm_chunk_scan"
_ALIGNMENT_BYTES = 16
# Slicing n tokens off moves a tensor by n rows: from 16 on what it does to alignment repeats.
_TOKEN_OFFSETS = range(16)
_SEQUENCES = 2


def warm_chunk_scan(
    x: torch.Tensor,
    dt: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    chunk_size: int,
    out: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    dt_bias: torch.Tensor | None = None,
    initial_states: torch.Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    state_dtype: torch.dtype | None = None,
    final_states_out: torch.Tensor | None = None,
    final_state_indices: torch.Tensor | None = None,
    *,
    initial_state_cache: torch.Tensor | None = None,
    initial_state_indices: torch.Tensor | None = None,
    tokens: int = 2048,
) -> int:
    """Run ``mamba_chunk_scan_combined_varlen`` in every way that calls like this one can take.

    The tensors are those of a real call, or others of the same strides, dtypes and alignment;
    x, dt, B, C, z and out may be of any T from 2. None is read or written but A, D and dt_bias,
    which are read: what is launched runs on scratch tensors. Afterwards, calls with tensors of
    these layouts neither compile nor tune, however many tokens and sequences they have and at
    whatever token of a batch they start.

    Warmed are all combinations of: with and without initial states, and such in a cache (if
    ``initial_state_cache`` is given), of one sequence and of several, with and without
    ``has_initial_state``; final states written to a cache (if ``final_states_out`` is given),
    returned, or the states of all chunks returned; and the alignments that x, dt, B, C, z and out
    can take when tokens are sliced off the front of the tensor or of the buffer that it is a view of.

    initial_states: of the layout of those passed later; if None, dense and of the dtype of
        ``final_states_out``, else of ``state_dtype``.
    final_states_out, final_state_indices: both or neither, as in a call; of the indices only the
        dtype matters, which is compiled for.
    initial_state_cache, initial_state_indices: likewise. They may be the final ones.
    tokens: tokens of the scratch batch, as configs are tuned on it.

    Returns how many calls of the op were made. Raises UsageError as the op does (one argument of a
    cache without the other is refused before anything is launched), for fewer than two tokens
    in the tensors and for ``tokens`` below 1; CaptureError while a CUDA graph is captured and a
    config is not known.
    """
    if type(tokens) is not int or tokens < 1:
        raise arguments.refusal(_OP, "tokens", f"is {tokens!r}", "Pass 1 or more.")
    chunk_size = checks.require_chunk_size(_OP, chunk_size)
    sizes = check_tokens(_OP, x, dt, B, C, out)
    check_optional(_OP, sizes, x, D, z, out)
    rows = (_SEQUENCES, sizes.nheads, sizes.headdim, sizes.dstate)
    templates = {
        "initial_states": initial_states,
        "final_states_out": final_states_out,
        "initial_state_cache": initial_state_cache,
    }
    for name, state in templates.items():
        if state is not None:
            checks.require_sizes(_OP, name, state, "rows, H, P, N", None, *rows[1:])
            arguments.require_tensor(_OP, name, state, arguments.STATE_DTYPES, x.device)
    state_arguments.require_both_final(_OP, final_states_out, final_state_indices)
    refuse_parts(_OP, initial_state_cache, initial_state_indices)
    if x.shape[0] < 2:
        problem = f"has {x.shape[0]} tokens, so its first stride may not be that of a longer one"
        raise arguments.refusal(_OP, "x", problem, "Pass tensors of two tokens or more.")
    template = initial_states
    if template is None:
        dtype = state_dtype or C.dtype
        if final_states_out is not None:
            dtype = final_states_out.dtype
        template = torch.empty(rows, dtype=dtype, device=x.device)
    starts = _starts(_scratch(template), initial_state_cache, initial_state_indices)
    endings = _endings(final_states_out, final_state_indices)
    batches = [
        build_chunk_metadata(bounds, chunk_size, device=x.device)
        for bounds in ([0, tokens // 2, tokens], [0, tokens])
    ]
    layouts = [_layouts(t, tokens) for t in (x, dt, B, C, out, z)]
    calls = 0
    for x, dt, B, C, out, z in itertools.product(*layouts):
        for (final, indices, every), (states, cache, slots, has) in itertools.product(
            endings, starts
        ):
            # One sequence in a cache takes other launches than several.
            for batch in batches if cache is not None else batches[:1]:
                count = batch.cu_seqlens.shape[0] - 1
                mamba_chunk_scan_combined_varlen(
                    x, dt, A, B, C, chunk_size,
                    batch.cu_seqlens, batch.cu_chunk_seqlens, batch.last_chunk_indices,
                    batch.seq_idx, out, D, z, dt_bias, states, dt_softplus, dt_limit,
                    every, state_dtype, final, _first(indices, count),
                    cache, _first(slots, count), _first(has, count),
                )  # fmt: skip
                calls += 1
    return calls


_Start = tuple[
    "torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None", "torch.Tensor | None"
]


def _starts(
    initial: torch.Tensor, cache: torch.Tensor | None, indices: torch.Tensor | None
) -> list[_Start]:
    """Return (initial_states, cache of initial states, indices, has_initial_state) to call with."""
    starts: list[_Start] = [(None, None, None, None), (initial, None, None, None)]
    if cache is not None and indices is not None:
        slots = torch.arange(_SEQUENCES, dtype=indices.dtype, device=cache.device)
        has = torch.ones(_SEQUENCES, dtype=torch.bool, device=cache.device)
        scratch = _scratch(cache)
        starts += [(None, scratch, slots, None), (None, scratch, slots, has)]
    return starts


def _first(tensor: torch.Tensor | None, count: int) -> torch.Tensor | None:
    return None if tensor is None else tensor[:count]


def _endings(
    cache: torch.Tensor | None, indices: torch.Tensor | None
) -> list[tuple[torch.Tensor | None, torch.Tensor | None, bool]]:
    """Return (final_states_out, final_state_indices, return_intermediate_states) to call with."""
    endings: list[tuple[torch.Tensor | None, torch.Tensor | None, bool]] = [
        (None, None, False),
        (None, None, True),
    ]
    if cache is not None and indices is not None:
        slots = torch.arange(_SEQUENCES, dtype=indices.dtype, device=cache.device)
        endings.append((_scratch(cache), slots, False))
    return endings


def _scratch(states: torch.Tensor) -> torch.Tensor:
    """Return a state for each sequence, laid out and aligned as ``states``."""
    skipped_bytes = states.data_ptr() % _ALIGNMENT_BYTES
    return _like(states, _SEQUENCES, states.stride(), skipped_bytes)


def _layouts(tensor: torch.Tensor | None, tokens: int) -> list[Any]:
    """Return scratch for each class of alignment and first stride that calls can come with."""
    if tensor is None:
        return [None]
    start, row = tensor.data_ptr(), tensor.stride(0)
    # torch may give a view of a single token the first stride that a dense one would have.
    single = tensor.shape[1] * tensor.stride(1)
    found: dict[tuple[bool, bool, bool], torch.Tensor] = {}
    for stride, offset in itertools.product((row, single), _TOKEN_OFFSETS):
        skipped_bytes = start % _ALIGNMENT_BYTES + offset * row * tensor.element_size()
        kind = (skipped_bytes % _ALIGNMENT_BYTES == 0, stride % 16 == 0, stride == 1)
        if kind not in found:
            strides = (stride, *tensor.stride()[1:])
            found[kind] = _like(tensor, tokens, strides, skipped_bytes)
    return list(found.values())


def _like(
    tensor: torch.Tensor, rows: int, strides: Sequence[int], skipped_bytes: int = 0
) -> torch.Tensor:
    """Return ``rows`` random rows, ``skipped_bytes`` behind the start of an allocation."""
    sizes = (rows, *tensor.shape[1:])
    first = skipped_bytes // tensor.element_size()
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    memory = torch.empty(first + max(span, 0), dtype=tensor.dtype, device=tensor.device)
    # A generator of its own: the caller's random numbers stay what they would have been.
    values = memory.uniform_(generator=torch.Generator(memory.device).manual_seed(0))
    return values.as_strided(sizes, strides, first)
