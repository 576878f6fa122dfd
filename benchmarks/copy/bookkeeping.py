"""Host time of the "align" bookkeeping of a step: state by state, batched, and fused.

Gives rows for ``timing.time_rows``; a command decides what to do with them. States are small,
since host time does not depend on their size and the GPU must not be what is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

from launchkit.benchmarks.timing import TimedRow, repeated
from launchkit.kernels.state_copy.buffers import CpuGpuBuffer, MambaBuffers
from launchkit.kernels.state_copy.copy_specs import get_conv_copy_spec, get_temporal_copy_spec
from launchkit.kernels.state_copy.host_align import preprocess_mamba
from launchkit.kernels.state_copy.memcpy import batch_memcpy_kernel
from launchkit.kernels.state_copy.staging import (
    postprocess_mamba_align_gpu,
    stage_postprocess_inputs_to_gpu,
)

STATE_BY_STATE, BATCHED, FUSED = "state_by_state", "launchkit_batched", "launchkit_fused"
MOVES, QUIET = "preprocess, all move", "preprocess, none moves"
STAGE, AFTER = "stage", "postprocess on the device"

_BLOCK_SIZE, _DRAFTS = 16, 2
_FUNCS = (get_conv_copy_spec, get_temporal_copy_spec)
_CACHING = SimpleNamespace(enable_prefix_caching=True)


@dataclass(frozen=True)
class Spec:
    """The Mamba specification that an engine would have."""

    block_size: int = _BLOCK_SIZE
    num_speculative_blocks: int = _DRAFTS


class Bookkeeping:
    """One batch of requests that decode with two drafts each, at the end of a block.

    layers: Mamba layers of the model, all in one group. Each has a conv and a temporal state.
    reqs: requests of the batch.
    """

    def __init__(self, layers: int, reqs: int, device: str) -> None:
        names = [f"layers.{number}" for number in range(layers)]
        group = SimpleNamespace(kv_cache_spec=Spec(), layer_names=names)
        self.config = SimpleNamespace(kv_cache_groups=[group])
        columns = 8
        blocks = 1 + reqs * columns
        self.layers = {
            name: SimpleNamespace(
                kv_cache=[
                    torch.zeros(blocks, 5, 16, device=device),
                    torch.zeros(blocks, 16, 4, device=device),
                ]
            )
            for name in names
        }
        ids = np.arange(1, blocks, dtype=np.int32).reshape(reqs, columns)
        table = torch.from_numpy(ids).to(device)
        lookup = SimpleNamespace(get_device_tensor=lambda rows: table[:rows])
        self.names = [f"request-{number}" for number in range(reqs)]
        self.requests = {
            name: SimpleNamespace(num_computed_tokens=31, block_ids=[row])
            for name, row in zip(self.names, ids.tolist(), strict=True)
        }
        self.batch = SimpleNamespace(
            req_ids=self.names,
            num_accepted_tokens_cpu=np.ones(reqs, np.int32),
            block_table=[lookup],
        )
        self.output = SimpleNamespace(
            num_scheduled_tokens=dict.fromkeys(self.names, 1 + _DRAFTS),
            scheduled_spec_decode_tokens=dict.fromkeys(self.names, [0] * _DRAFTS),
            finished_req_ids=set(),
            preempted_req_ids=None,
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        )
        make_buffer = partial(CpuGpuBuffer, device=device)
        self.buffers = MambaBuffers.create(reqs, self.config, _FUNCS, make_buffer, device, True)
        assert self.buffers.postprocess_align is not None
        self.context = self.buffers.postprocess_align
        self.accepted = torch.full((reqs,), 2, dtype=torch.int32, device=device)
        self.read_back = torch.zeros(reqs, dtype=torch.int32, pin_memory=device != "cpu")

    def preprocess(self, variant: str, column: int) -> None:
        """Start a step of requests whose state is in ``column``; it runs in column 2."""
        columns = dict.fromkeys(self.names, column)
        if variant == STATE_BY_STATE:
            self._state_by_state(columns)
            return
        preprocess_mamba(
            self.output, self.config, _CACHING, columns, self.batch, self.requests, self.layers,
            _FUNCS, self.buffers.preprocess,
            self.context if variant == FUSED else None,
        )  # fmt: skip

    def _state_by_state(self, columns: dict[str, int]) -> None:
        """The same with the copy functions called for every state, and Triton's launch."""
        copies = self.buffers.preprocess
        copies.offset = 0
        for row, name in enumerate(self.batch.req_ids):
            request = self.requests[name]
            tokens = request.num_computed_tokens + self.output.num_scheduled_tokens[name]
            before, column = columns[name], -(-tokens // _BLOCK_SIZE) - 1
            columns[name] = column
            if before != column:
                self._collect(request.block_ids[0], before, column, row)
                self.batch.num_accepted_tokens_cpu[row] = 1
        count = copies.offset
        if count:
            batch_memcpy_kernel[(count,)](
                copies.src_ptrs.copy_to_gpu(count), copies.dst_ptrs.copy_to_gpu(count),
                copies.sizes.copy_to_gpu(count), BLOCK_SIZE=1024,
            )  # fmt: skip

    def _collect(self, block_ids: list[int], before: int, column: int, row: int) -> None:
        copies = self.buffers.preprocess
        accepted = int(self.batch.num_accepted_tokens_cpu[row])
        for layer in self.layers.values():
            for state, func in zip(layer.kv_cache, _FUNCS, strict=True):
                spec = func(state, block_ids, before, accepted)
                copies.src_ptrs.np[copies.offset] = spec.start_addr
                copies.dst_ptrs.np[copies.offset] = state[block_ids[column]].data_ptr()
                copies.sizes.np[copies.offset] = spec.num_elements * state.element_size()
                copies.offset += 1

    def stage(self) -> None:
        """Stage what the device decides by."""
        stage_postprocess_inputs_to_gpu(
            self.context, self.output, self.names, len(self.names),
            self.requests, dict.fromkeys(self.names, 2),
        )  # fmt: skip

    def postprocess(self) -> None:
        """End a step; accepted counts come back without waiting."""
        postprocess_mamba_align_gpu(
            bufs=self.buffers, num_reqs=len(self.names), num_accepted_tokens_gpu=self.accepted,
            num_accepted_tokens_cpu_tensor=self.read_back, input_batch=self.batch,
            kv_cache_config=self.config, forward_context=self.layers,
            mamba_state_copy_funcs=_FUNCS,
        )  # fmt: skip


def rows(layers: int, reqs: int, device: str = "cuda") -> list[TimedRow]:
    """Return the rows of one case: labels ``op``, ``variant``, ``layers``, ``reqs``.

    A loop runs its op n times; times are µs per step of the whole batch. Needs a GPU, or
    host-only mode and ``device="cpu"``.
    """
    case = Bookkeeping(layers, reqs, device)
    ops: list[tuple[str, str, Callable[[], None]]] = [
        *(
            (MOVES, each, partial(case.preprocess, each, 1))
            for each in (STATE_BY_STATE, BATCHED, FUSED)
        ),
        *(
            (QUIET, each, partial(case.preprocess, each, 2))
            for each in (STATE_BY_STATE, BATCHED, FUSED)
        ),
        (STAGE, FUSED, case.stage),
        (AFTER, FUSED, case.postprocess),
    ]
    return [
        TimedRow({"op": op, "variant": variant, "layers": layers, "reqs": reqs}, repeated(run))
        for op, variant, run in ops
    ]
