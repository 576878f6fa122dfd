"""What the values of a chrome trace mean: times, ids, categories, kernels' names. A leaf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeGuard

_MOST_NS = 2**62

HOST, CALL, GPU, OVERHEAD = "host", "call", "gpu", "overhead"

_RANGES = "cpu_op operator user_annotation python_function cpu_instant_event"
_CALLS = (
    "cuda_runtime cuda_driver runtime driver hip_runtime xpu_runtime xpu_driver mtia_runtime "
    "musa_runtime privateuse1_runtime privateuse1_driver"
)
_GPU = (
    "kernel gpu_memcpy gpu_memset memcpy memset gpu_op concurrent_kernel hpu_op mtia_ccp_events "
    "mtia_workloadd"
)

ROLES: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_RANGES.split(), HOST),
        **dict.fromkeys(_CALLS.split(), CALL),
        **dict.fromkeys(_GPU.split(), GPU),
        "overhead": OVERHEAD,
    }
)
"""By category, in lower case: what an event with a duration is. Others are ranges of the host."""

LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "gpu_user_annotation": "GPU images of host annotations",
        "trace": "spans of the profiler itself",
        "cuda_sync": "records of waiting beside the calls that wait",
        "cuda_profiler_range": "profiler ranges",
        "collective_comm": "records beside the kernels of collectives",
    }
)
"""By category: why an event is not used."""

_OVERHEADS = (
    ("queue_full", "command buffer full"),
    ("lazy_loading", "lazy function loading"),
    ("module_loading", "module loading"),
    ("flush", "flush"),
    ("flush", "buffer request"),
    ("jit", "compil"),
    ("instrumentation", "instrumentation"),
    ("resource", "resource"),
)


def overhead_kind(name: str) -> str:
    """Return the kind of an overhead, as the model's ``OVERHEAD_KINDS`` has it."""
    return next((kind for kind, part in _OVERHEADS if part in name.lower()), "other")


def gpu_kind(category: str, name: str) -> str:
    """Return the kind of GPU work, as the model's ``GPU_KINDS`` has it."""
    for kind in ("memcpy", "memset"):
        if kind in category or name.lower().startswith(kind):
            return kind
    return "kernel"


def nanoseconds(value: object) -> int | None:
    """Return a time in µs (a number, or its text) as whole ns; None for what is none."""
    if isinstance(value, str):
        try:
            value = Decimal(value.strip())
        except ArithmeticError:
            return None
    return round(value * 1000) if _fits(value, _MOST_NS // 1000) else None


def integer(value: object) -> int | None:
    """Return an int of 64 bits (a number, or its text); None for what is none."""
    if isinstance(value, str):
        text = value.strip()
        if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
            return None
        value = int(text)
    return int(value) if _fits(value, _MOST_NS) and value == int(value) else None


def _fits(value: object, most: int) -> TypeGuard[int | Decimal]:
    if type(value) is Decimal:
        return value.is_finite() and -most < value < most
    return type(value) is int and -most < value < most


def arguments(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the event's ``args``; none where they are no object."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def text(value: object) -> str:
    """Return a name as text that UTF-8 can hold."""
    if value is None:
        return ""
    made = value if isinstance(value, str) else str(value)
    return made if made.isascii() else made.encode("utf-8", "replace").decode()


@lru_cache(maxsize=16384)
def short_kernel_name(name: str) -> str:
    """Return a demangled kernel's name without return type, namespaces, template and arguments.

    >>> short_kernel_name("void at::native::(anonymous namespace)::fill<4, F<A> >(int, F<A>)")
    'fill'
    """
    plain = name.replace("(anonymous namespace)", "anonymous").replace("operator()", "operator")
    plain = _without_arguments(plain)
    # The last name outside any brackets, and what stood before its template's arguments.
    depth, start, end = 0, 0, len(plain)
    for place, letter in enumerate(plain):
        if letter in "<({[":
            end = place if depth == 0 else end
            depth += 1
        elif letter in ">)}]":
            depth = max(depth - 1, 0)
        elif depth == 0 and letter in " :*&":
            start, end = place + 1, len(plain)
    return plain[start:end].strip() or name


def _without_arguments(name: str) -> str:
    depth = 0
    for place, letter in enumerate(name):
        if letter == "(" and depth == 0 and place:
            return name[:place]
        depth += (letter in "<{[") - (letter in ">}]")
    return name
