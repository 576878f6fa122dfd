"""Chunk metadata of the scan: cuts a batch's sequences into chunks, on the host.

Engines know the lengths of a batch on the host, so nothing here looks at a GPU or waits for
one: the numbers are worked out with NumPy and sent in one copy.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from launchkit.kernels import arguments

_OP = "build_chunk_metadata"
_ALIGNMENT = 4
_MAX_TOKENS = 2**31 - 1
_MAX_COMPUTED = 2**62

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ChunkMetadata:
    """How a batch is cut into chunks: int32 tensors on one device, views of one allocation.

    Each starts at a multiple of 16 bytes, so that batches differ in nothing that a kernel is
    compiled for.
    """

    cu_seqlens: torch.Tensor
    """(S+1,): the tokens of sequence s are ``cu_seqlens[s]`` up to ``cu_seqlens[s+1]``."""
    cu_chunk_seqlens: torch.Tensor
    """(nchunks+1,): the tokens of chunk c are ``cu_chunk_seqlens[c]`` up to the next entry."""
    seq_idx: torch.Tensor
    """(nchunks,): the sequence of each chunk."""
    last_chunk_indices: torch.Tensor
    """(S,): each sequence's last chunk. An empty sequence repeats the value of the one before
    it, or holds -1 where no sequence before it has a chunk."""
    checkpoint_chunk_indices: torch.Tensor | None
    """(S,): the chunk that ends at each sequence's checkpoint, -1 for a sequence without one;
    None if no checkpoints were asked for."""

    @property
    def num_chunks(self) -> int:
        """Chunks of the batch; each has at least one token."""
        return self.seq_idx.shape[0]


def build_chunk_metadata(
    cu_seqlens: Sequence[int] | npt.NDArray[np.integer[Any]] | torch.Tensor,
    chunk_size: int,
    num_computed_tokens: Sequence[int] | npt.NDArray[np.integer[Any]] | torch.Tensor | None = None,
    checkpoint_offsets: Sequence[int] | npt.NDArray[np.integer[Any]] | torch.Tensor | None = None,
    device: torch.device | str | None = None,
) -> ChunkMetadata:
    """Cut every sequence of a packed batch into chunks of at most ``chunk_size`` tokens.

    No chunk holds tokens of two sequences. Arrays are lists, NumPy arrays or CPU tensors of
    integers.

    cu_seqlens: (S+1,) token offsets of the packed sequences, from 0, never falling. A sequence
        may be empty; it has no chunk.
    chunk_size: a power of two.
    num_computed_tokens: (S,) tokens of each sequence that were computed before this batch. If
        given, chunks end at multiples of ``chunk_size`` in the sequence, counted from its very
        first token, so that a prefill split anywhere sums in the same chunks as one that was
        not. If None, they end at multiples of ``chunk_size`` in the packed batch.
    checkpoint_offsets: (S,) for each sequence how many of its tokens in this batch lie before
        its checkpoint; 0 or less means none. A chunk ends there as well, so the state after
        that chunk is the one after exactly these tokens.
    device: where the result goes, by default the CPU. A CUDA device gets it in one copy from
        pinned memory, in the order of the current stream; the host does not wait.

    Raises UsageError for arrays of other lengths or not of integers, arrays on a GPU (reading
    them would wait for it), offsets that fall or do not start at 0, more than 2**31 - 1
    tokens, negative ``num_computed_tokens``, a checkpoint behind its sequence's last token and
    a ``chunk_size`` that is no power of two.
    """
    size = _check_chunk_size(chunk_size)
    bounds = _check_cu_seqlens(cu_seqlens)
    lengths = bounds[1:] - bounds[:-1]
    # A token's position on the grid of chunks is its packed position plus this.
    shift: _Integers = np.zeros_like(lengths)
    if num_computed_tokens is not None:
        shift = _check_computed(num_computed_tokens, lengths) - bounds[:-1]
    first = (bounds[:-1] + shift) // size
    counts = np.where(lengths > 0, -((bounds[1:] + shift) // -size) - first, 0)
    ends = _chunk_ends(bounds, shift, first, counts, size)
    checkpoints = None
    if checkpoint_offsets is not None:
        offsets = _check_checkpoints(checkpoint_offsets, lengths)
        ends, counts, checkpoints = _cut_at(offsets, bounds, ends, counts)
    sequences = np.repeat(np.arange(len(counts)), counts)
    parts = [bounds, np.concatenate(([0], ends)), sequences, counts.cumsum() - 1]
    if checkpoints is not None:
        parts.append(checkpoints)
    packed, cu_chunk_seqlens, seq_idx, last, *rest = _to_device(parts, device)
    return ChunkMetadata(packed, cu_chunk_seqlens, seq_idx, last, rest[0] if rest else None)


def _chunk_ends(
    bounds: _Integers, shift: _Integers, first: _Integers, counts: _Integers, size: int
) -> _Integers:
    """Return the token offset at which each chunk ends, without checkpoints."""
    before = counts.cumsum() - counts
    # The k-th chunk of a sequence ends at grid line first + 1 + k, the last with the sequence.
    line = np.arange(counts.sum()) + np.repeat(first + 1 - before, counts)
    ends: _Integers = np.minimum(
        line * size - np.repeat(shift, counts), np.repeat(bounds[1:], counts)
    )
    return ends


def _cut_at(
    offsets: _Integers, bounds: _Integers, ends: _Integers, counts: _Integers
) -> tuple[_Integers, _Integers, _Integers]:
    """Return (ends, counts, chunk of each checkpoint) with a chunk's end at each checkpoint."""
    present = offsets > 0
    targets = (bounds[:-1] + offsets)[present]
    places = np.searchsorted(ends, targets)
    new = ends[places] != targets
    checkpoints = np.full(len(offsets), -1)
    checkpoints[present] = places + new.cumsum() - new
    counts = counts.copy()
    counts[present] += new
    return np.insert(ends, places[new], targets[new]), counts, checkpoints


