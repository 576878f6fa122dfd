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


def wrong_shape(op: str, argument: str, tensor: object, wanted: str) -> UsageError:
    """Return the error for what is no tensor, or not of the shape that ``wanted`` describes."""
    if not isinstance(tensor, torch.Tensor):
        return _no_tensor(op, argument, tensor)
    problem = f"has shape {tuple(tensor.shape)}, not {wanted}"
    return refusal(op, argument, problem, "Pass tensors whose sizes agree.")


def wrong_dtype(
    op: str, argument: str, dtype: torch.dtype, allowed: tuple[torch.dtype, ...]
) -> UsageError:
    """Return the error for a dtype that is not one of ``allowed``."""
    wanted = " or ".join(str(choice).removeprefix("torch.") for choice in allowed)
    return refusal(op, argument, f"is {str(dtype).removeprefix('torch.')}", f"Pass {wanted}.")


def _no_tensor(op: str, argument: str, value: object) -> UsageError:
    return refusal(op, argument, f"is a {type(value).__name__}", "Pass a torch tensor.")


def sizes_of(op: str, argument: str, tensor: object) -> torch.Size:
    """Return a tensor's shape; raise UsageError for what is no tensor."""
    if not isinstance(tensor, torch.Tensor):
        raise _no_tensor(op, argument, tensor)
    return tensor.shape


def flag(op: str, argument: str, value: object) -> bool:
    """Return a flag as a bool; raise UsageError for what is neither a bool nor 0 or 1."""
    if value is True or value is False:
        return value
    if not isinstance(value, int) or value not in (0, 1):
        raise refusal(op, argument, f"is {value!r}", "Pass True or False.")
    return bool(value)


def require_count(op: str, argument: str, value: object, least: int, most: int = 2**31 - 1) -> int:
    """Return an int from ``least`` to ``most``; raise UsageError for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise refusal(op, argument, f"is {value!r}", f"Pass an int from {least} to {most}.")
    return value


def require_tensor(
    op: str,
    argument: str,
    tensor: object,
    allowed: tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Raise UsageError unless ``tensor`` is on ``device`` and its dtype one of ``allowed``."""
    if not isinstance(tensor, torch.Tensor):
        raise _no_tensor(op, argument, tensor)
    if tensor.dtype not in allowed:
        raise wrong_dtype(op, argument, tensor.dtype, allowed)
    if tensor.layout is not torch.strided:
        raise refusal(op, argument, f"is laid out as {tensor.layout}", "Pass it dense.")
    if tensor.device != device:
        raise refusal(
            op, argument, f"is on {tensor.device}, the rest on {device}", f"Move it to {device}."
        )


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


def rows_are_dense(state: torch.Tensor) -> bool:
    """Whether the elements of every row lie one behind the other; rows may lie anywhere."""
    expected = 1
    for size, stride in zip(reversed(state.shape[1:]), reversed(state.stride()[1:]), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
