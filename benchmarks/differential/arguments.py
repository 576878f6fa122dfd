"""What ``launchkit bench differential`` passes to each of its kernels."""

from __future__ import annotations

from enum import IntEnum
from random import Random
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from launchkit.benchmarks import noop_kernels
from launchkit.benchmarks.differential import kernels
from launchkit.benchmarks.differential.draws import (
    BY_ARGUMENTS,
    BY_BLOCKS,
    DTYPES,
    FEW_INTS,
    DrawnCall,
    Values,
    aligned_tensor,
    any_float,
    any_int,
    any_tensor,
    spelled,
)


def tensors(rng: Random) -> DrawnCall:
    """Draw tensors of any dtype and alignment."""
    values: Values = {
        "x_ptr": any_tensor(rng, DTYPES),
        "y_ptr": any_tensor(rng),
        "z_ptr": aligned_tensor(rng) if rng.random() < 0.9 else None,
        "n": rng.choice(FEW_INTS[1:]),
    }
    if rng.random() < 0.5:
        values["scale"] = any_float(rng)
    return spelled(rng, values)


def integers(rng: Random) -> DrawnCall:
    """Draw ints about 1, 16, 2**31 and 2**63."""
    numbers = {"n": any_int(rng), "m": any_int(rng), "stride": rng.choice(FEW_INTS)}
    return spelled(rng, {"x_ptr": aligned_tensor(rng), **numbers}, grids=BY_ARGUMENTS)


def scalar_values(rng: Random) -> Values:
    """Draw values of the kernel ``scalars`` without SIZE, which has a default."""
    return {
        "a_ptr": rng.choice((None, aligned_tensor(rng))),
        "b_ptr": any_tensor(rng, (torch.float32, torch.float16)),
        "n": rng.choice((1, 16, 32, 7, -5)),
        "flag": rng.choice((True, False)),
        "alpha": any_float(rng),
        "MODE": rng.choice(("shift", "plain")),
    }


def scalars(rng: Random) -> DrawnCall:
    """Draw None, truth values, floats and constants, with a default or an option at times."""
    values = scalar_values(rng)
    if rng.random() < 0.3:
        values["SIZE"] = 16
    return spelled(rng, values, {} if rng.random() < 0.7 else {"num_warps": 2})


def unspecialized(rng: Random) -> DrawnCall:
    """Draw any int for a parameter whose value Triton must not note."""
    pointers = {"x_ptr": any_tensor(rng), "y_ptr": any_tensor(rng)}
    return spelled(rng, {**pointers, "n": any_int(rng), "m": rng.choice(FEW_INTS)})


def typed(rng: Random) -> DrawnCall:
    """Draw numbers of other types than those that the kernel declares."""
    values: Values = {
        "x_ptr": aligned_tensor(rng),
        "n": rng.choice((any_int(rng), rng.randrange(-(2**63), 2**63), 2**31, True, 5)),
        "m": rng.choice((1, 16, 7, -5, 2**31 - 1)),
        "alpha": rng.choice((any_float(rng), 3)),
        # Not what overflows: Triton 3.6 launches that with bytes that it never wrote, and raises.
        "half": rng.choice((0.5, 65504.0, 1e-8, -0.0, float("nan"), rng.uniform(-65504, 65504))),
        "double": any_float(rng),
    }
    # The guard tells live types apart where Triton goes by the declared ones.
    live = tuple(map(type, values.values())), _bits(values["n"])
    return spelled(rng, values, told_apart=live)


def _bits(value: int) -> int:
    return 32 if -(2**31) <= value < 2**31 else 63 if value < 2**63 else 64


_OPTIONS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("num_warps", (1, 2, 4, 8)), ("num_stages", (1, 3)), ("maxnreg", (None, 64)),
    ("launch_cooperative_grid", (False, True)), ("launch_pdl", (False, True)),
    ("enable_fp_fusion", (False, True)),
)  # fmt: skip


def options(rng: Random) -> DrawnCall:
    """Draw none to two options: warps, cooperative grids, dependent launches."""
    x, chosen = aligned_tensor(rng), rng.sample(_OPTIONS, rng.choice((0, 1, 1, 2)))
    drawn = {name: rng.choice(choices) for name, choices in chosen}
    values = {"x_ptr": x, "y_ptr": x, "n": rng.choice((16, 7))}
    return spelled(rng, values, drawn, told_apart=tuple(drawn.items()))


def clusters(rng: Random) -> DrawnCall:
    """Draw clusters of one, two or four blocks, cooperative or launched early at times."""
    x, drawn = aligned_tensor(rng), {"num_ctas": rng.choice((1, 2, 2, 4))}
    if rng.random() < 0.5:
        drawn[rng.choice(("launch_cooperative_grid", "launch_pdl"))] = rng.choice((False, True))
    values = {"x_ptr": x, "y_ptr": x, "n": rng.choice((16, 7)), "stride": 7, "BLOCK": 64}
    return spelled(rng, values, drawn, told_apart=tuple(drawn.items()), grids=BY_BLOCKS)


