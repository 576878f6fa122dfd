"""The model that ``launchkit bench serve`` serves: a hybrid stack with random weights, in torch.

Mamba2 layers of a public model's shape, each with a feed-forward layer behind it, and stand-ins for
attention. Nothing is learnt: what counts is that the launches of a step are those of such a model,
in their order, and that every token depends on every bit of the states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.nn import functional

from launchkit.benchmarks.serve.batch import Batch
from launchkit.benchmarks.shapes import MambaShape

ATTENTION_EVERY = 4
"""Mamba layers from one stand-in for attention to the next."""

FEED_FORWARD = 4
"""Width of a feed-forward layer, in hidden sizes."""


@dataclass(frozen=True)
class ServingModel:
    """Sizes of the stack."""

    shape: MambaShape
    layers: int
    """Mamba layers."""
    hidden: int
    vocabulary: int
    dtype: torch.dtype = torch.bfloat16

    @property
    def inner(self) -> int:
        """Channels of all heads, H*P."""
        return self.shape.nheads * self.shape.headdim

    @property
    def convolved(self) -> int:
        """Channels of x, B and C together."""
        return self.inner + 2 * self.shape.ngroups * self.shape.dstate


class MambaWeights(NamedTuple):
    """Of one Mamba2 layer; the first and the last multiply, A, D and dt_bias are (H,) fp32."""

    projected: torch.Tensor
    """(hidden, H*P + H*P + 2*G*N + H): z, then x, B and C, then dt."""
    A: torch.Tensor
    D: torch.Tensor
    dt_bias: torch.Tensor
    out: torch.Tensor


class ScanTensors(NamedTuple):
    """What the scan, or the update of decoding rows, is given of some tokens of one layer."""

    x: torch.Tensor
    dt: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    out: torch.Tensor
    weights: MambaWeights

    def rows(self, first: int | None, end: int | None) -> ScanTensors:
        """Return these of the tokens from ``first`` up to ``end``."""
        part = slice(first, end)
        return ScanTensors(
            self.x[part], self.dt[part], self.B[part], self.C[part], self.out[part], self.weights
        )


class LayerOps:
    """What the variants do differently: moving and updating states. Everything else is the same."""

    def begin(self, batch: Batch) -> None:
        """Look up the states' blocks, and move states into blocks that their requests enter."""
        raise NotImplementedError

    def scans(self) -> dict[str, int]:
        """Return how many scans went which way so far, where there is more than one."""
        return {}

    def decode(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Advance the states of decoding rows by a token each; write their outputs."""
        raise NotImplementedError

    def prefill(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Scan pieces of prompts from their states to their states; write their outputs."""
        raise NotImplementedError


class HybridStack:
    """The weights on a device, and the computation of a step.

    The convolution is left out (its activation is there), and a stand-in for attention is its two
    projections, without a KV cache.
    """

    def __init__(self, model: ServingModel, device: str, seed: int) -> None:
        self.model = model
        self._random = torch.Generator(device=device).manual_seed(seed)
        hidden, wide = model.hidden, model.inner + model.convolved + model.shape.nheads
        self._embedding = self._normal(model.vocabulary, hidden)
        self._mamba = [self._mamba_layer(hidden, wide) for _ in range(model.layers)]
        self._feed_forward = [
            (self._projection(hidden, FEED_FORWARD * hidden),
             self._projection(FEED_FORWARD * hidden, hidden))
            for _ in range(model.layers)
        ]  # fmt: skip
        self._attention = [
            (self._projection(hidden, 3 * hidden), self._projection(hidden, hidden))
            for _ in range(model.layers // ATTENTION_EVERY)
        ]
        # Given, as a trained model's: torch has one kernel for that, and need not for none.
        self._scales = {
            width: torch.ones(width, dtype=model.dtype, device=device)
            for width in (hidden, model.inner)
        }
        self._head = self._projection(hidden, model.vocabulary)

    def step(self, batch: Batch, ops: LayerOps) -> torch.Tensor:
        """Compute a step; return the most likely next token of each row, (rows,) int64."""
        ops.begin(batch)
        stream = functional.embedding(batch.ids, self._embedding)
        for layer in range(self.model.layers):
            stream = stream + self._mixed(layer, stream, batch, ops)
            up, down = self._feed_forward[layer]
            stream = stream + functional.silu(self._norm(stream) @ up) @ down
            if (layer + 1) % ATTENTION_EVERY == 0:
                qkv, out = self._attention[layer // ATTENTION_EVERY]
                stream = stream + (self._norm(stream) @ qkv)[:, -self.model.hidden :] @ out
        last = stream.index_select(0, batch.last)
        return (self._norm(last) @ self._head).float().argmax(-1)

    def _mixed(self, layer: int, stream: torch.Tensor, batch: Batch, ops: LayerOps) -> torch.Tensor:
        model, weights = self.model, self._mamba[layer]
        projected = self._norm(stream) @ weights.projected
        gate, inner = projected[:, : model.inner], model.inner
        convolved = functional.silu(projected[:, inner : inner + model.convolved])
        out = torch.empty(
            (batch.tokens, model.shape.nheads, model.shape.headdim),
            dtype=model.dtype,
            device=stream.device,
        )
        tokens, rows = self._tokens(projected, convolved, out, weights), batch.decodes
        if rows:
            ops.decode(layer, batch, tokens.rows(None, rows))
        if batch.metadata is not None:
            ops.prefill(layer, batch, tokens.rows(rows, None))
        return self._norm(out.flatten(1) * functional.silu(gate)) @ weights.out

    def _tokens(
        self,
        projected: torch.Tensor,
        convolved: torch.Tensor,
        out: torch.Tensor,
        weights: MambaWeights,
    ) -> ScanTensors:
        shape, inner = self.model.shape, self.model.inner
        x, B, C = convolved.tensor_split((inner, inner + shape.ngroups * shape.dstate), dim=1)
        groups = (len(out), shape.ngroups, shape.dstate)
        return ScanTensors(
            x.view(out.shape), projected[:, -shape.nheads :], B.view(groups), C.view(groups), out,
            weights,
        )  # fmt: skip

    def _mamba_layer(self, hidden: int, wide: int) -> MambaWeights:
        heads, device = self.model.shape.nheads, self._random.device

        def uniform(low: float) -> torch.Tensor:
            return torch.rand(heads, generator=self._random, device=device) + low

        return MambaWeights(
            projected=self._projection(hidden, wide),
            A=-uniform(0.5),
            D=uniform(0.0),
            dt_bias=uniform(-2.0),
            out=self._projection(self.model.inner, hidden),
        )

    def _norm(self, stream: torch.Tensor) -> torch.Tensor:
        width = stream.shape[-1]
        return functional.rms_norm(stream, (width,), self._scales[width])

    def _projection(self, rows: int, columns: int) -> torch.Tensor:
        return self._normal(rows, columns) / math.sqrt(rows)

    def _normal(self, *sizes: int) -> torch.Tensor:
        device = self._random.device
        return torch.randn(sizes, generator=self._random, device=device).to(self.model.dtype)
