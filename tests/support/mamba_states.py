"""State tensors of a small hybrid model, as an engine lays them out: views into padded pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch


@dataclass(frozen=True)
class Geometry:
    """Sizes of a model's Mamba layers and of its cache."""

    groups: int = 2
    layers: int = 1
    num_blocks: int = 64
    block_size: int = 4
    num_spec: int = 2
    width: int = 5
    dim: int = 7
    temporal: tuple[int, ...] = (3, 5, 2)
    dim_first: bool = False
    temporal_itemsize: int = 4
    page_padding: int = 12
    offset: int = 0
    """Bytes before the first page; not a multiple of 8 misaligns all states."""

    @property
    def conv_shape(self):
        return (self.dim, self.width) if self.dim_first else (self.width, self.dim)


@dataclass(frozen=True)
class Spec:
    """An engine's description of a Mamba group."""

    block_size: int
    num_speculative_blocks: int
    mamba_type: str = "mamba2"


@dataclass(frozen=True)
class AttentionSpec:
    """An engine's description of a group of attention layers."""

    block_size: int = 16


def make_config(geometry):
    """An attention group, then the Mamba groups: group ids are not positions among the latter."""
    spec = Spec(geometry.block_size, geometry.num_spec)
    attention = SimpleNamespace(kv_cache_spec=AttentionSpec(), layer_names=["attention"])
    mamba = [
        SimpleNamespace(
            kv_cache_spec=spec, layer_names=[f"g{g}.{i}" for i in range(geometry.layers)]
        )
        for g in range(geometry.groups)
    ]
    return SimpleNamespace(kv_cache_groups=[attention, *mamba])


class States:
    """Pages of every layer full of seeded noise, and the conv and temporal views of them."""

    def __init__(self, geometry, device="cpu", seed=0):
        self.geometry = geometry
        self.config = make_config(geometry)
        names = [n for g in self.config.kv_cache_groups[1:] for n in g.layer_names]
        rng = np.random.default_rng(seed)
        self.raw, self.context = {}, {"attention": SimpleNamespace(kv_cache=[])}
        for name in names:
            noise = rng.integers(0, 256, self._raw_bytes(), dtype=np.uint8)
            self.raw[name] = torch.from_numpy(noise).to(device)
            self.context[name] = SimpleNamespace(kv_cache=self._views(self.raw[name]))

    def _raw_bytes(self):
        return self.geometry.offset + self.geometry.num_blocks * self.page_bytes + 4

    @property
    def conv_bytes(self):
        return 2 * math.prod(self.geometry.conv_shape)

    @property
    def temporal_dtype(self):
        return torch.float32 if self.geometry.temporal_itemsize == 4 else torch.bfloat16

    @property
    def temporal_bytes(self):
        return self.geometry.temporal_itemsize * math.prod(self.geometry.temporal)

    @property
    def temporal_at(self):
        return -(-self.conv_bytes // 4) * 4

    @property
    def page_bytes(self):
        return self.temporal_at + self.temporal_bytes + self.geometry.page_padding

    def _views(self, raw):
        return [
            self._view(raw, 0, torch.float16, self.geometry.conv_shape),
            self._view(raw, self.temporal_at, self.temporal_dtype, self.geometry.temporal),
        ]

    def _view(self, raw, at, dtype, shape):
        size, start = dtype.itemsize, self.geometry.offset + at
        typed = raw[start % size :]
        typed = typed[: len(typed) // size * size].view(dtype)
        inner = torch.empty(shape, device="meta").stride()
        strides = (self.page_bytes // size, *inner)
        return typed.as_strided(
            (self.geometry.num_blocks, *shape), strides, typed.storage_offset() + start // size
        )

    def fill(self, group, block, kinds, rng):
        """What a forward pass does: new values in one block of all layers of a group."""
        for name in self.config.kv_cache_groups[group].layer_names:
            for kind in kinds:
                state = self.context[name].kv_cache[kind]
                count = state[block].numel() * state.element_size()
                noise = torch.from_numpy(rng.integers(0, 256, count, dtype=np.uint8))
                state[block] = noise.view(state.dtype).reshape(state[block].shape).to(state.device)

    def bytes(self):
        """All bytes of all layers, guards and padding included."""
        return {name: raw.cpu().numpy().copy() for name, raw in self.raw.items()}
