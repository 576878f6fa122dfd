"""The memory behind a launch's tensors, as byte ranges. Below protection.py.

Tensors that share storage are one range where they overlap, so that each byte is saved once and
clones overlap as the originals do.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launchkit.dispatch.tuning.failures import is_out_of_memory
from launchkit.errors import ProtectionError

logger = logging.getLogger("launchkit")

ALIGNMENT = 512
"""A clone starts at the same offset from a multiple of this as its original: kernels are compiled
for aligned pointers, and CUDA allocates in such steps."""


@dataclass(frozen=True)
class ByteRange:
    """Bytes ``start`` to ``stop`` of one storage."""

    storage: Any
    device: torch.device
    start: int
    stop: int

    @property
    def place(self) -> tuple[str, int]:
        """What tells storages apart."""
        return str(self.device), int(self.storage.data_ptr())

    def overlaps(self, other: ByteRange) -> bool:
        """Tell whether they have a byte in common."""
        same = self.place == other.place
        return same and self.start < other.stop and other.start < self.stop

    def covers(self, other: ByteRange) -> bool:
        """Tell whether all of ``other`` is in this one."""
        return self.place == other.place and self.start <= other.start and other.stop <= self.stop

    @property
    def bytes(self) -> torch.Tensor:
        """The memory itself, as uint8."""
        return _view(self.storage, self.device, torch.uint8, self.start, (self.stop - self.start,))


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of one argument: itself, its parts, or what a descriptor points to."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for part in value for tensor in tensors_in(part)]
    base = getattr(value, "base", None)
    return [] if base is None or base is value else tensors_in(base)


def range_of(tensor: torch.Tensor) -> ByteRange | None:
    """Return the bytes from a tensor's first element to its last; None where there are none.

    A tensor without plain storage (sparse, a wrapper of another library's) has none either.
    """
    try:
        storage = tensor.untyped_storage()
        if tensor.numel() == 0 or tensor.layout != torch.strided or storage.data_ptr() == 0:
            return None
        last = sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride(), strict=True))
        start = int(tensor.storage_offset()) * tensor.element_size()
        stop = start + (int(last) + 1) * tensor.element_size()
        return ByteRange(storage, tensor.device, start, min(stop, storage.nbytes()))
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return None


def merged(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Return ranges that do not overlap and hold the same bytes."""
    found: list[ByteRange] = []
    for each in sorted(ranges, key=lambda one: (one.place, one.start)):
        if found and found[-1].overlaps(each):
            last = found.pop()
            each = ByteRange(last.storage, last.device, last.start, max(last.stop, each.stop))
        found.append(each)
    return found


@dataclass(frozen=True)
class SavedRange:
    """A byte range and a copy of what it held."""

    range: ByteRange
    copy: torch.Tensor

    def restore(self) -> None:
        """Write the copy back."""
        self.range.bytes.copy_(self.copy)


def save(kernel: str, each: ByteRange) -> SavedRange:
    """Copy a range: on its device, or in host memory where that is full.

    Raises:
        ProtectionError: it fits into neither.
    """
    memory = each.bytes
    try:
        return SavedRange(each, memory.clone())
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    logger.info("%s: %d bytes are copied to host memory while tuning", kernel, memory.numel())
    try:
        return SavedRange(each, memory.to("cpu", copy=True))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ProtectionError(kernel, memory.numel(), str(each.device)) from error


class Clones:
    """Disposable copies of every tensor of a launch, overlapping as the originals do.

    Raises torch.cuda.OutOfMemoryError or MemoryError where they do not fit.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        ranges = merged(r for r in map(range_of, tensors) if r is not None)
        self._clones = [(each, _aligned_like(each)) for each in ranges]

    def refill(self) -> None:
        """Give the clones what the originals hold."""
        for original, (memory, shift) in self._clones:
            memory[shift:].copy_(original.bytes)

    def of(self, value: Any) -> Any:
        """Return an argument with clones in the place of its tensors."""
        return _replaced(value, self._clone)

    def _clone(self, tensor: torch.Tensor) -> torch.Tensor:
        mine = range_of(tensor)
        if mine is None:
            return tensor
        original, (memory, shift) = next(pair for pair in self._clones if pair[0].covers(mine))
        offset = mine.start - original.start + shift
        storage = memory.untyped_storage()
        view = _view(storage, tensor.device, tensor.dtype, offset, tensor.size(), tensor.stride())
        return view.requires_grad_(tensor.requires_grad)


def _replaced(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return an argument with each tensor in it changed; the argument itself stays as it is."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        parts = [_replaced(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if tensors_in(value):
        value = copy.copy(value)
        value.base = _replaced(value.base, change)
    return value


def named_tensors(named: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[torch.Tensor]]:
    """Return the tensors of some of a launch's arguments."""
    found = {name: tensors_in(named.get(name)) for name in names}
    return {name: tensors for name, tensors in found.items() if tensors}


def _aligned_like(each: ByteRange) -> tuple[torch.Tensor, int]:
    shift = (each.place[1] + each.start) % ALIGNMENT
    size = shift + each.stop - each.start
    try:
        return torch.empty(size, dtype=torch.uint8, device=each.device), shift
    except RuntimeError as error:
        if is_out_of_memory(error) and not isinstance(error, torch.cuda.OutOfMemoryError):
            raise MemoryError(str(error)) from error
        raise


def _view(
    storage: Any,
    device: torch.device,
    dtype: torch.dtype,
    start: int,
    size: Sequence[int],
    stride: Sequence[int] = (1,),
) -> torch.Tensor:
    with torch.no_grad():
        empty = torch.empty(0, dtype=dtype, device=device)
        return empty.set_(storage, start // dtype.itemsize, tuple(size), tuple(stride))
