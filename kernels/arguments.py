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


def shares_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors are views of one allocation, overlapping or not; empty ones are not.

    False while torch.compile traces: its stand-ins for tensors have no storage.
    """
    if torch.compiler.is_compiling():
        return False
    address = left.untyped_storage().data_ptr()
    return address != 0 and address == right.untyped_storage().data_ptr()


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
