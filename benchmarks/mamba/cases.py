"""The prefills that ``launchkit bench mamba`` measures: one registry of cases and their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from launchkit.benchmarks.shapes import MAMBA_SHAPES, MambaShape
from launchkit.errors import UsageError
from launchkit.kernels.ssd.metadata import ChunkMetadata, build_chunk_metadata

_T = TypeVar("_T")

SEQUENCES = (1, 4, 16)
"""How many sequences a measured batch holds."""

TOKENS = (32, 512, 2048, 8192)
"""How many tokens a measured batch holds, all sequences together."""

INITIAL_STATES = (False, True)

MAX_SEQUENCES = 65535
"""Most sequences of a batch: each has a program along the second or third axis of a grid."""

MAX_TOKENS = 2**31 - 1
"""Most tokens of a batch: what the int32 offsets of its metadata can hold."""

_SPARE_SLOTS = 3
"""Rows of the state cache that no sequence of the batch owns."""


@dataclass(frozen=True)
class MambaCase:
    """One layer's prefill batch: a model's shape, sequences, tokens, with initial states or not."""

    model: str
    """A name in ``shapes.MAMBA_SHAPES``."""
    sequences: int
    tokens: int
    """Of all sequences together; they are as equal in length as can be."""
    initial_states: bool

    @property
    def name(self) -> str:
        """The case's name in JSON, such as ``Nemotron-3-Nano/S4/T2048/initial``."""
        tail = "/initial" if self.initial_states else ""
        return f"{self.model}/S{self.sequences}/T{self.tokens}{tail}"

    @property
    def shape(self) -> MambaShape:
        """The model's layer."""
        return MAMBA_SHAPES[self.model]


QUICK = (MambaCase("Nemotron-3-Nano", sequences=4, tokens=2048, initial_states=False),)
"""What ``launchkit bench`` alone shows."""


def select(
    models: Sequence[str] = (),
    sequences: Sequence[int] = (),
    tokens: Sequence[int] = (),
    initial_states: bool | None = None,
) -> tuple[MambaCase, ...]:
    """Return every case of the named models and sizes, in table order; nothing named is all.

    Raises UsageError for an unknown model, a size below 1, one above MAX_SEQUENCES or MAX_TOKENS,
    and fewer tokens than sequences.
    """
    unknown = [model for model in models if model not in MAMBA_SHAPES]
    if unknown:
        raise UsageError(
            f"no model named {', '.join(unknown)}. There are: {', '.join(MAMBA_SHAPES)}."
        )
    models = _once(models) or tuple(MAMBA_SHAPES)
    sequences, tokens = _once(sequences) or SEQUENCES, _once(tokens) or TOKENS
    _check_sizes("sequences", sequences, MAX_SEQUENCES)
    _check_sizes("tokens", tokens, MAX_TOKENS)
    if min(tokens) < max(sequences):
        raise UsageError(
            f"{min(tokens)} tokens cannot be {max(sequences)} sequences of at least one token. "
            "Give more tokens, or fewer sequences."
        )
    states = INITIAL_STATES if initial_states is None else (initial_states,)
    return tuple(
        MambaCase(model, seqs, count, initial)
        for model in models
        for initial in states
        for seqs in sequences
        for count in tokens
    )


def _check_sizes(what: str, sizes: Sequence[int], most: int) -> None:
    for size in sizes:
        if not 1 <= size <= most:
            raise UsageError(
                f"a batch cannot have {size} {what}. Give {what} from 1 to {most}.",
                **{what: size},
            )


def _once(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))


@dataclass(frozen=True)
class ScanInputs:
    """One case's tensors, as a model's layer has them when it calls the scan.

    x, B and C are views of the convolution's output, dt of the projection's: none is contiguous.
    """

    x: torch.Tensor
    dt: torch.Tensor
    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    D: torch.Tensor
    dt_bias: torch.Tensor
    out: torch.Tensor
    chunk_size: int
    metadata: ChunkMetadata
    initial_states: torch.Tensor | None
    state_dtype: torch.dtype
    ssm_state: torch.Tensor
    """(slots, H, P, N), the cache that receives the final states."""
    state_indices: torch.Tensor
    """(S,) int32, each sequence's slot, in no order."""


def build(case: MambaCase, device: str, seed: int = 0) -> ScanInputs:
    """Return the tensors of ``case``: random on a GPU; on the CPU unwritten, as nothing runs there.

    Activations are bf16, A, D and dt_bias fp32; the softplus of dt is mostly below 0.1.
    """
    shape, tokens = case.shape, case.tokens
    nheads, headdim, dstate, ngroups = shape.nheads, shape.headdim, shape.dstate, shape.ngroups
    fill = _Fill(device, seed)
    width = nheads * headdim
    packed = fill.normal(tokens, width + 2 * ngroups * dstate)
    x, rest = packed[:, :width], packed[:, width:]
    B, C = rest[:, : ngroups * dstate], rest[:, ngroups * dstate :]
    projected = fill.normal(tokens, packed.shape[1] + nheads)
    state_dtype: torch.dtype = getattr(torch, shape.state_dtype)
    state = (nheads, headdim, dstate)
    slots = case.sequences + _SPARE_SLOTS
    return ScanInputs(
        x=x.view(tokens, nheads, headdim),
        dt=projected[:, -nheads:],
        A=-fill.uniform(nheads) - 0.5,
        B=B.view(tokens, ngroups, dstate),
        C=C.view(tokens, ngroups, dstate),
        D=fill.uniform(nheads),
        dt_bias=fill.uniform(nheads) - 4.0,
        out=fill.normal(tokens, nheads, headdim),
        chunk_size=shape.chunk_size,
        metadata=build_chunk_metadata(_bounds(case), shape.chunk_size, device=device),
        initial_states=(
            fill.normal(case.sequences, *state, dtype=state_dtype) if case.initial_states else None
        ),
        state_dtype=state_dtype,
        ssm_state=fill.normal(slots, *state, dtype=state_dtype),
        state_indices=torch.arange(slots - 1, slots - 1 - case.sequences, -1, device=device).int(),
    )


def _bounds(case: MambaCase) -> list[int]:
    """Return where each sequence starts, and the end; lengths differ by one at most."""
    return [math.floor(case.tokens * seq / case.sequences) for seq in range(case.sequences + 1)]


class _Fill:
    """Makes tensors: random ones on a GPU, unwritten ones elsewhere."""

    def __init__(self, device: str, seed: int) -> None:
        self._device = device
        self._random: torch.Generator | None = None
        if device != "cpu":
            self._random = torch.Generator(device=device).manual_seed(seed)

    def normal(self, *sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        if self._random is None:
            return torch.empty(sizes, dtype=dtype)
        return torch.randn(sizes, generator=self._random, device=self._device).to(dtype)

    def uniform(self, *sizes: int) -> torch.Tensor:
        if self._random is None:
            return torch.empty(sizes)
        return torch.rand(sizes, generator=self._random, device=self._device)
