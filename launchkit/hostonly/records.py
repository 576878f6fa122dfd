"""What a launch over the host-only driver leaves behind. Plain types; used by stub.py."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

AttributeValue: TypeAlias = "int | tuple[int, int, int]"
Dim3: TypeAlias = "tuple[int, int, int]"

LABEL = "host-only"
"""Stands in everything that was obtained without a GPU."""

# The record that stub_cuda.c writes: function, stream, grid, block, shared bytes, device,
# attribute count, parameter count, payload bytes, reserved; then the attributes.
_HEADER = struct.Struct("<QQ3I3IIiIIII")
_ATTRIBUTE = struct.Struct("<I16s")
_MAX_ATTRIBUTES = 8
_RECORD_BYTES = _HEADER.size + _MAX_ATTRIBUTES * _ATTRIBUTE.size

_CLUSTER_DIM = 4
_ATTRIBUTE_NAMES = {
    2: "cooperative",
    _CLUSTER_DIM: "cluster_dim",
    5: "cluster_scheduling_policy",
    6: "programmatic_stream_serialization",
    18: "shared_memory_mode",
}


@dataclass(frozen=True)
class HostLaunch:
    """One launch that reached the driver, and was not executed."""

    kernel: str
    """The name of the kernel in its cubin."""
    function: int
    """The driver's handle of the loaded function; never used for another one."""
    grid: Dim3
    """In blocks, as the driver got it: x is already multiplied by num_ctas."""
    block: Dim3
    """In threads."""
    shared_bytes: int
    """Dynamic shared memory per block."""
    stream: int
    """The stream's handle."""
    attributes: tuple[tuple[str, AttributeValue], ...]
    """Launch attributes in the order in which they were passed."""
    params: tuple[bytes, ...]
    """Each kernel parameter's bytes, as long as the cubin says that it is."""
    device: int = 0
    """The device that the function was loaded for."""

    def __repr__(self) -> str:
        return (
            f"<{LABEL} launch of {self.kernel} on device {self.device}: grid={self.grid} "
            f"block={self.block} shared_bytes={self.shared_bytes} stream={self.stream:#x} "
            f"attributes={dict(self.attributes)} params={len(self.params)}>"
        )


def decode(block: bytes, kernel_name: Callable[[int], str]) -> list[HostLaunch]:
    """Return the launches in a snapshot of the stub, oldest first."""
    return list(_decode(block, kernel_name))


def _decode(block: bytes, kernel_name: Callable[[int], str]) -> Iterator[HostLaunch]:
    position = 0
    while position < len(block):
        fields = _HEADER.unpack_from(block, position)
        function, stream, *dims, shared_bytes, device, attributes, params, payload, _ = fields
        start = position + _RECORD_BYTES
        yield HostLaunch(
            kernel=kernel_name(function),
            function=function,
            grid=(dims[0], dims[1], dims[2]),
            block=(dims[3], dims[4], dims[5]),
            shared_bytes=shared_bytes,
            stream=stream,
            attributes=tuple(_attributes(block, position + _HEADER.size, attributes)),
            params=tuple(_params(block, start, params)),
            device=device,
        )
        position = start + payload


def _attributes(block: bytes, start: int, count: int) -> Iterator[tuple[str, AttributeValue]]:
    for index in range(count):
        number, raw = _ATTRIBUTE.unpack_from(block, start + index * _ATTRIBUTE.size)
        x, y, z = struct.unpack_from("<3I", raw)
        name = _ATTRIBUTE_NAMES.get(number, f"attribute_{number}")
        yield name, (x, y, z) if number == _CLUSTER_DIM else x


def _params(block: bytes, start: int, count: int) -> Iterator[bytes]:
    sizes = struct.unpack_from(f"<{count}I", block, start)
    position = start + 4 * count
    for size in sizes:
        yield block[position : position + size]
        position += size
