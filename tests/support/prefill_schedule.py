"""A served batch of requests, step by step: prefills in pieces, checkpoints, and decoding beside.

The schedule is drawn once; ``serve`` runs it with initial states read from the cache by index, or
copied out of it before every scan, on inputs that are the same both times.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch

from launchkit.kernels.ssd.checkpoints import write_checkpointed_states
from launchkit.kernels.ssd.metadata import build_chunk_metadata
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen

WINDOW = 3
"""Inputs that the convolution looks back."""


@dataclass(frozen=True)
class Piece:
    """Some tokens of a request's prompt: what one step computes of it."""

    request: int
    computed: int
    tokens: int
    start_slot: int | None
    checkpoint: int


@dataclass
class Step:
    """What is computed together: pieces of prompts, and a token each of running requests."""

    pieces: list[Piece] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)

    @property
    def kind(self):
        kind = "several" if len(self.pieces) > 1 else "one" if self.pieces else "none"
        if any(piece.checkpoint for piece in self.pieces):
            kind += ", checkpoint"
        return kind + (", decodes" if self.decodes else "")


def draw_schedule(requests, longest, seed=0):
    """Return the steps that serve ``requests`` prompts of up to ``longest`` tokens."""
    rng = random.Random(seed)
    left = [rng.randint(1, longest) for _ in range(requests)]
    done, tokens_left = [0] * requests, [rng.randint(0, 3) for _ in range(requests)]
    waiting, steps, kept = list(range(requests)), [], []
    while waiting or any(tokens_left):
        step = Step()
        if waiting:
            count = rng.choice((1, 1, 2, 3))
            for request in waiting[:count]:
                step.pieces.append(_piece(rng, request, done, left, requests, kept))
        running = [r for r in range(requests) if left[r] == 0 and tokens_left[r]]
        if not step.pieces or rng.random() < 0.5:
            step.decodes = running[: rng.randint(1, 4)]
        for piece in step.pieces:
            done[piece.request] += piece.tokens
            left[piece.request] -= piece.tokens
            kept += [piece.request] * bool(piece.checkpoint)
        for request in step.decodes:
            tokens_left[request] -= 1
        waiting = [request for request in waiting if left[request]]
        steps.append(step)
    return steps


