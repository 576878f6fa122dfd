"""Argument checks of the kernel wrappers: shapes, dtypes and devices, never values.

A value that lives on a GPU cannot be looked at without waiting for the GPU, so wrappers say
in their docstrings what they require of values. The checks run before every launch: each
costs a few tenths of a microsecond.
"""

from __future__ import annotations

import torch

from launchkit.errors import UsageError

STATE_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes in which a state may be held."""

INDEX_DTYPES = (torch.int32, torch.int64)
"""Dtypes of a slot index."""


def refusal(op: str, argument: str, problem: str, advice: str) -> UsageError:
    """Return the error for one bad argument; ``problem`` follows the argument's name."""
    return UsageError(f"{op}: {argument} {problem}. {advice}", op=op, argument=argument)


def wrong_shape(op: str, argument: str, tensor: torch.Tensor, wanted: str) -> UsageError:
    """Return the error for a tensor that has not the shape that ``wanted`` describes."""
    problem = f"has shape {tuple(tensor.shape)}, not {wanted}"
    return refusal(op, argument, problem, "Pass tensors whose sizes agree.")


def wrong_dtype(
    op: str, argument: str, dtype: torch.dtype, allowed: tuple[torch.dtype, ...]
) -> UsageError:
    """Return the error for a dtype that is not one of ``allowed``."""
    wanted = " or ".join(str(choice).removeprefix("torch.") for choice in allowed)
    return refusal(op, argument, f"is {str(dtype).removeprefix('torch.')}", f"Pass {wanted}.")


def require_tensor(
    op: str,
    argument: str,
    tensor: torch.Tensor,
    allowed: tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Raise UsageError unless ``tensor`` is on ``device`` and its dtype one of ``allowed``."""
    if tensor.dtype not in allowed:
        raise wrong_dtype(op, argument, tensor.dtype, allowed)
    if tensor.device != device:
        raise refusal(
            op, argument, f"is on {tensor.device}, the rest on {device}", f"Move it to {device}."
        )


def overlap(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether the memory from a tensor's first element to its last reaches into another's.

    False for empty tensors, and while torch.compile traces: its stand-ins have no memory.
    """
    if torch.compiler.is_compiling():
        return False
    left_start, right_start = left.data_ptr(), right.data_ptr()
    left_end, right_end = left_start + _extent(left), right_start + _extent(right)
    return left_start < right_end and right_start < left_end


def _extent(tensor: torch.Tensor) -> int:
    """Return the bytes from the first element to behind the last one."""
    if tensor.numel() == 0:
        return 0
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in sizes)) * tensor.element_size()


def flat_strides(state: torch.Tensor) -> tuple[int, int, int] | None:
    """Return the strides of a (rows, H, P, N) tensor seen as (rows, H, P*N).

    None if no view has that shape because P and N cannot be walked as one.
    """
    row, head, outer, inner = state.stride()
    _, _, headdim, dstate = state.shape
    if dstate == 1:
        return row, head, outer
    if headdim == 1 or outer == dstate * inner:
        return row, head, inner
    return None
