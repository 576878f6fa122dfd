"""``grid`` and ``cdiv``: launch grids that are written down, not computed. A leaf of dispatch.

A grid is one to three terms over the kernel's arguments. It is a callable like any other grid
function, so Triton takes it; the C core compiles it once per kernel (native/grid.c) and then
evaluates it without calling Python. Pure Python, imports neither torch nor Triton.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

from launchkit.errors import GridError, GridNameError, GridValueError

TermLike: TypeAlias = Union["Term", int, str]
"""What may stand in a term: another one, an int, the name of a kernel parameter."""

Step: TypeAlias = "tuple[str, int | str | None]"
"""``("int", 5)``, ``("name", "M")``, or an operator and None."""

MAX_DIMENSIONS = 3


def _ceiling(left: int, right: int) -> int:
    return (left + right - 1) // right  # triton.cdiv, also where the divisor is negative


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "cdiv": _ceiling,
    "at_most": min,
    "at_least": max,
}
_BINDS = {"+": 1, "-": 1, "*": 2, "//": 2}


@dataclass(frozen=True, repr=False)
class Term:
    """An integer expression over a kernel's parameters; ``cdiv`` makes the first one.

    Terms, ints and names combine with ``+``, ``-``, ``*``, ``//`` and ``cdiv``; ``at_most`` and
    ``at_least`` bound one. Terms are immutable, and equal if they are written alike.
    """

    steps: tuple[Step, ...]
    """The expression in postfix order."""

    @property
    def names(self) -> frozenset[str]:
        """The parameters whose values it reads."""
        return frozenset(str(operand) for kind, operand in self.steps if kind == "name")

    def with_values(self, values: Mapping[str, Any]) -> Term:
        """Return the term with the names that stand for ints in ``values`` replaced by these."""
        return Term(
            tuple(
                ("int", values[str(step[1])])
                if step[0] == "name" and type(values.get(str(step[1]))) is int
                else step
                for step in self.steps
            )
        )

    def at_most(self, other: TermLike) -> Term:
        """Return the smaller of this and ``other``."""
        return _combined("at_most", self, other)

    def at_least(self, other: TermLike) -> Term:
        """Return the larger of this and ``other``."""
        return _combined("at_least", self, other)

    def __add__(self, other: TermLike) -> Term:
        return _combined("+", self, other)

    def __radd__(self, other: TermLike) -> Term:
        return _combined("+", other, self)

    def __sub__(self, other: TermLike) -> Term:
        return _combined("-", self, other)

    def __rsub__(self, other: TermLike) -> Term:
        return _combined("-", other, self)

    def __mul__(self, other: TermLike) -> Term:
        return _combined("*", self, other)

    def __rmul__(self, other: TermLike) -> Term:
        return _combined("*", other, self)

    def __floordiv__(self, other: TermLike) -> Term:
        return _combined("//", self, other)

    def __rfloordiv__(self, other: TermLike) -> Term:
        return _combined("//", other, self)

    def evaluate(self, meta: Mapping[str, Any]) -> int:
        """Return the value for a mapping of arguments by name.

        Raises:
            GridNameError: the mapping lacks a name.
            GridValueError: an argument is no int, or a divisor is zero.
        """
        stack: list[int] = []
        for kind, operand in self.steps:
            if kind == "int":
                stack.append(operand)  # type: ignore[arg-type]
            elif kind == "name":
                stack.append(_argument(self, meta, str(operand)))
            else:
                right, left = stack.pop(), stack.pop()
                if right == 0 and kind in ("//", "cdiv"):
                    raise GridValueError(repr(self), kind, right, "divides by zero")
                stack.append(_OPERATIONS[kind](left, right))
        return stack[0]

    def __repr__(self) -> str:
        stack: list[tuple[str, int]] = []
        for kind, operand in self.steps:
            if kind in ("int", "name"):
                stack.append((repr(operand), 3))
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_text(kind, left, right))
        return stack[0][0]


def _text(kind: str, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    if kind == "cdiv":
        return f"cdiv({left[0]}, {right[0]})", 3
    if kind in _BINDS:
        binds = _BINDS[kind]
        before = left[0] if left[1] >= binds else f"({left[0]})"
        after = right[0] if right[1] > binds else f"({right[0]})"
        return f"{before} {kind} {after}", binds
    before = left[0] if left[1] == 3 else f"({left[0]})"
    return f"{before}.{kind}({right[0]})", 3


def _argument(term: Term, meta: Mapping[str, Any], name: str) -> int:
    if name not in meta:
        raise GridNameError(repr(term), name, tuple(meta))
    value = meta[name]
    if isinstance(value, bool) or not isinstance(value, int):
        # torch.compile's sizes that may change stand for ints.
        if type(value).__name__ == "SymInt":
            return value
        value = _interpreted(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise GridValueError(repr(term), name, value, f"is {type(value).__name__}, not an int")
    return value


def _interpreted(value: Any) -> Any:
    """Return the number that a scalar of Triton's interpreter holds, and anything else as it is."""
    held: Any = getattr(getattr(value, "handle", None), "data", None)
    return held.item() if getattr(held, "size", 0) == 1 else value


