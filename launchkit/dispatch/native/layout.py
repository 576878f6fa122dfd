"""How a compiled kernel is passed to ``cuLaunchKernelEx``. Below c_core.py.

Read in the launchers of Triton 3.6 to 3.9, and checked by tests against their own launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from launchkit.dispatch import triton_seam as seam

# CUlaunchAttributeID of cuda.h, and values that Triton passes.
_COOPERATIVE = 2
_CLUSTER_DIMENSION = 4
_CLUSTER_POLICY, _SPREAD = 5, 1
_PROGRAMMATIC_SERIALIZATION = 6
_SHARED_MEMORY_MODE, _ALLOW_OVERSIZED = 18, 3
_MOST_SHARED_BYTES = 228 * 1024

Attribute = tuple[int, int, int, int]
Layout = tuple[int, int, int, int, tuple[Attribute, ...], tuple[tuple[int, str], ...]]
"""Function, threads, shared bytes, CTAs, launch attributes, and (parameter, type) per kernel
parameter without Triton's two scratch pointers."""


def direct_layout(compiled: Any, indices: Mapping[str, int]) -> Layout | None:
    """Return how to launch ``compiled``, or None where only Triton's launcher can.

    ``indices``: the number of each parameter by its name.
    """
    bound = seam.bind_launch(compiled)
    if not bound.direct:
        return None
    warps, ctas, shared_bytes = bound.metadata
    params = []
    for name, kind in compiled.src.signature.items():
        if not isinstance(kind, str) or name not in indices:
            return None
        if kind == "i8" and seam.GENERATES_LAUNCHERS:
            kind = "u8"  # its launcher takes 0 to 255 for one, and refuses what is negative
        if kind != "constexpr":
            params.append((indices[name], kind))
    attributes = tuple(_attributes(bound, ctas, shared_bytes))
    return bound.function, 32 * warps, shared_bytes, ctas, attributes, tuple(params)


def _attributes(bound: seam.BoundLaunch, ctas: int, shared_bytes: int) -> Iterator[Attribute]:
    if seam.VERSION >= (3, 8) and shared_bytes > _MOST_SHARED_BYTES:
        yield _SHARED_MEMORY_MODE, _ALLOW_OVERSIZED, 0, 0
    if bound.pdl:
        yield _PROGRAMMATIC_SERIALIZATION, 1, 0, 0
    if bound.cooperative:
        yield _COOPERATIVE, 1, 0, 0
    if ctas != 1:
        yield _CLUSTER_DIMENSION, ctas, 1, 1
        yield _CLUSTER_POLICY, _SPREAD, 0, 0
