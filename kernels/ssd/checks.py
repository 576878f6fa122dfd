"""Argument checks that the scan's wrappers share: sizes, density, chunk metadata. No values.

Every function names the op and the argument in the UsageError that it raises. Sizes are
written as in ``launchkit.kernels.ssd``; T is tokens, G groups, ``nchunks`` chunks.
"""

from __future__ import annotations

import math

import torch

from launchkit.kernels import arguments

ACTIVATION_DTYPES = arguments.STATE_DTYPES
"""Dtypes of x, dt, A, B, C, z, D and dt_bias, in any mixture."""

MAX_GRID = 65535
"""Most programs along the second and third axis of a grid. The first holds 2**31 - 1."""

MAX_CHUNK_SIZE = 1024
"""Longest chunk in tokens: one program of the first kernel holds a whole one."""


def require_sizes(
    op: str, argument: str, tensor: torch.Tensor, layout: str, *sizes: int | None
) -> None:
    """Raise UsageError unless ``tensor`` has the sizes given; None stands for any.

    layout: their names, for the error: "T, H, P".
    """
    shape = tensor.shape
    if shape == sizes:
        return
    if len(shape) != len(sizes) or any(
        wanted is not None and size != wanted for size, wanted in zip(shape, sizes, strict=True)
    ):
        names = layout.split(", ")
        pairs = zip(names, sizes, strict=True)
        known = ", ".join(f"{name} {size}" for name, size in pairs if size is not None)
        wanted = f"({layout}{',' * (len(names) == 1)})" + (f" with {known}" if known else "")
        raise arguments.wrong_shape(op, argument, tensor, wanted)


def require_dense(op: str, argument: str, tensor: torch.Tensor) -> None:
    """Raise UsageError unless ``tensor`` is contiguous, as kernels read what they pass on."""
    if not tensor.is_contiguous():
        problem = f"has strides {tensor.stride()}, but is read without strides"
        raise arguments.refusal(op, argument, problem, "Pass it contiguous.")


def require_passed(
    op: str,
    argument: str,
    tensor: torch.Tensor,
    device: torch.device,
    layout: str,
    *sizes: int,
    allowed: tuple[torch.dtype, ...] = (torch.float32,),
) -> None:
    """Raise UsageError unless ``tensor`` is what one kernel of the scan passes to another.

    That is: of the sizes given, of a dtype allowed, on ``device``, and contiguous.
    """
    require_sizes(op, argument, tensor, layout, *sizes)
    arguments.require_tensor(op, argument, tensor, allowed, device)
    require_dense(op, argument, tensor)


def require_metadata(
    op: str, argument: str, tensor: torch.Tensor, device: torch.device, layout: str, size: int
) -> None:
    """Raise UsageError unless ``tensor`` is (size,) int32 on ``device`` and contiguous."""
    require_passed(op, argument, tensor, device, layout, size, allowed=(torch.int32,))


def count_chunks(op: str, cu_chunk_seqlens: torch.Tensor, device: torch.device) -> int:
    """Return nchunks, having checked that ``cu_chunk_seqlens`` is (nchunks+1,) int32."""
    shape = cu_chunk_seqlens.shape
    if len(shape) != 1 or shape[0] == 0:
        wanted = "(nchunks+1,), of one element or more"
        raise arguments.wrong_shape(op, "cu_chunk_seqlens", cu_chunk_seqlens, wanted)
    require_metadata(op, "cu_chunk_seqlens", cu_chunk_seqlens, device, "nchunks+1", shape[0])
    return shape[0] - 1


def require_chunk_size(op: str, chunk_size: int) -> None:
    """Raise UsageError unless ``chunk_size`` is a power of two, at most MAX_CHUNK_SIZE."""
    if not 0 < chunk_size <= MAX_CHUNK_SIZE or chunk_size & (chunk_size - 1):
        advice = f"Pass a power of two from 1 to {MAX_CHUNK_SIZE}."
        raise arguments.refusal(op, "chunk_size", f"is {chunk_size}", advice)


def require_heads(op: str, argument: str, nheads: int) -> None:
    """Raise UsageError if there are more heads than an axis of a grid holds."""
    if nheads > MAX_GRID:
        problem = f"has {nheads} heads, over {MAX_GRID}"
        raise arguments.refusal(op, argument, problem, "Split the heads.")


def require_groups(op: str, argument: str, nheads: int, ngroups: int) -> None:
    """Raise UsageError unless H is a multiple of G: head h uses group h // (H // G)."""
    if ngroups == 0 or nheads % ngroups:
        problem = f"has {ngroups} groups, which {nheads} heads cannot share evenly"
        raise arguments.refusal(op, argument, problem, "Pass H as a multiple of G.")


def dense_vector(
    op: str, argument: str, tensor: torch.Tensor, device: torch.device, nheads: int
) -> torch.Tensor:
    """Return an (H,) tensor of any activation dtype as a dense one: itself, or a copy."""
    require_sizes(op, argument, tensor, "H", nheads)
    arguments.require_tensor(op, argument, tensor, ACTIVATION_DTYPES, device)
    return tensor.contiguous()


def limits_of(op: str, dt_limit: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the greatest step as floats: an int would be compiled anew.

    Raises UsageError unless ``dt_limit`` is a pair of numbers, the lesser one first.
    """
    try:
        least, greatest = (float(limit) for limit in dt_limit)
    except (TypeError, ValueError):
        least = greatest = math.nan
    if not least <= greatest:
        advice = "Pass (least, greatest), by default (0.0, inf)."
        raise arguments.refusal(op, "dt_limit", f"is {dt_limit!r}", advice)
    return least, greatest


def require_seqs(op: str, argument: str, num_seqs: int) -> None:
    """Raise UsageError if there are more sequences than an axis of a grid holds."""
    if num_seqs > MAX_GRID:
        problem = f"has {num_seqs} sequences, over {MAX_GRID}"
        raise arguments.refusal(op, argument, problem, "Split the batch.")
