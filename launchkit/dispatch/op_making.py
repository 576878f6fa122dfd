"""From a watched call to an op plan: where each address comes from. Below op_plans.py."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import torch

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.op_recording import Watched

# Where an address or a result comes from, as in op.h.
_ARGUMENT, _WORKSPACE, _RESULT = 0, 1, 2
_CONSTANT = -1
_EMPTY = -1
_PART_BYTES = 512
"""Parts of a workspace start at multiples of it, as torch's own allocations on a GPU do."""
_CONSTANTS = (type(None), bool, int, float, str, torch.dtype, torch.device)


class NoPlanError(Exception):
    """A call from which no plan can be made. ``final``: nor from a later one of its kind."""

    def __init__(self, reason: str, *, final: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


def make_plan(
    extension: ModuleType,
    key: bytes,
    watched: Watched,
    tensors: tuple[torch.Tensor, ...],
    result: Any,
    direct: bool,
) -> Any:
    """Return an OpPlan of a watched call, for calls of the same ``key``.

    ``tensors``: those among the arguments; ``result``: what the op returned. ``direct``: every kernel's launches must go straight
    to its core.

    Raises:
        NoPlanError: it cannot be repeated, or it is not known to be.
    """
    _check_launches(watched, direct)
    returned = result if type(result) in (tuple, list) else (result,)
    layout = _Layout(watched, tensors)
    results = tuple(layout.result(item) for item in returned)
    container = type(result) if returned is result else None
    sources = layout.sources()
    plan = extension.OpPlan(
        key,
        watched.recording,
        len(tensors),
        sources,
        layout.workspace_bytes,
        tuple(layout.makers),
        results,
        container,
    )
    if plan is None:
        raise NoPlanError(
            "a kernel gets a tensor that is neither an argument nor allocated by the op"
        )
    return plan


def _check_launches(watched: Watched, direct: bool) -> None:
    reason = watched.recording.reason
    if reason is not None:
        # Tuning, imports that are made late, and another thread's clearing come once.
        passing = ("through Triton", "it calls", "meanwhile")
        raise NoPlanError(reason, final=not any(part in reason for part in passing))
    launches = watched.recording.launches()
    if not launches:
        raise NoPlanError("it launches nothing")
    for entry, core, device, stream in launches:
        if (device, stream) != (watched.device, watched.stream):
            raise NoPlanError("it launches on another device or stream than the current one")
        if direct and entry.fast is not core:
            raise NoPlanError(f"{entry.name} is launched by way of Python", final=False)


class _Layout:
    """Which allocations a replay makes by themselves, and where in its workspace the others are."""

    def __init__(self, watched: Watched, tensors: tuple[torch.Tensor, ...]) -> None:
        self._allocations = watched.allocations
        self._arguments = tensors
        self._device = watched.device
        self._on_cuda = seam.device_source().tensors_on_cuda
        self._used = watched.recording.tensors()
        self._places: dict[int, tuple[int, int]] = {}
        self.makers: list[Any] = []
        self.workspace_bytes = 0

    def result(self, item: Any) -> tuple[int, Any]:
        """Return where something that the op returned comes from."""
        if type(item) in _CONSTANTS:
            return _CONSTANT, item
        for index, argument in enumerate(self._arguments):
            if argument is item:
                return _ARGUMENT, index
        number = self._allocations.find(item)
        if number is None:
            raise NoPlanError(
                f"it returns a {type(item).__name__} that it neither got nor allocated"
            )
        if item.requires_grad:
            raise NoPlanError("its result carries gradients")
        if number not in self._places:
            self._check_place(item)
            self._places[number] = (_RESULT, len(self.makers))
            self.makers.append(_maker(item))
        return self._places[number]

    def sources(self) -> tuple[tuple[torch.Tensor, int, int], ...]:
        """Return (tensor, where from, place there) for each that a kernel may have been given."""
        found = [(tensor, _ARGUMENT, index) for index, tensor in enumerate(self._arguments)]
        for tensor in self._used:
            number = self._allocations.find(tensor)
            if number is not None and number not in self._places:
                self._places[number] = self._part(tensor)
        found += [
            (tensor, *self._places[number])
            for tensor, number in self._allocations.names
            if number in self._places
        ]
        return tuple(found)

    def _part(self, tensor: torch.Tensor) -> tuple[int, int]:
        self._check_place(tensor)
        if tensor.numel() == 0:
            return _WORKSPACE, _EMPTY
        start = self.workspace_bytes
        sizes = zip(tensor.shape, tensor.stride(), strict=True)
        elements = 1 + sum((size - 1) * stride for size, stride in sizes)
        parts = math.ceil(elements * tensor.element_size() / _PART_BYTES)
        self.workspace_bytes += parts * _PART_BYTES
        return _WORKSPACE, start

    def _check_place(self, tensor: torch.Tensor) -> None:
        device = tensor.device
        if device.type != ("cuda" if self._on_cuda else "cpu") or (
            self._on_cuda and device.index != self._device
        ):
            raise NoPlanError(f"it allocates on {device}")
        if tensor.data_ptr() % 16:
            raise NoPlanError("torch's allocator does not align")


def _maker(tensor: torch.Tensor) -> Any:
    """Return (callable, arguments, names of those that are keywords) for a tensor like this."""
    size, stride, names = tuple(tensor.shape), tensor.stride(), ("dtype", "device")
    # Not is_contiguous(), for which the stride along one element may be any.
    if stride == torch.empty(size, device="meta").stride():
        return torch.empty, (size, tensor.dtype, tensor.device), names
    return torch.empty_strided, (size, stride, tensor.dtype, tensor.device), names
