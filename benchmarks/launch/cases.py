"""The launches that ``launchkit bench launch`` measures: one registry of kernels and arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import triton

import launchkit
from launchkit.benchmarks import noop_kernels
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd import state_passing as state_passing_module


@dataclass(frozen=True)
class LaunchCase:
    """One kernel with one set of arguments, ready to be launched in several ways."""

    name: str
    jit: Any
    """The plain ``@triton.jit`` kernel."""
    configs: tuple[Any, ...]
    """Two: enough for a choice to be made, and few compilations."""
    keys: tuple[str, ...]
    arguments: dict[str, Any]
    """By parameter name, in signature order, without what a config supplies."""
    grid: tuple[int, ...]
    declared: Any
    """The same grid as a ``launchkit.grid``."""

    @property
    def args(self) -> int:
        """Arguments that a caller passes."""
        return len(self.arguments)


def _noop(jit: Any, device: str, pointers: int, ints: int, constexprs: int) -> LaunchCase:
    values: dict[str, Any] = {f"p{i}": torch.empty(64, device=device) for i in range(pointers)}
    # Sizes and strides of a real launch: some are 1, some divisible by 16, some odd.
    values |= {f"n{i}": (1, 64, 4097, 16384, 33)[i % 5] for i in range(ints)}
    values |= {f"C{i}": i % 2 == 0 for i in range(constexprs)}
    blocks: tuple[dict[str, int], ...] = (
        {"BLOCK_M": 32, "BLOCK_N": 32},
        {"BLOCK_M": 64, "BLOCK_N": 32},
    )
    configs = tuple(
        triton.Config(block if values else {}, num_warps=warps)
        for block, warps in zip(blocks, (4, 8), strict=True)
    )
    keys = ("n0", "n1", "n2") if ints else ()
    # As in a user's file, where the names at a call site are interned.
    arguments = {sys.intern(name): value for name, value in values.items()}
    declared = launchkit.grid(launchkit.cdiv("n0", 64) if ints else 1)
    return LaunchCase(f"noop_{len(values)}", jit, configs, keys, arguments, (1,), declared)


@contextmanager
def captured_launches(module: ModuleType) -> Iterator[list[tuple[Any, Any, dict[str, Any]]]]:
    """Collect (kernel, grid, arguments) of the launches that a kernel module's op would make."""
    made: list[tuple[Any, Any, dict[str, Any]]] = []
    original = module.__dict__["launch_autotuned"]
    vars(module)["launch_autotuned"] = lambda kernel, grid, /, **named: made.append(
        (kernel, grid, named)
    )
    try:
        yield made
    finally:
        vars(module)["launch_autotuned"] = original


def _state_passing(device: str) -> LaunchCase:
    shape = MAMBA_SHAPES["Nemotron-3-Nano"]
    chunks, sequences, slots = 2048 // shape.chunk_size, 4, 8
    states = torch.randn(chunks, shape.nheads, shape.dim, device=device)
    sums = -torch.rand(shape.nheads, chunks, shape.chunk_size, device=device)
    last = (
        torch.arange(1, sequences + 1, dtype=torch.int32, device=device) * (chunks // sequences) - 1
    )
    cache = torch.empty(slots, shape.nheads, shape.headdim, shape.dstate, device=device)
    indices = torch.arange(sequences, dtype=torch.int32, device=device)
    with captured_launches(state_passing_module) as made:
        state_passing_module.state_passing(
            states, sums, last, final_states_out=cache, final_state_indices=indices
        )
    kernel, grid, named = made[0]
    arguments = {name: named[name] for name in kernel.arg_names if name in named}
    configs = tuple(c for c in kernel.configs if c.kwargs["BLOCK_SIZE"] in (256, 512))
    keys = tuple(kernel.keys)
    sizes = grid(configs[0].kwargs)
    declared = launchkit.grid(launchkit.cdiv("dim", "BLOCK_SIZE"), *sizes[1:])
    return LaunchCase("state_passing", kernel.fn, configs, keys, arguments, sizes, declared)


CASES: dict[str, Callable[[str], LaunchCase]] = {
    "noop_0": lambda device: _noop(noop_kernels.noop_0, device, 0, 0, 0),
    "noop_19": lambda device: _noop(noop_kernels.noop_19, device, 5, 8, 6),
    "noop_46": lambda device: _noop(noop_kernels.noop_46, device, 10, 28, 8),
    "state_passing": _state_passing,
}
"""By name; each takes the torch device of its tensors."""