def _steps(value: TermLike) -> tuple[Step, ...]:
    if isinstance(value, Term):
        return value.steps
    if isinstance(value, str) and value.isidentifier():
        return (("name", str(value)),)
    if isinstance(value, int) and not isinstance(value, bool):
        return (("int", int(value)),)
    raise GridError(
        f"{value!r} cannot stand in a grid. Give an int, the name of a kernel parameter, or what "
        "cdiv, +, -, * and // make of those.",
        term=repr(value),
    )


def _combined(kind: str, left: TermLike, right: TermLike) -> Term:
    return Term((*_steps(left), *_steps(right), (kind, None)))


def cdiv(dividend: TermLike, divisor: TermLike) -> Term:
    """Return ``dividend / divisor`` rounded up, a term of a ``grid``.

    Both are ints, names of kernel parameters (arguments, constexprs and what configs supply
    alike) or other terms. Rounds as ``triton.cdiv``. ``cdiv("M", 1)`` makes a term of one
    parameter, for expressions without another one: ``"M" * 2`` would repeat the text.

    Raises:
        GridError: something else was given.
    """
    return _combined("cdiv", dividend, divisor)


@dataclass(frozen=True, repr=False)
class Grid:
    """What ``launchkit.grid`` returns: immutable, hashable, callable with Triton's mapping."""

    dims: tuple[Term, ...]
    """One term per dimension, x first."""

    @property
    def names(self) -> frozenset[str]:
        """The parameters whose values it reads."""
        return frozenset().union(*(dim.names for dim in self.dims))

    def __call__(self, meta: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the dimensions for a mapping of all kernel arguments by name.

        Raises:
            GridNameError: a name in it is no parameter of the kernel.
            GridValueError: an argument is no int, or a divisor is zero.
        """
        return tuple([dim.evaluate(meta) for dim in self.dims])

    def with_values(self, values: Mapping[str, Any]) -> Grid:
        """Return the grid with the names that stand for ints in ``values`` replaced by these."""
        return Grid(tuple(dim.with_values(values) for dim in self.dims))

    def __repr__(self) -> str:
        return f"grid({', '.join(map(repr, self.dims))})"


def grid(*dims: TermLike) -> Grid:
    """Return a launch grid of one to three dimensions, written over the kernel's parameters.

    ``grid(cdiv("M", "BLOCK_M"), "batch")`` stands wherever Triton takes a grid, also in plain
    ``kernel[...]``. The C core evaluates it without calling Python, in 64 bits; make it once,
    where the kernel is defined, and not at each launch.

    Args:
        dims: ints, names of kernel parameters (arguments, constexprs and what configs supply
            alike), and terms that ``cdiv``, ``+``, ``-``, ``*``, ``//``, ``at_most`` and
            ``at_least`` make of them.

    Raises:
        GridError: no dimension, more than three, or something that cannot stand in one. At a
            launch also its subclasses GridNameError and GridValueError, see ``errors``.
    """
    if not 1 <= len(dims) <= MAX_DIMENSIONS:
        raise GridError(
            f"a grid of {len(dims)} dimensions. Give one to {MAX_DIMENSIONS}, x first.",
            dimensions=len(dims),
        )
    return Grid(tuple(Term(_steps(dim)) for dim in dims))


def traceable(grid: Any) -> Any:
    """Return a grid as torch.compile takes it: of callables it knows functions and methods."""
    return grid.__call__ if type(grid) is Grid else grid
