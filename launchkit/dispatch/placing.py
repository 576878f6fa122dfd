"""The GPU that a launch's tensors are on: asked on the long way only. Above the seam.

Triton launches on the current device, wherever the tensors are. launchkit's own entries launch
where they are; kernels of others under ``install()`` keep Triton's way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from launchkit.dispatch import triton_seam as seam
from launchkit.errors import MixedDevicesError


def several_devices() -> bool:
    """Tell whether tensors can be on another GPU than the current one."""
    return torch.cuda.device_count() > 1


def _device_of(value: Any) -> int | None:
    """Return the ordinal of the GPU that a tensor is on, or None for anything else."""
    if isinstance(value, torch.Tensor) and value.is_cuda:
        return value.get_device()
    return None


def other_device(
    kernel: str, names: Iterable[str], args: Iterable[Any], kwargs: Mapping[str, Any]
) -> int | None:
    """Return the device that all tensors of a launch are on, or None if it is the current one.

    ``names``: of the kernel's parameters. The tensors of a tuple and of a tensor descriptor
    count, too. Launches without tensors, and tensors of the CPU, are Triton's affair.

    Raises:
        MixedDevicesError: they are on several.
    """
    if not several_devices():
        return None
    found = dict(_devices({**dict(zip(names, args, strict=False)), **kwargs}))
    devices = set(found.values())
    if len(devices) > 1:
        raise MixedDevicesError(kernel, found)
    if not devices or seam.interpreting():
        return None
    (device,) = devices
    return None if device == seam.current_device() else device


def _devices(values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        if isinstance(value, tuple):
            yield from _devices({f"{name}[{index}]": each for index, each in enumerate(value)})
            continue
        held = getattr(value, "base", None)  # of a tensor descriptor
        device = _device_of(held if isinstance(held, torch.Tensor) else value)
        if device is not None:
            yield name, device