def _to_device(parts: Sequence[_Integers], device: torch.device | str | None) -> list[torch.Tensor]:
    """Return the arrays as int32 tensors on ``device``, moved in one copy."""
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part) + -len(part) % _ALIGNMENT)
    target = torch.device("cpu" if device is None else device)
    packed = torch.zeros(offsets[-1], dtype=torch.int32, pin_memory=target.type == "cuda")
    view = packed.numpy()
    for start, part in zip(offsets, parts, strict=False):
        view[start : start + len(part)] = part
    moved = packed.to(target, non_blocking=True)
    return [moved.narrow(0, start, len(part)) for start, part in zip(offsets, parts, strict=False)]


def _check_chunk_size(chunk_size: int) -> int:
    try:
        size = 0 if isinstance(chunk_size, bool) else operator.index(chunk_size)
    except TypeError:
        size = 0
    if size <= 0 or size & (size - 1):
        raise arguments.refusal(
            _OP, "chunk_size", f"is {chunk_size!r}", "Pass a power of two, as an int."
        )
    return size


def _integers(name: str, values: object) -> _Integers:
    """Return a one-dimensional int64 array of ``values``."""
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            problem = f"is on {values.device}, and reading it would wait for that device"
            advice = "Pass the values that the host built it from, or its .cpu() and wait here."
            raise arguments.refusal(_OP, name, problem, advice)
        if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
            raise arguments.refusal(_OP, name, f"is {values.dtype}", "Pass int32 or int64.")
        values = values.numpy()
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty((0, 0))
    if array.size == 0 and array.ndim == 1:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        problem = f"is of {array.dtype} in {array.ndim} dimensions"
        raise arguments.refusal(_OP, name, problem, "Pass one dimension of integers.")
    return array.astype(np.int64)


def _check_cu_seqlens(values: object) -> _Integers:
    bounds = _integers("cu_seqlens", values)
    if len(bounds) == 0 or bounds[0] != 0:
        problem = f"starts with {bounds[0]}" if len(bounds) else "is empty"
        raise arguments.refusal(_OP, "cu_seqlens", problem, "Pass S+1 offsets that start with 0.")
    falls = np.flatnonzero(bounds[1:] < bounds[:-1])
    if len(falls):
        seq = int(falls[0])
        problem = f"falls from {bounds[seq]} to {bounds[seq + 1]} at sequence {seq}"
        advice = "Pass the running sum of the sequences' lengths."
        raise arguments.refusal(_OP, "cu_seqlens", problem, advice)
    if bounds[-1] > _MAX_TOKENS:
        problem = f"ends with {bounds[-1]} tokens, over {_MAX_TOKENS}"
        raise arguments.refusal(_OP, "cu_seqlens", problem, "Split the batch.")
    return bounds


def _check_computed(values: object, lengths: _Integers) -> _Integers:
    computed = _per_sequence("num_computed_tokens", values, lengths)
    wrong = np.flatnonzero((computed < 0) | (computed > _MAX_COMPUTED))
    if len(wrong):
        seq = int(wrong[0])
        problem = f"is {computed[seq]} for sequence {seq}"
        raise arguments.refusal(
            _OP, "num_computed_tokens", problem, "Pass 0 for a sequence that starts here."
        )
    return computed


def _check_checkpoints(values: object, lengths: _Integers) -> _Integers:
    offsets = _per_sequence("checkpoint_offsets", values, lengths)
    behind = np.flatnonzero(offsets > lengths)
    if len(behind):
        seq = int(behind[0])
        problem = f"is {offsets[seq]} for sequence {seq} of {lengths[seq]} tokens in this batch"
        advice = "Count from the sequence's first token in this batch; pass 0 for no checkpoint."
        raise arguments.refusal(_OP, "checkpoint_offsets", problem, advice)
    return offsets


def _per_sequence(name: str, values: object, lengths: _Integers) -> _Integers:
    array = _integers(name, values)
    if len(array) != len(lengths):
        problem = f"has {len(array)} entries for {len(lengths)} sequences"
        raise arguments.refusal(_OP, name, problem, "Pass one for each sequence of cu_seqlens.")
    return array
