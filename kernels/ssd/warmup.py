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
from launchkit.kernels.ssd import checks
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen

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
    tokens: int = 2048,
) -> int:
    """Run ``mamba_chunk_scan_combined_varlen`` in every way that calls like this one can take.

    The tensors are those of a real call, or others of the same strides, dtypes and alignment;
    x, dt, B, C, z and out may be of any T from 2. None is read or written but A, D and dt_bias,
    which are read: what is launched runs on scratch tensors. Afterwards, calls with tensors of
    these layouts neither compile nor tune, however many tokens and sequences they have and at
    whatever token of a batch they start.

    Warmed are all combinations of: with and without initial states; final states written to a
    cache (if ``final_states_out`` is given), returned, or the states of all chunks returned; and
    the alignments that x, dt, B, C, z and out can take when tokens are sliced off the front of
    the tensor or of the buffer that it is a view of.

    initial_states: of the layout of those passed later; if None, dense and of the dtype of
        ``final_states_out``, else of ``state_dtype``.
    tokens: tokens of the scratch batch, as configs are tuned on it.

    Returns how many calls of the op were made. Raises UsageError as the op does, and for
    fewer than two tokens in the tensors or ``tokens`` below 1; CaptureError while a CUDA graph is captured and a config is not known.
    """
    if tokens < 1:
        raise arguments.refusal(_OP, "tokens", f"is {tokens}", "Pass 1 or more.")
    checks.require_sizes(_OP, "x", x, "T, H, P", None, None, None)
    checks.require_sizes(_OP, "B", B, "T, G, N", None, None, None)
    if x.shape[0] < 2:
        problem = f"has {x.shape[0]} tokens, so its first stride may not be that of a longer one"
        raise arguments.refusal(_OP, "x", problem, "Pass tensors of two tokens or more.")
    sizes = (_SEQUENCES, *x.shape[1:], B.shape[2])
    state = initial_states if final_states_out is None else final_states_out
    dtype = state_dtype or C.dtype if state is None else state.dtype
    template = torch.empty(sizes, dtype=dtype, device=x.device)
    if initial_states is not None:
        template = initial_states
    skipped_bytes = template.data_ptr() % _ALIGNMENT_BYTES
    initial = _like(template, _SEQUENCES, template.stride(), skipped_bytes)
    endings = _endings(final_states_out, final_state_indices)
    batch = build_chunk_metadata([0, tokens // 2, tokens], chunk_size, device=x.device)
    layouts = [_layouts(t, tokens) for t in (x, dt, B, C, out, z)]
    calls = 0
    for x, dt, B, C, out, z in itertools.product(*layouts):
        for (final, indices, every), states in itertools.product(endings, (None, initial)):
            mamba_chunk_scan_combined_varlen(
                x, dt, A, B, C, chunk_size,
                batch.cu_seqlens, batch.cu_chunk_seqlens, batch.last_chunk_indices,
                batch.seq_idx, out, D, z, dt_bias, states, dt_softplus, dt_limit,
                every, state_dtype, final, indices,
            )  # fmt: skip
            calls += 1
    return calls


def _endings(
    cache: torch.Tensor | None, indices: torch.Tensor | None
) -> list[tuple[torch.Tensor | None, torch.Tensor | None, bool]]:
    """Return (final_states_out, final_state_indices, return_intermediate_states) to call with."""
    endings: list[tuple[torch.Tensor | None, torch.Tensor | None, bool]] = [
        (None, None, False),
        (None, None, True),
    ]
    if cache is not None:
        dtype = torch.int32 if indices is None else indices.dtype
        slots = torch.arange(_SEQUENCES, dtype=dtype, device=cache.device)
        skipped_bytes = cache.data_ptr() % _ALIGNMENT_BYTES
        scratch = _like(cache, _SEQUENCES, cache.stride(), skipped_bytes)
        endings.append((scratch, slots, False))
    return endings


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
    return memory.uniform_().as_strided(sizes, strides, first)
