"""What tells two compiled variants of a kernel apart, in words. Below watching.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "instrumentation_mode", "ir_override",
    "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl",
)  # fmt: skip
"""Launch options whose change compiles again and whose value a caller knows."""

_ABSENT = object()


@dataclass(frozen=True)
class ArgumentChange:
    """How one argument or option differs from the nearest variant that was there before."""

    argument: str
    """The parameter's name; an option's name; ``dtype of NAME`` in an autotune key."""
    change: str
    """The class that changed, such as ``became 1`` or ``is no longer aligned to 16 bytes``."""
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.argument} {self.change} ({self.before} → {self.after})"


@dataclass(frozen=True)
class Variant:
    """What Triton compiles a kernel for: per parameter its class, and the options."""

    classes: Mapping[str, _Class]
    options: Mapping[str, Any]

    def changes_from(self, other: Variant) -> list[ArgumentChange]:
        """Return what is different here from ``other``, parameters first."""
        changes = [
            _class_change(name, other.classes[name], mine)
            for name, mine in self.classes.items()
            if name in other.classes and not mine.same(other.classes[name])
        ]
        for name, mine in self.options.items():
            theirs = other.options.get(name, mine)
            if theirs != mine:
                changes.append(ArgumentChange(name, "changed", repr(theirs), repr(mine)))
        return changes


@dataclass(frozen=True)
class _Class:
    """What Triton knows of one argument when it compiles."""

    type: Any
    """As in Triton's signature: ``*fp32``, ``i32``, ``constexpr``, a tuple for a tuple."""
    constants: tuple[tuple[Any, Any], ...]
    divisible: tuple[Any, ...]
    declared: bool
    """Whether the parameter is declared ``tl.constexpr``."""

    @property
    def value(self) -> Any:
        """The value that was compiled in, if the whole argument is one."""
        return self.constants[0][1] if self.type == "constexpr" and self.constants else _ABSENT

    def same(self, other: _Class) -> bool:
        """Tell whether Triton compiles the same for both."""
        mine, theirs = (_typed(c.constants) for c in (self, other))
        return (self.type, self.divisible, mine) == (other.type, other.divisible, theirs)

    def __str__(self) -> str:
        if self.value is not _ABSENT:
            return repr(self.value)
        return f"{self.type}{', divisible by 16' if self.divisible else ''}"


def _typed(constants: tuple[tuple[Any, Any], ...]) -> tuple[Any, ...]:
    # 1, 1.0 and True are equal, and compile to different code; an array compares elementwise.
    return tuple((path, type(value), repr(value)) for path, value in constants)


def variant_of(
    jit: Any,
    signature: Mapping[str, Any],
    constants: Mapping[Any, Any],
    attributes: Mapping[Any, Any],
    options: Any,
) -> Variant:
    """Return the variant for what Triton hands to its compiler.

    ``constants`` and ``attributes`` are by path: (index of the parameter, then of tuple items).
    """
    classes = {}
    for index, (param, kind) in enumerate(zip(jit.params, signature.values(), strict=False)):
        inside = tuple((path[1:], value) for path, value in constants.items() if path[0] == index)
        divisible = tuple(
            path[1:] for path, found in attributes.items() if path[0] == index and found
        )
        classes[param.name] = _Class(kind, inside, divisible, param.is_constexpr)
    known = {name: getattr(options, name) for name in _OPTIONS if hasattr(options, name)}
    return Variant(classes, known)


def compiled_variants(jit: Any, device: int) -> list[Variant]:
    """Return the variants that a kernel's cache on a device holds, oldest first."""
    entry = jit.device_caches.get(device)
    found = []
    for compiled in () if entry is None else list(entry[0].values()):
        source: Any = getattr(compiled, "src", None)
        options = getattr(compiled, "metadata", None)
        if hasattr(source, "constants"):  # neither a future nor made from a file
            found.append(variant_of(jit, source.signature, source.constants, source.attrs, options))
    return found


def nearest(changes: Iterable[list[ArgumentChange]]) -> list[ArgumentChange] | None:
    """Return the shortest of several lists of changes, the last of equals; None for none."""
    best: list[ArgumentChange] | None = None
    for each in changes:
        if best is None or len(each) <= len(best):
            best = each
    return best


def _class_change(name: str, before: _Class, after: _Class) -> ArgumentChange:
    return ArgumentChange(name, _change_text(before, after), str(before), str(after))


def _change_text(before: _Class, after: _Class) -> str:
    if before.declared:
        return "has a new constexpr value"
    if after.value is None:
        return "became None"
    if before.value is None:
        return "is no longer None"
    if after.value == 1:
        return "became 1"
    if before.value == 1:
        return "is no longer 1"
    if before.type != after.type:
        return _type_change(str(before.type), str(after.type))
    what = "aligned to" if str(after.type).startswith("*") else "divisible by"
    unit = " bytes" if what == "aligned to" else ""
    lost = len(before.divisible) > len(after.divisible)
    return f"is {'no longer' if lost else 'now'} {what} 16{unit}"


def _type_change(before: str, after: str) -> str:
    if before.startswith("*") and after.startswith("*"):
        return "has a new dtype"
    integers = {"i32", "i64", "u64"}
    if {before, after} <= integers:
        return "needs another integer width"
    return "has a new type"
