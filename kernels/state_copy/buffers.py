"""Buffers of the host side: pinned staging tensors, and the pointer lists of batched copies.

Rank: above the copy kernels. Needs no GPU to be imported or made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import NDArray

from launchkit.kernels import arguments
from launchkit.kernels.state_copy.batch_plan import BatchPlan
from launchkit.kernels.state_copy.groups import copy_funcs_for, count_layers, get_mamba_groups
from launchkit.kernels.state_copy.in_flight import CopiesInFlight
from launchkit.kernels.state_copy.protocols import (
    CopyFuncs,
    KVCacheConfig,
    MakeBuffer,
    MambaSpec,
    StagingBuffer,
)
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext

_KEPT_VIEWS = 1024


class CpuGpuBuffer:
    """A CPU tensor ``cpu`` with its NumPy view ``np``, and a twin ``gpu`` on a device.

    Both start with zeros. The CPU tensor is pinned where the device is a CUDA one, so that a
    copy does not make the host wait; then ``np`` may be written again only once the copy has
    happened, which an engine that waits for a step's results (or for an event of its inputs)
    knows.

    size: the shape. dtype: any that NumPy has, uint64 included; not bfloat16.
    device: of the twin; a CPU twin is a tensor of its own.
    pin_memory: False leaves the CPU tensor pageable.

    Raises UsageError for a dtype that NumPy does not have.
    """

    def __init__(
        self,
        *size: int,
        dtype: torch.dtype,
        device: torch.device | str,
        pin_memory: bool = True,
    ) -> None:
        device = torch.device(device)
        pinned = pin_memory and device.type == "cuda" and torch.cuda.is_available()
        # Runtime state, to be written outside inference mode too.
        with torch.inference_mode(False):
            self.cpu = torch.zeros(*size, dtype=dtype, device="cpu", pin_memory=pinned)
            self.gpu = torch.zeros(*size, dtype=dtype, device=device)
        try:
            self.np: NDArray[Any] = self.cpu.numpy()
        except TypeError:
            raise arguments.refusal(
                "CpuGpuBuffer", "dtype", f"is {dtype}, which NumPy does not have", "Pass another."
            ) from None
        self._views: dict[int | None, tuple[torch.Tensor, torch.Tensor]] = {
            None: (self.cpu, self.gpu)
        }

    def copy_to_gpu(self, n: int | None = None) -> torch.Tensor:
        """Copy the first ``n`` elements of dimension 0, or all, to ``gpu``; return those of it.

        Does not wait. The returned view is the same object for the same ``n``.
        """
        cpu, gpu = self._views.get(n) or self._slice(n)
        return gpu.copy_(cpu, non_blocking=True)

    def copy_to_cpu(self, n: int | None = None) -> torch.Tensor:
        """Copy the first ``n`` elements, or all, back to ``cpu``; return those of it.

        Does not wait: synchronize with the device before reading them.
        """
        cpu, gpu = self._views.get(n) or self._slice(n)
        return cpu.copy_(gpu, non_blocking=True)

    def _slice(self, n: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        if n is None or not 0 <= n <= self.cpu.shape[0]:
            limit = f"Pass 0 to {self.cpu.shape[0]}, or make the buffer larger."
            raise arguments.refusal("CpuGpuBuffer", "n", f"is {n}", limit)
        if len(self._views) >= _KEPT_VIEWS:
            self._views = {None: (self.cpu, self.gpu)}
        views = self._views[n] = self.cpu[:n], self.gpu[:n]
        return views


@dataclass
class MambaCopyBuffers:
    """Pointers and sizes of the copies of one batched launch, filled from ``offset`` on."""

    src_ptrs: StagingBuffer
    """uint64 addresses."""
    dst_ptrs: StagingBuffer
    """uint64 addresses."""
    sizes: StagingBuffer
    """int32, in bytes."""
    mamba_group_ids: list[int]
    mamba_spec: MambaSpec
    offset: int = 0
    """Copies collected so far."""
    in_flight: CopiesInFlight = field(default_factory=CopiesInFlight, repr=False, compare=False)
    """Whether the device still has to read these buffers."""
    plan: BatchPlan | None = field(default=None, repr=False, compare=False)
    """What is known of the states that were copied last; made again when they are others."""

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: KVCacheConfig,
        copy_funcs: CopyFuncs,
        make_buffer: MakeBuffer,
    ) -> MambaCopyBuffers:
        """Make buffers for one copy of every state of ``max_num_reqs`` requests.

        make_buffer: called as ``make_buffer(n, dtype=...)``, with uint64 and int32.

        Raises UsageError if the configuration has no Mamba groups or different ones.
        """
        group_ids, spec = get_mamba_groups(kv_cache_config)
        per_request = count_layers(kv_cache_config, group_ids)
        count = max_num_reqs * per_request * len(copy_funcs_for(spec, copy_funcs))
        return cls(
            src_ptrs=make_buffer(count, dtype=torch.uint64),
            dst_ptrs=make_buffer(count, dtype=torch.uint64),
            sizes=make_buffer(count, dtype=torch.int32),
            mamba_group_ids=group_ids,
            mamba_spec=spec,
        )


@dataclass
class MambaBuffers:
    """Everything that the "align" cache mode keeps between steps."""

    preprocess: MambaCopyBuffers
    postprocess_align: MambaSpecDecodeGPUContext | None
    """Only with speculative decoding."""

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: KVCacheConfig,
        copy_funcs: CopyFuncs,
        make_buffer: MakeBuffer,
        device: torch.device | str,
        with_postprocess_align: bool,
    ) -> MambaBuffers:
        """Make the copy buffers and, with ``with_postprocess_align``, the device context.

        Call it where the cache mode is "align"; ``with_postprocess_align`` says whether
        speculative decoding is on. ``device``: where the states are.
        """
        context = None
        if with_postprocess_align:
            context = MambaSpecDecodeGPUContext.create(
                max_num_reqs, kv_cache_config, copy_funcs, device, make_buffer
            )
        copies = MambaCopyBuffers.create(max_num_reqs, kv_cache_config, copy_funcs, make_buffer)
        return cls(copies, context)
