"""What distinguishes two launches of one kernel: parts of a guard, as source. Below both cores.

At least as fine as Triton's specialization (read in Triton 3.4 to 3.9): per tensor dtype, device
type and 16-byte alignment; per int its class (range, equal to 1, divisible by 16); per constexpr
and per autotune key its value. What is not listed here gets no plan and goes through Triton.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.fingerprint import dtype_text
from launchkit.dispatch.placing import several_devices

TENSORS = (torch.Tensor, torch.nn.Parameter)
_INT_CLASSES_KEPT = 65536

# Triton binds these itself, so for it they are arguments by position and errors by keyword.
TAKEN_BY_TRITON = {"self", "grid", "warmup"}


@dataclass(frozen=True)
class ParamSpec:
    """What the guard needs to know about one kernel parameter."""

    name: str
    constexpr: bool
    specialize: bool
    align: bool
    in_key: bool
    supplied: bool
    """The config gives its value; a caller must not."""
    default: Any
    has_default: bool
    keyword_only: bool


@dataclass(frozen=True)
class GuardPart:
    """One element of a guard key: ``exact`` is cheap and finer, ``wide`` is what decides."""

    exact: str
    wide: str


def _same(text: str) -> GuardPart:
    """Return a part whose exact and deciding forms are the same."""
    return GuardPart(text, text)


class IntClasses(dict[int, int]):
    """Class of an int as Triton specializes it, remembered per value; bounded."""

    def __init__(self, specialize: bool) -> None:
        super().__init__()
        self._specialize = specialize

    def __missing__(self, value: int) -> int:
        if len(self) >= _INT_CLASSES_KEPT:
            self.clear()
        found = self[value] = self._classify(value)
        return found

    def _classify(self, value: int) -> int:
        if -(2**31) <= value < 2**31:
            width = 0
        elif -(2**63) <= value < 2**63:
            width = 1
        else:
            width = 2 if 0 <= value < 2**64 else 3
        if not self._specialize:
            return width
        return width + 4 * (value == 1) + 8 * (value % 16 == 0)


GUARD_NAMESPACE: dict[str, Any] = {
    "__classes": IntClasses(specialize=True),
    "__ranges": IntClasses(specialize=False),
    "__dtype_text": dtype_text,
}
"""The names that guard parts read besides the arguments."""


def pointer_name(param: ParamSpec) -> str:
    """Return the local name that holds a tensor argument's address."""
    return f"__p_{param.name}"


def on_device(param: ParamSpec) -> str:
    """Return the test that a tensor argument is on the current device, ``__on``.

    On a machine with one the device type says so.
    """
    test = f"{param.name}.{seam.expected_device_attribute()}"
    return f"({test} and {param.name}.get_device() == __on)" if several_devices() else test


def guard_parts(
    params: Sequence[ParamSpec], types: Sequence[type], choose_only: bool
) -> list[GuardPart] | None:
    """Return the parts for arguments of these types, or None if such a launch gets no plan.

    ``choose_only``: leave out what selects a compiled variant, keep what selects a config.
    """
    parts: list[GuardPart] = []
    for param, kind in zip(params, types, strict=True):
        found = _value_parts(param, kind, choose_only)
        if found is None:
            return None
        parts += found
    return parts


def unknown_argument(
    params: Sequence[ParamSpec], choose_only: bool, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    """Return ``name (type)`` of the first argument or option that keeps a launch from a plan, or
    None if it is none of them by itself.
    """
    by_name = {param.name: param for param in params}
    positional = [param.name for param in params if not param.keyword_only]
    for name, value in (*zip(positional, args, strict=False), *kwargs.items()):
        param = by_name.get(name)
        if param is None:
            known = option_key({name: value}) is not None
        else:
            known = _value_parts(param, type(value), choose_only) is not None
        if not known:
            return f"{name} ({type(value).__qualname__})"
    return None


def _value_parts(param: ParamSpec, kind: type, choose_only: bool) -> list[GuardPart] | None:
    name = param.name
    if kind is type(None):
        return []
    if choose_only and not param.in_key:
        return _dtype_parts(name, kind)
    if kind in TENSORS:
        return None if param.constexpr or param.in_key else _tensor_parts(param)
    if param.constexpr or param.in_key:
        return _constant_parts(name, kind)
    if kind in (bool, float):
        return []
    if kind is int:
        return [GuardPart(name, f"{'__classes' if param.specialize else '__ranges'}[{name}]")]
    return None


def _dtype_parts(name: str, kind: type) -> list[GuardPart]:
    """Return what the choice of a config takes from an argument that is no key: its dtype."""
    if kind in (int, bool, float, str):
        return []
    return [_same(f"{name}.dtype" if kind in TENSORS else f"__dtype_text({name})")]


def _tensor_parts(param: ParamSpec) -> list[GuardPart]:
    parts = [_same(f"{param.name}.dtype"), _same(on_device(param))]
    if param.align and param.specialize:
        parts.append(_same(f"not {pointer_name(param)} & 15"))
    return parts


def _constant_parts(name: str, kind: type) -> list[GuardPart] | None:
    if kind in (int, bool, str, seam.triton_dtype, torch.dtype):
        return [_same(name)]
    # hex() tells 0.0 from -0.0 and makes every NaN the same.
    return [_same(f"{name}.hex()")] if kind is float else None


def option_key(options: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return a guard key of launch options such as num_warps, or None if one is not simple."""
    if all(type(value) in (int, bool, str, type(None)) for value in options.values()):
        return tuple((name, type(value), value) for name, value in options.items())
    return None


def generable(names: Iterable[str]) -> bool:
    """Tell whether code can be generated for parameters of these names: none may clash with what
    the code or Triton calls its own."""
    return all(
        name.isidentifier()
        and not keyword.iskeyword(name)
        and name not in TAKEN_BY_TRITON
        and not name.startswith("__")
        for name in names
    )
