"""The launches that ``launchkit bench launch`` measures: one registry of kernels and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton

from launchkit.benchmarks import noop_kernels
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.ssd import state_passing as state_passing_module

_BLOCKS = ({"BLOCK_M": 32, "BLOCK_N": 32}, {"BLOCK_M": 64, "BLOCK_N": 32})


@dataclass(frozen=True)
class LaunchCase:
    """One kernel with one set of arguments, ready to be launched in several ways."""

    name: str
    jit: Any
    """The plain ``@triton.jit`` kernel."""
    configs: tuple[Any, ...]
    keys: tuple[str, ...]
    arguments: dict[str, Any]
    """By parameter name, in signature order, without what a config supplies."""
    grid: tuple[int, ...]

    @property
    def args(self) -> int:
        """Arguments that a caller passes."""
        return len(self.arguments)


def _noop(jit: Any, device: str, pointers: int, ints: int, constexprs: int) -> LaunchCase:
    values: dict[str, Any] = {
        f"p{i}": torch.empty(64, dtype=torch.float32, device=device) for i in range(pointers)
    }
    # Sizes and strides of a real launch: some are 1, some divisible by 16, some odd.
    values |= {f"n{i}": (1, 64, 4097, 16384, 33)[i % 5] for i in range(ints)}
    values |= {f"C{i}": i % 2 == 0 for i in range(constexprs)}
    configs = tuple(triton.Config(dict(blocks) if pointers else {}, num_warps=w)
                    for w, blocks in zip((4, 8), _BLOCKS, strict=True))
    keys = ("n0", "n1", "n2") if ints else ()
    return LaunchCase(f"noop_{len(values)}", jit, configs, keys, values, (1,))


def _state_passing(device: str) -> LaunchCase:
    shape = MAMBA_SHAPES["Nemotron-3-Nano"]
    tokens, sequences, slots = 2048, 4, 8
    chunks = tokens // shape.chunk_size
    states = torch.randn(chunks, shape.nheads, shape.dim, device=device)
    sums = -torch.rand(shape.nheads, chunks, shape.chunk_size, device=device)
    per_sequence = chunks // sequences
    ends = [per_sequence * (i + 1) - 1 for i in range(sequences)]
    cache = torch.empty(slots, shape.nheads, shape.headdim, shape.dstate, device=device)
    arguments = state_passing_module.launch_arguments(
        states,
        torch.empty_like(states),
        sums,
        torch.tensor(ends, dtype=torch.int32, device=device),
        final_states_out=cache,
        final_state_indices=torch.arange(sequences, dtype=torch.int32, device=device),
    )
    kernel = state_passing_module.kernel
    grid = (triton.cdiv(shape.dim, 256), sequences, shape.nheads)
    # Two of its configs: enough for a choice, and few compilations.
    configs = tuple(c for c in kernel.configs if c.kwargs["BLOCK_SIZE"] in (256, 512))
    return LaunchCase(
        "state_passing", kernel.fn, configs, tuple(kernel.keys), arguments, grid
    )


CASES: dict[str, Callable[[str], LaunchCase]] = {
    "noop_0": lambda device: _noop(noop_kernels.noop_0, device, 0, 0, 0),
    "noop_19": lambda device: _noop(noop_kernels.noop_19, device, 5, 8, 6),
    "noop_46": lambda device: _noop(noop_kernels.noop_46, device, 10, 28, 8),
    "state_passing": _state_passing,
}
"""By name; each takes the torch device of its tensors."""
