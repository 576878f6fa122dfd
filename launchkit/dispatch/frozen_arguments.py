"""The varying arguments of a frozen handle: which may vary, and their classes. Below frozen.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launchkit.dispatch.layers import KernelParts, kernel_name, supplied_names, take_apart
from launchkit.dispatch.native.guard import TENSORS, IntClasses
from launchkit.errors import FrozenArgumentError, UsageError

_CLASSES = {flag: IntClasses(specialize=flag) for flag in (True, False)}
_WIDTHS = ("32 bits", "64 bits", "64 bits without a sign", "more than 64 bits")
_MULTIPLE_OF_16, _EQUAL_TO_1 = 8, 4


@dataclass(frozen=True)
class VaryingArgument:
    """One varying argument, and the class that its values must be of."""

    name: str
    specialize: bool
    """Triton compiles for ints that are 1 or divisible by 16, and for aligned addresses."""
    align: bool
    example: Any
    """Its value when the handle was made."""
    accepted: tuple[Any, ...]

    def check(self, kernel: str, value: Any) -> None:
        """Raise FrozenArgumentError for a value of another class."""
        found = _class_of(value, self.specialize, self.align)
        if found != self.accepted:
            expected = _text(self.accepted)
            raise FrozenArgumentError(kernel, self.name, expected, _got(value, found))


def check_varying(kernel: Any, names: Sequence[str]) -> None:
    """Raise UsageError for names of arguments that cannot vary, and for a kernel that has
    ``varying`` among its own parameters."""
    parts, name = take_apart(kernel), kernel_name(kernel)
    if "varying" in parts.jit.arg_names:
        raise UsageError(
            f"{name} has a parameter named varying, which freeze takes for its own. Rename it.",
            kernel=name,
        )
    for each in names:
        reason = _why_fixed(parts, each)
        if reason is None and names.count(each) > 1:
            reason = "is named twice"
        if reason is not None:
            raise UsageError(
                f"{each} of {name} cannot vary: it {reason}. Leave it out of varying.",
                kernel=name,
                argument=each,
            )


def _why_fixed(parts: KernelParts, name: str) -> str | None:
    if name not in parts.jit.arg_names:
        return f"is none of its parameters: {', '.join(parts.jit.arg_names)}"
    if any(each.name == name and each.is_constexpr for each in getattr(parts.jit, "params", ())):
        return "is a constexpr, which is compiled in"
    if name in supplied_names(parts).union(*(layer.values for layer in parts.outer_heuristics)):
        return "comes from a config or a heuristic"
    return None


def varying_arguments(
    name: str, kernel: Any, values: Mapping[str, Any], varying: tuple[str, ...]
) -> tuple[VaryingArgument, ...]:
    """Return the descriptions of the varying arguments, by the ``values`` that are frozen.

    Raises:
        UsageError: one has no value, or is neither a tensor nor a plain number.
    """
    flags = {param.name: param for param in getattr(take_apart(kernel).jit, "params", ())}
    found = []
    for each in varying:
        if each not in values:
            raise UsageError(
                f"{each} varies and has no value to freeze {name} for. Pass one that stands for "
                "the others.",
                kernel=name,
                argument=each,
            )
        param = flags.get(each)
        specialize = param is None or not param.do_not_specialize
        align = param is None or not param.do_not_specialize_on_alignment
        found.append(_varying_argument(name, each, values[each], specialize, align))
    return tuple(found)


def _varying_argument(
    kernel: str, name: str, example: Any, specialize: bool, align: bool
) -> VaryingArgument:
    """Return the description of one varying argument by the example that was frozen.

    ``specialize`` and ``align``: what the kernel's signature lets Triton compile for.

    Raises:
        UsageError: it is neither a tensor nor a plain number.
    """
    accepted = _class_of(example, specialize, align and specialize)
    if accepted is None:
        raise UsageError(
            f"{name} of {kernel} is a {type(example).__name__}, and only tensors and plain numbers "
            "can vary in a frozen launch. Freeze it, or launch with launchkit.launch.",
            kernel=kernel,
            argument=name,
        )
    return VaryingArgument(name, specialize, align and specialize, example, accepted)


def bind_varying(
    kernel: str,
    varying: Sequence[VaryingArgument],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the checked value of each varying argument by name.

    Raises:
        FrozenArgumentError: one is missing, given twice, unknown, or of another class.
    """
    names = [argument.name for argument in varying]
    every = f"({', '.join(names)})" if names else "no arguments"
    if len(args) > len(names):
        raise FrozenArgumentError(kernel, "arguments", every, f"{len(args)} by position")
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise FrozenArgumentError(kernel, "arguments", every, f"{name}, which is none of them")
        if name in given:
            raise FrozenArgumentError(kernel, name, "one value", "two")
        given[name] = value
    for argument in varying:
        if argument.name not in given:
            raise FrozenArgumentError(kernel, argument.name, "one value", "none")
        argument.check(kernel, given[argument.name])
    return {name: given[name] for name in names}


def _class_of(value: Any, specialize: bool, align: bool) -> tuple[Any, ...] | None:
    """Return what Triton may compile a value for, no coarser; None for what cannot vary."""
    kind = type(value)
    if kind in TENSORS:
        try:
            aligned = value.data_ptr() % 16 == 0 if align else None
        except RuntimeError:  # sparse, meta: there is no address
            return None
        return "tensor", value.dtype, value.device, aligned
    if kind is int:
        return "int", _CLASSES[specialize][value], specialize
    if value is None or kind in (bool, float):
        return (kind.__name__,)
    return None


def _text(found: tuple[Any, ...]) -> str:
    if found[0] == "tensor":
        aligned = {None: "", True: ", aligned to 16 bytes", False: ", not aligned to 16 bytes"}
        return f"a tensor of {found[1]} on {found[2]}{aligned[found[3]]}"
    if found[0] != "int":
        return "None" if found[0] == "NoneType" else f"a {found[0]}"
    _, number, specialized = found
    if number & _EQUAL_TO_1:
        return "the int 1, which is compiled in"
    multiple = "" if number & _MULTIPLE_OF_16 else "not "
    which = f", other than 1, {multiple}divisible by 16" if specialized else ""
    return f"an int of {_WIDTHS[number & 3]}{which}"


def _got(value: Any, found: tuple[Any, ...] | None) -> str:
    if found is None:
        return f"a {type(value).__name__}"
    return f"{value!r}, {_text(found)}" if found[0] in ("int", "float", "bool") else _text(found)
