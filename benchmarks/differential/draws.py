"""Random values and spellings of calls for ``launchkit bench differential``.

What is drawn falls into a few hundred kinds for which Triton compiles, and into any number of
values within them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch

import launchkit

Values = dict[str, Any]
"""Arguments by parameter name, in signature order."""


@dataclass(frozen=True)
class DrawnCall:
    """One call: ``kernel[grid](*args, **kwargs)`` on a device and a stream."""

    grid: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: int = 0
    stream: int = 0
    told_apart: Hashable = None
    """What launchkit must tell apart in it although Triton compiles the same: an autotune key."""
    form: str = ""
    """How grid and arguments are spelled, for counts."""

    def __str__(self) -> str:
        args = [text_of(value) for value in self.args]
        named = [f"{name}={text_of(value)}" for name, value in self.kwargs.items()]
        place = f"device {self.device}, stream {self.stream:#x}"
        return f"[{text_of(self.grid)}]({', '.join(args + named)}) on {place} ({self.form})"


def text_of(value: Any) -> str:
    """Return a value in a few words: of a tensor what Triton goes by, not what is in it."""
    if isinstance(value, torch.Tensor):
        kind = type(value).__name__
        at = f", address % 16 = {value.data_ptr() % 16}" if value.layout == torch.strided else ""
        return f"<{kind} {tuple(value.shape)} {value.dtype} {value.device}{at}>"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(text_of, value))})"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return (
        repr(value)
        if isinstance(value, (int, float, str, bytes, type(None)))
        else type(value).__name__
    )


_EDGES = (
    0, 1, -1, 2, 15, 16, 17, 48, -16, 2**31 - 1, 2**31, 2**31 + 16, -(2**31), -(2**31) - 1, 2**32,
    2**40, 2**63 - 1, -(2**63), 2**63, 2**64 - 16, 2**64 - 1,
)  # fmt: skip
_RANGES = ((2, 4096), (-4096, 0), (2, 2**31), (2**31, 2**63), (-(2**63), -(2**31)), (2**63, 2**64))
_TOO_LARGE = (2**64, -(2**63) - 1, 10**30)

FEW_INTS = (1, 16, 7)
FLOATS = (0.0, -0.0, 1.0, 1.5, -2.5, 5e-324, 1e300, float("inf"), -float("inf"), float("nan"))

DTYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e5m2,
    torch.float8_e4m3fn, torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16,
    torch.int32, torch.uint32, torch.int64, torch.uint64,
)  # fmt: skip


def any_int(rng: Random) -> int:
    """Draw an int from an edge of Triton's classes, from within one, or rarely from beyond all."""
    chance = rng.random()
    if chance < 0.5:
        return rng.choice(_EDGES)
    if chance < 0.999:
        low, high = rng.choice(_RANGES)
        value = rng.randrange(low, high)
        return value - value % 16 if chance < 0.75 else value
    return rng.choice(_TOO_LARGE)


def any_float(rng: Random) -> float:
    """Draw an odd float, or an ordinary one."""
    return rng.choice(FLOATS) if rng.random() < 0.5 else rng.uniform(-1e6, 1e6)


_bases = {dtype: torch.empty(96, dtype=dtype) for dtype in DTYPES}


def any_tensor(rng: Random, dtypes: Sequence[torch.dtype] = (torch.float32,)) -> torch.Tensor:
    """Draw a view whose address is divisible by 16 or not; rarely empty, or a step at a time."""
    base = _bases[rng.choice(dtypes)]
    start = rng.choice((0, 0, 0, 16, 32, 1, 2, 3, 7))
    chance = rng.random()
    if chance < 0.9:
        return base[start:]
    return base[start::3] if chance < 0.95 else base[start:start]


def aligned_tensor(rng: Random) -> torch.Tensor:
    """Draw a view of 32-bit floats whose address is divisible by 16."""
    return _bases[torch.float32][rng.choice((0, 16, 32)) :]


# -- grids


def _over(shape: tuple[Any, ...]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda meta: shape


_ODD_GRIDS = (
    (0,), (3, 0, 2), (1, 0), (2**31 - 1,), (2**16, 2**16), (2**16, 2**16, 3), (2**15, 2**15, 2),
    (2**31,), (2**40,), (-1,), (3, -2), (), (1, 2, 3, 4), (1.0,), (None,), ("2",), (True, 3), 7,
)  # fmt: skip


def any_grid(rng: Random) -> tuple[Any, str]:
    """Draw a grid and its form: tuple, list, callable, or one of the odd ones."""
    form = rng.choice(("tuple", "tuple", "list", "callable", "callable"))
    if rng.random() < 0.03:
        grid = rng.choice(_ODD_GRIDS)
        return (_over(grid) if form == "callable" and isinstance(grid, tuple) else grid), "odd"
    shape = tuple(rng.randrange(1, 9) for _ in range(rng.randrange(1, 4)))
    if form == "callable":
        return _over(shape), form
    return (list(shape) if form == "list" else shape), form


def _blocks_of(meta: Any) -> tuple[int]:
    return (abs(meta["n"]) % 1000 + meta["BLOCK"],)


BY_ARGUMENTS = (
    launchkit.grid(launchkit.cdiv("n", 16).at_most(9).at_least(1), "stride"),
    launchkit.grid((launchkit.cdiv("n", "stride") * 3 - 5).at_most(70), 2, 1),
    launchkit.grid("n"),
)
"""Grids over ``n`` and ``stride``."""
BY_BLOCKS = (*BY_ARGUMENTS, _blocks_of, launchkit.grid(launchkit.cdiv("n", "BLOCK").at_most(100)))
"""Grids over ``BLOCK``, too, which a config or a heuristic may supply."""


# -- spellings


def spelled(
    rng: Random,
    values: Values,
    options: Values | None = None,
    most: int | None = None,
    told_apart: Hashable = None,
    grids: Sequence[Any] = (),
) -> DrawnCall:
    """Draw how a call with these values is written, and where it goes.

    The first few arguments, ``most`` at most, are passed by position, the rest by keyword in any
    order. One call in a hundred lacks an argument, or has one too many. ``grids``: such as the
    kernel's arguments have the names for.
    """
    names = list(values)
    cut = rng.randrange((len(names) if most is None else most) + 1)
    named = names[cut:]
    rng.shuffle(named)
    args = [values[name] for name in names[:cut]]
    kwargs = {name: values[name] for name in named} | (options or {})
    if rng.random() < 0.01:
        _spoil(rng, values, args, kwargs)
    drawn, form = any_grid(rng)
    if grids and rng.random() < 0.3:
        drawn = rng.choice(grids)
        form = "callable" if drawn is _blocks_of else "declared"
    how = "positional" if not kwargs else "mixed" if args else "keywords"
    return DrawnCall(
        drawn,
        tuple(args),
        kwargs,
        device=int(rng.random() < 0.05),
        stream=rng.choice((0, 0, 0, 0x5EED, 2**48)),
        told_apart=told_apart,
        form=f"{how}, {form} grid",
    )


def _spoil(rng: Random, values: Values, args: list[Any], kwargs: Values) -> None:
    how = rng.randrange(4)
    if how == 0 and kwargs:
        del kwargs[rng.choice(list(kwargs))]
    elif how == 1 and args:
        args.pop()
    elif how == 2:
        kwargs["no_such_option"] = 1
    elif args:
        kwargs[next(iter(values))] = args[0]
