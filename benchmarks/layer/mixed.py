"""Steps of mixed batches in ``launchkit bench layer``: states read in the cache, or copied before.

A batch has decode rows, whose states lie in the same cache and whose update is the engine's, and
one or several prompts that go on from a cache block. Where the scan cannot read the slot itself,
it makes the copy: that must cost no more than if its caller makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from launchkit.benchmarks.layer.steps import BLOCK_SIZE, COLUMNS, GROUPS, TOKENS
from launchkit.benchmarks.mamba.cases import MambaCase, ScanInputs, build
from launchkit.benchmarks.mamba.steps import Part
from launchkit.benchmarks.shapes import MAMBA_SHAPES
from launchkit.kernels.mamba_layer import MambaLayer, MambaStep
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.state_indices import AlignedStateIndices

VARIANTS = ("copied", "launchkit")
"""A gather before the scan; the cache and its slots handed to the scan."""

_DECODES, _MOST_SEQUENCES, _STATE_LEN = 8, 4, 3
_CHECKPOINT = TOKENS // 2


class Mix(NamedTuple):
    """What a batch holds beside its decode rows."""

    sequences: int
    """Prompts that go on, by ``TOKENS`` each."""
    checkpoint: bool = False
    """Whether the state in the middle of each is kept as well."""


MIXES = {
    "mixed_decode": Mix(sequences=1),
    "mixed_several": Mix(sequences=_MOST_SEQUENCES),
    "mixed_checkpoint": Mix(sequences=1, checkpoint=True),
}
"""By name in the result. The first reads its slot in place; the others need a copy."""


@dataclass(frozen=True)
class _Checkpoints:
    state_indices: torch.Tensor
    offsets: torch.Tensor


@dataclass(frozen=True)
class Requests:
    """The caches and block tables of a batch's requests, decode rows first. Row r has block r."""

    caches: list[torch.Tensor]
    """By layer, (blocks, H, P, N): a block a row, and as many for checkpoints."""
    conv_states: list[torch.Tensor]
    """By layer, (blocks, dim, positions)."""
    tables: list[torch.Tensor]
    """By group, (rows, COLUMNS) int32."""
    seq_lens: torch.Tensor


def make_requests(model: str, device: str) -> Requests:
    """Return the requests of all mixes: each takes the decode rows and its number of prompts."""
    shape = MAMBA_SHAPES[model]
    state_dtype: torch.dtype = getattr(torch, shape.state_dtype)
    rows = _DECODES + _MOST_SEQUENCES
    sizes = (2 * rows, shape.nheads, shape.headdim, shape.dstate)
    width = shape.nheads * shape.headdim + 2 * shape.ngroups * shape.dstate
    # Nothing on the host-only driver reads them, and zeros would take the memory.
    make: Any = torch.zeros if device == "cuda" else torch.empty
    layers = range(shape.layers)
    table = torch.arange(rows, dtype=torch.int32, device=device)[:, None].repeat(1, COLUMNS)
    return Requests(
        caches=[make(sizes, dtype=state_dtype, device=device) for _ in layers],
        conv_states=[
            make((2 * rows, _STATE_LEN, width), dtype=torch.bfloat16, device=device).mT
            for _ in layers
        ],
        tables=[table.clone() for _ in range(GROUPS)],
        seq_lens=torch.full((rows,), 8 * BLOCK_SIZE + TOKENS, dtype=torch.int32, device=device),
    )


def parts(model: str, device: str) -> list[Part]:
    """Return what is timed: of each mix, the step with states copied before and read in place."""
    requests = make_requests(model, device)
    return [
        Part(variant, name, _Step(requests, model, mix, device, in_place=variant == "launchkit"))
        for name, mix in MIXES.items()
        for variant in VARIANTS
    ]


def _inputs(model: str, mix: Mix, device: str) -> ScanInputs:
    tokens = TOKENS * mix.sequences
    inputs = build(MambaCase(model, mix.sequences, tokens, initial_states=False), device)
    if not mix.checkpoint:
        return inputs
    bounds = list(range(0, tokens + 1, TOKENS))
    metadata = build_chunk_metadata(
        bounds,
        inputs.chunk_size,
        checkpoint_offsets=[_CHECKPOINT] * mix.sequences,
        device=device,
    )
    return replace(inputs, metadata=metadata)


class _Step:
    """The lookup of all rows' blocks, then every layer's prompts, through ``mamba_layer``."""

    def __init__(
        self, requests: Requests, model: str, mix: Mix, device: str, in_place: bool
    ) -> None:
        self._requests, self._mix, self._in_place = requests, mix, in_place
        self.inputs = _inputs(model, mix, device)
        self._layers: Sequence[MambaLayer] = [MambaLayer(n) for n in range(len(requests.caches))]
        self._step, self._indices = MambaStep(), AlignedStateIndices(requests.tables, BLOCK_SIZE)
        self._ends: Any = self.inputs.metadata.checkpoint_chunk_indices
        x = self.inputs.x
        # x, B and C side by side, as the convolution has them.
        self._convolved = x.as_strided((x.shape[0], x.stride(0)), (x.stride(0), 1)).mT
        rows = torch.arange(mix.sequences, device=device)
        self._has_initial = torch.ones(mix.sequences, dtype=torch.bool, device=device)
        self._kept = _Checkpoints(
            (rows + _DECODES + _MOST_SEQUENCES).int(), torch.full_like(rows, _CHECKPOINT).int()
        )

    def __call__(self) -> None:
        rows = _DECODES + self._mix.sequences
        found = self._step.state_indices(self._indices, self._requests.seq_lens, rows)
        slots = [found[group, _DECODES:, 0] for group in range(GROUPS)]
        run = self._with_checkpoint if self._mix.checkpoint else self._direct
        for layer in range(len(self._layers)):
            run(layer, slots[layer % GROUPS])

    def _direct(self, layer: int, slot: torch.Tensor) -> None:
        cache = self._requests.caches[layer]
        self._scan(layer, slot, final_states_out=cache, final_state_indices=slot)

    def _with_checkpoint(self, layer: int, slot: torch.Tensor) -> None:
        r, m, ends = self._requests, self.inputs.metadata, self._ends
        states = self._scan(layer, slot, return_intermediate_states=True)
        self._layers[layer].write_checkpointed_states(
            self._kept, ends, self._convolved, r.conv_states[layer],
            states, r.caches[layer], m.cu_seqlens, m.last_chunk_indices, slot,
            state_len=_STATE_LEN,
        )  # fmt: skip

    def _scan(self, layer: int, slot: torch.Tensor, **ends: Any) -> Any:
        ops, cache = self._layers[layer], self._requests.caches[layer]
        i, m = self.inputs, self.inputs.metadata
        starts: dict[str, Any] = {
            "initial_state_cache": cache,
            "initial_state_indices": slot,
            "has_initial_state": self._has_initial,
        }
        if not self._in_place:
            starts = {"initial_states": ops.gather_initial_states(cache, slot, self._has_initial)}
        return ops.ssd_scan(
            i.x, i.dt, i.A, i.B, i.C, i.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, i.out, D=i.D, dt_bias=i.dt_bias, dt_softplus=True,
            state_dtype=i.state_dtype, **ends, **starts,
        )  # fmt: skip