_MANY = tuple(noop_kernels.noop_46.arg_names[:-2])  # the last two have defaults
_MANY_INTS = (64, 1, 4097, 16384, 33)


def many(rng: Random) -> DrawnCall:
    """Draw 46 arguments, of which one or two differ in kind from the usual."""
    values = {name: _one_of_many(rng, name, index) for index, name in enumerate(_MANY)}
    name = rng.choice(_MANY[:38])
    values[name] = any_tensor(rng) if name[0] == "p" else any_int(rng)
    return spelled(rng, values)


def _one_of_many(rng: Random, name: str, index: int) -> Any:
    if name[0] == "p":
        return aligned_tensor(rng)
    if name[0] == "C":
        return index % 2 == 0
    usual = _MANY_INTS[index % 5]
    return usual if usual == 1 else usual + 32 * rng.randrange(50)


_KEYS = (1, 16, 48, 0, 7, -3, 2**31 - 1, 2**31, 2**40, -(2**31) - 1, -(2**63), 2**64 - 1)


def blocked(rng: Random) -> DrawnCall:
    """Draw arguments of a kernel that is tuned by ``n``."""
    n = rng.choice(_KEYS)
    pointers = {"x_ptr": any_tensor(rng), "y_ptr": any_tensor(rng)}
    values = {**pointers, "n": n, "stride": rng.choice(FEW_INTS)}
    return spelled(rng, values, told_apart=n, grids=BY_BLOCKS)


def under_heuristics(rng: Random) -> DrawnCall:
    """Draw arguments of ``scalars`` where a config gives MODE and a heuristic SIZE."""
    values = scalar_values(rng)
    del values["MODE"]
    values["n"] = rng.choice((1, 2, 3, 16))
    return spelled(rng, values, told_apart=values["n"], most=len(values))


_FROZEN_GRIDS = ((3,), (2, 5), (1, 2, 3), (0, 2), *BY_ARGUMENTS[2:])


def frozen(rng: Random) -> DrawnCall:
    """Draw arguments of ``scalars``, by keyword, over few grids: each is frozen."""
    values = scalar_values(rng)
    options: Values = {} if rng.random() < 0.7 else {"num_warps": 2}
    return DrawnCall(
        rng.choice(_FROZEN_GRIDS),
        (),
        {**values, **options},
        device=int(rng.random() < 0.2),
        stream=rng.choice((0, 0x5EED)),
        form="keywords, frozen grid",
    )


class Level(IntEnum):
    """An int of a class of its own, with a text of its own."""

    LOW = 1
    HIGH = 48


class Number(int):
    """An int of a class of its own."""


class Labelled(torch.Tensor):
    """A tensor of a class of its own."""


_tensor = torch.empty(64)
_sparse = torch.eye(4).to_sparse()
_CONSTANTS = (
    1, True, 1.0, 0, False, 0.0, -0.0, None, "one", "", (1, 2), (1, True), (), 2**40, -1, Level.LOW,
    tl.float32, tl.float16, kernels.doubled,
)  # fmt: skip
_ANYTHING: tuple[Any, ...] = (
    Level.LOW, Level.HIGH, Number(1), Number(7), np.int64(7), np.float32(1.5), np.bool_(True),
    torch.nn.Parameter(_tensor), _tensor.as_subclass(Labelled), _tensor.requires_grad_(False),
    triton.reinterpret(_tensor, tl.int32), (1, 2), (16, _tensor), ((1,), 7), (), "text", b"text",
    object, None, 1 + 2j, torch.empty(4, dtype=torch.complex64), torch.empty(4, device="meta"),
    _sparse, [1, 2], {}, tl.float32,
    TensorDescriptor(torch.empty(32, 32), [32, 32], [32, 1], [16, 16]),
)  # fmt: skip


def constants(rng: Random) -> DrawnCall:
    """Draw constants that are equal in Python and not to Triton, and others."""
    values: Values = {"x_ptr": aligned_tensor(rng), "A": rng.choice(_CONSTANTS)}
    if rng.random() < 0.5:
        values["B"] = rng.choice((None, 1, True, 1.0))
        values["n"] = rng.choice((*FEW_INTS, True))
    told_apart = [
        f"{type(value).__name__} {value}" for name, value in values.items() if name in "AB"
    ]
    return spelled(rng, values, told_apart=tuple(told_apart))


def anything(rng: Random) -> DrawnCall:
    """Draw what most launches never pass: classes of one's own, tuples, descriptors, nonsense."""
    values: Values = {"value": rng.choice(_ANYTHING)}
    if rng.random() < 0.5:
        values["other"] = rng.choice((1.5, aligned_tensor(rng), rng.choice(_ANYTHING)))
        values["n"] = any_int(rng)
    return spelled(rng, values)