def _piece(rng, request, done, left, requests, kept):
    """Return the next piece; a prompt may begin where another one's checkpoint was."""
    tokens = rng.randint(max(left[request] // 2, 1), left[request])
    start = 1 + request if done[request] else None
    if start is None and kept and rng.random() < 0.4:
        start = 1 + requests + rng.choice(kept)
    checkpoint = rng.randint(1, tokens) if rng.random() < 0.3 else 0
    return Piece(request, done[request], tokens, start, checkpoint)


class Layers:
    """The caches of some layers, and their inputs, which follow from step and layer alone."""

    def __init__(self, shape, layers, requests, device, dtype, state_dtype):
        self.heads, self.headdim, self.dstate, self.groups, self.chunk_size = shape
        self.requests, self.device, self.dtype, self.state_dtype = (
            requests,
            device,
            dtype,
            state_dtype,
        )
        rng = torch.Generator(device).manual_seed(1)
        slots = 1 + 2 * requests
        sizes = (slots, self.heads, self.headdim, self.dstate)
        # Slots hold what others left there, and the null block what nobody should read.
        self.ssm = [
            torch.randn(sizes, generator=rng, device=device).to(state_dtype) for _ in range(layers)
        ]
        for cache in self.ssm:
            cache[0] = torch.nan
        width = self.heads * self.headdim
        self.conv = [
            torch.zeros(slots, width, WINDOW, device=device, dtype=dtype) for _ in range(layers)
        ]
        self.A = -torch.rand(self.heads, generator=rng, device=device) - 0.1

    def inputs(self, step, layer, tokens):
        """Return x, dt, B and C of some tokens."""
        rng = torch.Generator(self.device).manual_seed(1000 * step + layer)

        def randn(*sizes):
            return torch.randn(*sizes, generator=rng, device=self.device)

        x = randn(tokens, self.heads, self.headdim).to(self.dtype)
        dt = torch.rand(tokens, self.heads, generator=rng, device=self.device).to(self.dtype)
        B, C = (randn(tokens, self.groups, self.dstate).to(self.dtype) for _ in range(2))
        return x, dt * 0.2, B, C


def serve(steps, layers, indexed):
    """Run the schedule; return what every layer gave, in order, and leave the caches behind."""
    outs = []
    for number, step in enumerate(steps):
        batch = _Batch(step, layers) if step.pieces else None
        for layer in range(len(layers.ssm)):
            if batch is not None:
                outs.append(batch.prefill(number, layer, indexed))
            if step.decodes:
                outs.append(_decode(layers, number, layer, step.decodes))
    return outs


class _Batch:
    """One step's prefill: its metadata, and the slots of its sequences."""

    def __init__(self, step, layers):
        pieces, self.layers = step.pieces, layers
        bounds = [0]
        for piece in pieces:
            bounds.append(bounds[-1] + piece.tokens)
        self.tokens = bounds[-1]
        self.has_checkpoint = any(piece.checkpoint for piece in pieces)
        offsets = [piece.checkpoint for piece in pieces]
        self.metadata = build_chunk_metadata(
            bounds, layers.chunk_size, [piece.computed for piece in pieces],
            offsets if self.has_checkpoint else None, layers.device,
        )  # fmt: skip

        def ints(values):
            return torch.tensor(values, dtype=torch.int32, device=layers.device)

        # Columns of a block table, as an engine has them.
        table = ints([[1 + p.request, p.start_slot or 0] for p in pieces])
        self.ends, self.starts = table[:, 0], table[:, 1]
        self.has = torch.tensor([p.start_slot is not None for p in pieces], device=layers.device)
        self.offsets = ints(offsets)
        self.state_indices = ints([1 + layers.requests + p.request for p in pieces])

    def prefill(self, number, layer, indexed):
        layers, m = self.layers, self.metadata
        x, dt, B, C = layers.inputs(number, layer, self.tokens)
        cache, out = layers.ssm[layer], torch.empty_like(x)
        snapshot = self._snapshot(cache)
        start = {"initial_states": snapshot}
        if indexed:
            start = {"initial_state_cache": cache, "initial_state_indices": self.starts,
                     "has_initial_state": self.has}  # fmt: skip
        end = {"final_states_out": cache, "final_state_indices": self.ends}
        if self.has_checkpoint:
            end = {"return_intermediate_states": True}
        states = mamba_chunk_scan_combined_varlen(
            x, dt, layers.A, B, C, m.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, out, state_dtype=layers.state_dtype, **start, **end,
        )  # fmt: skip
        if self.has_checkpoint:
            write_checkpointed_states(
                self, m.checkpoint_chunk_indices, x.flatten(1).t(), layers.conv[layer], states,
                cache, m.cu_seqlens, m.last_chunk_indices, self.ends, snapshot, state_len=WINDOW,
            )  # fmt: skip
        return out

    def _snapshot(self, cache):
        has = self.has[:, None, None, None]
        return torch.where(
            has, cache[self.starts.long()], torch.zeros((), dtype=cache.dtype, device=cache.device)
        )


def _decode(layers, number, layer, requests):
    """Advance the states of running requests by a token each, with torch."""
    x, dt, B, C = (t.float() for t in layers.inputs(-1 - number, layer, len(requests)))
    slots = torch.tensor([1 + request for request in requests], device=layers.device)
    per_group = layers.heads // layers.groups
    B, C = (t.repeat_interleave(per_group, 1)[:, :, None, :] for t in (B, C))
    decay = (dt * layers.A).exp()[:, :, None, None]
    state = layers.ssm[layer][slots].float() * decay + (dt[:, :, None] * x)[..., None] * B
    layers.ssm[layer][slots] = state.to(layers.state_dtype)
    return (state * C).sum(-1)
