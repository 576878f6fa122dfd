"""LAUNCHKIT_VERIFY=1: what a shortcut would pass on, and what Triton would. Below launch_path.py.

Triton's side is made without the cores: Triton binds the arguments and says which compiled kernel
it would launch, the grid function is asked with Triton's mapping, and each parameter is packed
here by its type in the kernel's signature.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.native.interface import Core
from launchkit.errors import VerifyError

_REAL_FORMATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
_ADVICE = "Set LAUNCHKIT_DISABLE=1 to go on without shortcuts, and report the call."

Param = tuple[str, "bytes | None"]
"""A kernel parameter's name and bytes; None where only Triton's launcher knows them."""


@dataclass(frozen=True)
class PassedLaunch:
    """What a launch passes to the driver."""

    function: int
    """The driver's handle of the loaded function."""
    grid: tuple[Any, ...]
    """In blocks: x is multiplied by num_ctas."""
    threads: int
    """Per block."""
    shared_bytes: int
    """Dynamic shared memory per block."""
    params: tuple[Param, ...]
    """In the order of the signature, without constexprs and Triton's scratch memory."""


def pack(kind: str, value: Any) -> bytes | None:
    """Return a value's bytes as a kernel parameter of a type of Triton's signatures, such as
    ``*fp32``, ``i64`` or ``bf16``; None for other types, and what such a parameter cannot hold."""
    if kind[0] == "*":
        address = value.data_ptr() if hasattr(value, "data_ptr") else value or 0
        return int(address).to_bytes(8, "little")
    if kind[0] in "iu" and kind[1:].isdigit():
        size = max(int(kind[1:]) // 8, 1)
        is_integer = isinstance(value, int)
        return (value % (1 << 8 * size)).to_bytes(size, "little") if is_integer else None
    if not isinstance(value, (int, float)):
        return None
    if kind == "bf16":
        single = pack("fp32", value)
        return None if single is None else single[2:]  # cut off, not rounded
    return _pack_real(_REAL_FORMATS[kind], value) if kind in _REAL_FORMATS else None


def _pack_real(form: str, value: float) -> bytes | None:
    try:
        return struct.pack(form, value)
    except OverflowError:
        # As C converts a double; an int beyond doubles, and half precision, are Triton's affair.
        is_single = form == "<f" and isinstance(value, float)
        return struct.pack(form, math.copysign(math.inf, value)) if is_single else None


def signature_of(compiled: Any) -> Iterator[tuple[str, str]]:
    """Yield name and type of each parameter of a compiled kernel that is passed to it.

    What stands for several parameters, a tuple, has a type that ``pack`` does not know.
    """
    for name, kind in compiled.src.signature.items():
        if kind != "constexpr":
            yield name, kind if isinstance(kind, str) else "tuple"


def passed_launch(compiled: Any, grid: Any, params: Iterable[tuple[str, str, Any]]) -> PassedLaunch:
    """Return what Triton's launcher passes for a compiled kernel; ``params``: (name, type, value)."""
    metadata = compiled.metadata
    return PassedLaunch(
        function=compiled.function,
        grid=_in_blocks(grid, metadata.num_ctas),
        threads=32 * metadata.num_warps,
        shared_bytes=metadata.shared,
        params=tuple((name, pack(kind, value)) for name, kind, value in params),
    )


def _in_blocks(grid: Any, ctas: int) -> tuple[Any, ...]:
    dims = [grid[place] for place in range(min(len(grid), 3))]
    return (dims[0] * ctas, *[*dims, 1, 1][1:3]) if dims else ()


def _difference(
    planned: PassedLaunch, expected: PassedLaunch
) -> tuple[str, str | None, str] | None:
    """Return (what differs, name of the parameter or None, both in words), or None."""
    for field in ("function", "grid", "threads", "shared_bytes"):
        ours, theirs = getattr(planned, field), getattr(expected, field)
        if ours != theirs:
            return field, None, f"{field} {ours} instead of {theirs}"
    ours, theirs = planned.params, expected.params
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        return "parameters", None, f"parameters {ours} instead of {theirs}"
    for (name, our), (_, their) in zip(ours, theirs, strict=True):
        if our is not None and their is not None and our != their:
            return "parameter", name, f"bytes {our.hex()} of {name} instead of {their.hex()}"
    return None


def compare(name: str, what: str, planned: PassedLaunch, expected: PassedLaunch) -> None:
    """Raise VerifyError if they differ; ``what`` of the kernel called ``name`` was planned."""
    found = _difference(planned, expected)
    if found is not None:
        differs, parameter, words = found
        raise VerifyError(
            f"the {what} of {name} would pass {words}, which Triton would pass. {_ADVICE}",
            kernel=name,
            differs=differs,
            parameter=parameter,
            planned=planned,
            expected=expected,
        )


def compare_compiled(name: str, what: str, planned: Any, expected: Any, same: bool) -> None:
    """Raise VerifyError for compiled kernels that are not the ``same``."""
    if not same:
        raise VerifyError(
            f"the {what} of {name} holds another compiled kernel than Triton would launch. {_ADVICE}",
            kernel=name,
            differs="compiled kernel",
            parameter=None,
            planned=getattr(planned, "hash", None),
            expected=getattr(expected, "hash", None),
        )


def compare_heuristics(name: str, planned: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise VerifyError if a heuristic's value is not the one that was computed in its place."""
    for each, value in planned.items():
        if value is not expected[each]:
            raise VerifyError(
                f"the launch of {name} takes {value!r} for the heuristic {each}, which gives "
                f"{expected[each]!r}. {_ADVICE}",
                kernel=name,
                differs="heuristic",
                parameter=each,
                planned=value,
                expected=expected[each],
            )


def verify_launch(
    core: Core | None,
    runner: Any,
    jit: Any,
    name: str,
    grid: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    """Compare what a core would launch for these arguments with what Triton would.

    ``runner`` is the layer that Triton would go on with below the autotuner, ``jit`` the jitted
    function under it. A grid function is called for either. Nothing is launched.

    Raises:
        VerifyError: they differ.
    """
    found = None if core is None else core.preview(grid, args, kwargs)
    if found is None:
        return
    plan, passed = found
    chosen = {} if plan.config is None else plan.config.all_kwargs()
    compiled = seam.compiled_variant(runner, args, {**kwargs, **chosen})
    compare_compiled(name, "plan", plan.compiled, compiled, compiled is plan.compiled)
    bound = seam.bound_arguments(jit, args, {**kwargs, **chosen})
    dims = grid(bound) if callable(grid) else grid  # it may change the mapping, as with Triton
    kinds = list(signature_of(compiled))
    expected = passed_launch(compiled, dims, [(n, kind, bound[n]) for n, kind in kinds])
    if len(passed) == 2:
        planned = _handed_over(plan, passed[0], kinds, dict(zip(bound, passed[1], strict=True)))
    else:
        names = [each for each, _ in kinds]
        function, dims, threads, shared_bytes, packed = passed
        params: Iterator[Param] = itertools.zip_longest(names, packed)
        planned = PassedLaunch(function, dims, threads, shared_bytes, tuple(params))
    compare(name, "plan", planned, expected)


def _handed_over(
    plan: Any, grid: Any, kinds: Iterable[tuple[str, str]], values: Mapping[str, Any]
) -> PassedLaunch:
    """Return what Triton's launcher passes of what a plan hands it."""
    warps, ctas, shared_bytes = plan.metadata[:3]
    params = tuple((name, pack(kind, values[name])) for name, kind in kinds)
    return PassedLaunch(plan.function, _in_blocks(grid, ctas), 32 * warps, shared_bytes, params)
