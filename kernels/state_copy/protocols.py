"""What the host side of the Mamba state copies reads of a serving engine's objects. A leaf.

The names are those of vLLM 0.33, whose scheduler output, input batch, requests, cache
configuration and layers fit as they are; nothing of vLLM is imported. Whatever has these
attributes fits too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from numpy.typing import NDArray


class CopySpec(Protocol):
    """Where a copy starts, in bytes of address space, and how many elements it has."""

    @property
    def start_addr(self) -> int:
        """Address of the first byte."""

    @property
    def num_elements(self) -> int:
        """Elements of the state's dtype."""


StateCopyFunc: TypeAlias = Callable[[torch.Tensor, Sequence[int], int, int], CopySpec]
"""(state, block_ids, cur_block_idx, num_accepted_tokens) -> what is to be copied."""

CopyFuncs: TypeAlias = Sequence[StateCopyFunc] | Mapping[Any, Sequence[StateCopyFunc]]
"""One function per state of a layer, in the order of ``kv_cache``; or such by ``mamba_type``."""


class MambaSpec(Protocol):
    """The cache specification that all layers of a Mamba group share."""

    @property
    def block_size(self) -> int:
        """Tokens a block of Mamba state stands for (not the attention's block size)."""

    @property
    def num_speculative_blocks(self) -> int:
        """Blocks behind the running one that hold the states after draft tokens."""


class KVCacheGroup(Protocol):
    """Layers that share a block table."""

    @property
    def layer_names(self) -> Sequence[str]:
        """Names of the layers, keys of the forward context."""

    @property
    def kv_cache_spec(self) -> Any:
        """A ``MambaSpec``, or the specification of another kind of layer."""


class KVCacheConfig(Protocol):
    """The groups of a model; their position is the group id."""

    @property
    def kv_cache_groups(self) -> Sequence[KVCacheGroup]:
        """Every group, those of attention layers included."""


class CacheConfig(Protocol):
    """What the engine was started with."""

    @property
    def enable_prefix_caching(self) -> bool | None:
        """Whether blocks of a finished prefix are kept."""


class CachedRequests(Protocol):
    """The requests of a step that were known before."""

    @property
    def resumed_req_ids(self) -> Collection[str]:
        """Requests that come back after a preemption."""


class SchedulerOutput(Protocol):
    """What the scheduler decided for one step."""

    @property
    def num_scheduled_tokens(self) -> Mapping[str, int]:
        """Tokens to compute in this step, draft tokens included, by request."""

    @property
    def scheduled_spec_decode_tokens(self) -> Mapping[str, Sequence[int]]:
        """Draft tokens by request; requests without any may be missing."""

    @property
    def finished_req_ids(self) -> Collection[str]:
        """Requests that finished since the step before."""

    @property
    def preempted_req_ids(self) -> Collection[str] | None:
        """Requests that lost their blocks."""

    @property
    def scheduled_cached_reqs(self) -> CachedRequests:
        """The requests of this step that are not new."""


class Request(Protocol):
    """One request as the worker knows it."""

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose state is known before the step."""

    @property
    def block_ids(self) -> Sequence[Sequence[int]]:
        """Block ids by group id, then by column."""


class BlockTable(Protocol):
    """One group's block table."""

    def get_device_tensor(self, num_reqs: int, /) -> torch.Tensor:
        """Return the first rows of the persistent (max_reqs, columns) int32 tensor."""


class MultiGroupBlockTable(Protocol):
    """The block tables of all groups."""

    def __getitem__(self, group_id: int, /) -> BlockTable: ...


class InputBatch(Protocol):
    """The requests of a step in the order of their rows."""

    @property
    def req_ids(self) -> Sequence[str]:
        """Request of each row."""

    @property
    def num_accepted_tokens_cpu(self) -> NDArray[Any]:
        """(max_reqs,) integers by row: tokens accepted in the step before, at least 1."""


class BoundInputBatch(InputBatch, Protocol):
    """An input batch that has block tables on the device."""

    @property
    def block_table(self) -> MultiGroupBlockTable:
        """Block tables by group id."""


class StatefulLayer(Protocol):
    """A layer of the model."""

    @property
    def kv_cache(self) -> Sequence[torch.Tensor]:
        """Its state tensors; dimension 0 of each is the block."""


ForwardContext: TypeAlias = Mapping[str, StatefulLayer]
"""Layers by name."""


class StagingBuffer(Protocol):
    """A CPU tensor that is filled through ``np`` and its twin on the device.

    ``launchkit.kernels.state_copy.buffers.CpuGpuBuffer`` is one, vLLM's another.
    """

    @property
    def np(self) -> NDArray[Any]:
        """The CPU tensor's memory."""

    @property
    def gpu(self) -> torch.Tensor:
        """The twin on the device."""

    def copy_to_gpu(self, n: int | None = None, /) -> torch.Tensor:
        """Copy the first ``n`` elements, or all; return those of the twin."""


class MakeBuffer(Protocol):
    """Makes a staging buffer of ``size`` elements."""

    def __call__(self, size: int, /, *, dtype: torch.dtype) -> StagingBuffer:
        """Return a buffer of zeros."""
