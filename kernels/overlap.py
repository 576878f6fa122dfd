"""Where tensors lie in memory: refuses outputs that overlap an input, or themselves.

Programs of a launch run in no order and tuning repeats it, so what a kernel writes must not be
what it, or a later kernel of the same op, still reads. Addresses are the host's to compare.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from launchkit.kernels import arguments

Named = tuple[str, torch.Tensor | None]
"""An argument's name and its tensor, or None where it was left out."""


def refuse_overlaps(op: str, written: Sequence[Named], read: Sequence[Named]) -> None:
    """Raise UsageError if a tensor of ``written`` shares bytes with another, or one of ``read``.

    Views of one buffer may lie side by side: whole ranges apart, or in other columns of the same
    rows. Anything else whose ranges cross counts as shared, even if no element is.

    Not checked while torch.compile traces: its stand-ins for tensors have no address.
    """
    if torch.compiler.is_compiling():
        return
    ranges = [(*_range_of(tensor), name, tensor) for name, tensor in read if tensor is not None]
    for argument, target in written:
        if target is None:
            continue
        start, end = _range_of(target)
        for first, last, name, tensor in ranges:
            if first < end and start < last and not _beside(target, tensor):
                problem = f"shares memory with {name}, which programs of the launch use"
                raise arguments.refusal(op, argument, problem, "Pass a tensor of its own.")
        ranges.append((start, end, argument, target))


def ranges_cross(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether bytes between the first and last of one tensor are so of the other as well."""
    (first, last), (start, end) = _range_of(left), _range_of(right)
    return first < end and start < last


def refuse_self_overlap(op: str, argument: str, tensor: torch.Tensor) -> None:
    """Raise UsageError if elements of a tensor that is to be written share memory.

    Also for strides so entangled that it takes more than their order to tell.
    """
    if not tensor.is_contiguous() and _overlaps_itself(tensor.shape, tensor.stride()):
        problem = f"has strides {tensor.stride()}, so elements of it share memory"
        raise arguments.refusal(
            op, argument, problem, "Pass a tensor whose elements lie apart, not an expanded one."
        )


def _range_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor and the one behind its last; equal if it is empty."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    return start, start + _extent(tensor.shape, tensor.stride()) * tensor.element_size()


# Shapes and strides repeat from call to call, and a lookup costs less than the sum.
@functools.lru_cache(4096)
def _extent(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return how many elements lie between the first and the last, both included."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


@functools.lru_cache(4096)
def _overlaps_itself(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a dimension steps less far than the dimensions inside it reach."""
    reach = 1
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1:
            if stride < reach:
                return True
            reach += (size - 1) * stride
    return False


def _beside(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors whose ranges cross are columns of the same rows, next to each other."""
    pitch = left.stride(0) * left.element_size()
    if pitch <= 0 or pitch != right.stride(0) * right.element_size():
        return False
    widths = [_extent(t.shape[1:], t.stride()[1:]) * t.element_size() for t in (left, right)]
    offset = (right.data_ptr() - left.data_ptr()) % pitch
    return offset >= widths[0] and offset + widths[1] <= pitch
