"""Layer shapes of public Mamba2 models, for benchmarks and tests. Needs nothing else.

Sizes come from the models' published configurations: heads, head dimension, state dimension
and groups from ``config.json`` (or, for Bamba, from its conversion script's defaults), the
number of Mamba layers from the layer pattern in the same file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class MambaShape:
    """The Mamba2 layers of one model on one GPU. Dtypes are torch's names."""

    model: str
    layers: int
    """Mamba layers in the model; the others are attention or MLP."""
    nheads: int
    headdim: int
    dstate: int
    ngroups: int
    chunk_size: int
    """Tokens a chunk of the prefill scan holds."""
    state_dtype: str
    """Dtype of the state cache. Activations are bfloat16."""
    source: str

    @property
    def dim(self) -> int:
        """Elements of one head's state, P*N."""
        return self.headdim * self.dstate


MAMBA_SHAPES: dict[str, MambaShape] = {
    shape.model: shape
    for shape in (
        MambaShape(
            model="Nemotron-3-Nano",
            layers=23,
            nheads=64,
            headdim=64,
            dstate=128,
            ngroups=8,
            chunk_size=128,
            state_dtype="float32",
            source="config.json of Nemotron-3-Nano-30B-A3B",
        ),
        MambaShape(
            model="Nemotron-3.5-Lightning",
            layers=23,
            nheads=64,
            headdim=64,
            dstate=128,
            ngroups=8,
            chunk_size=128,
            state_dtype="float16",
            source="sizes of Nemotron-3-Nano; served with a float16 state cache",
        ),
        MambaShape(
            model="Nemotron-3-Super",
            layers=40,
            nheads=128,
            headdim=64,
            dstate=128,
            ngroups=8,
            chunk_size=128,
            state_dtype="float32",
            source="config.json of Nemotron-3-Super-120B-A12B",
        ),
        MambaShape(
            model="Granite-4.0-h-micro",
            layers=36,
            nheads=64,
            headdim=64,
            dstate=128,
            ngroups=1,
            chunk_size=256,
            state_dtype="bfloat16",
            source="config.json of granite-4.0-h-micro",
        ),
        MambaShape(
            model="Bamba-9B",
            layers=29,
            nheads=128,
            headdim=64,
            dstate=128,
            ngroups=1,
            chunk_size=256,
            state_dtype="bfloat16",
            source="Bamba conversion script's defaults; attention at layers 9, 18 and 27",
        ),
    )
}
"""By model name, in the order in which tables show them."""


@dataclass(frozen=True)
class CacheShape:
    """The Mamba state blocks that one request owns in a model, for one copy of its states."""

    model: str
    layers: int
    conv_width: int
    """Inputs that a convolutional state holds: its kernel's less one, and one a draft token."""
    conv_dim: int
    temporal: tuple[int, ...]
    """Shape of a temporal state, float32. Convolutional ones are bfloat16."""
    source: str

    @property
    def conv_bytes(self) -> int:
        """Bytes of a convolutional state's block."""
        return 2 * self.conv_width * self.conv_dim

    @property
    def temporal_bytes(self) -> int:
        """Bytes of a temporal state's block."""
        return 4 * math.prod(self.temporal)

    @property
    def request_bytes(self) -> int:
        """Bytes of all states of one request."""
        return self.layers * (self.conv_bytes + self.temporal_bytes)


CACHE_SHAPES: dict[str, CacheShape] = {
    shape.model: shape
    for shape in (
        CacheShape(
            model="Qwen3.5-9B",
            layers=24,
            conv_width=5,
            conv_dim=8192,
            temporal=(32, 128, 128),
            source="config.json of Qwen3.5-9B, 2 draft tokens; 24 of 32 layers are linear attention",
        ),
        CacheShape(
            model="Nemotron-3-Super",
            layers=40,
            conv_width=4,
            conv_dim=10240,
            temporal=(128, 64, 128),
            source="config.json of Nemotron-3-Super-120B-A12B, 1 draft token",
        ),
    )
}
"""By model name, in the order in which tables show them."""
