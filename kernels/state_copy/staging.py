"""Staging for the device: a step's decisions in pinned buffers, one copy per buffer.

Everything is in batch order and copied without waiting. ``preprocess_mamba`` comes first. The
functions that take single buffers write them at once: call them when the copies of the step
before have been made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.buffers import MambaBuffers
from launchkit.kernels.state_copy.protocols import (
    BoundInputBatch,
    CopyFuncs,
    ForwardContext,
    KVCacheConfig,
    Request,
    SchedulerOutput,
    StagingBuffer,
)
from launchkit.kernels.state_copy.rows import fill_rows, no_column, unknown_request
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext


def stage_mamba_state_idx_to_gpu(
    mamba_state_idx: Mapping[str, int],
    req_ids: Sequence[str],
    num_reqs: int,
    gpu_buf: StagingBuffer,
) -> None:
    """Stage the state column of the first ``num_reqs`` requests; ``gpu_buf`` is int32.

    Raises UsageError naming a request that has none, and for more requests than the buffer has
    room for, or than there are.
    """
    op = "stage_mamba_state_idx_to_gpu"
    try:
        columns = [mamba_state_idx[req_id] for req_id in req_ids[:num_reqs]]
    except KeyError as error:
        raise no_column(op, error.args[0]) from None
    fill_rows(op, gpu_buf, columns, num_reqs)
    gpu_buf.copy_to_gpu(num_reqs)


def stage_postprocess_metadata_to_gpu(
    scheduler_output: SchedulerOutput,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Request],
    num_scheduled_tokens_buf: StagingBuffer,
    num_computed_tokens_buf: StagingBuffer,
    num_draft_tokens_buf: StagingBuffer,
) -> None:
    """Stage scheduled, computed and draft tokens of the first ``num_reqs`` requests, int32.

    Raises UsageError naming a request that is not among ``requests`` or not scheduled, and for
    more requests than the buffers have room for, or than there are.
    """
    op = "stage_postprocess_metadata_to_gpu"
    rows = req_ids[:num_reqs]
    scheduled = scheduler_output.num_scheduled_tokens
    drafts = scheduler_output.scheduled_spec_decode_tokens
    try:
        counts = [(scheduled[each], requests[each].num_computed_tokens) for each in rows]
    except KeyError as error:
        raise unknown_request(op, error.args[0]) from None
    for buffer, values in (
        (num_scheduled_tokens_buf, [count for count, _ in counts]),
        (num_computed_tokens_buf, [computed for _, computed in counts]),
        (num_draft_tokens_buf, [len(drafts.get(each, ())) for each in rows]),
    ):
        fill_rows(op, buffer, values, num_reqs)
        buffer.copy_to_gpu(num_reqs)


def stage_postprocess_inputs_to_gpu(
    ctx: MambaSpecDecodeGPUContext,
    scheduler_output: SchedulerOutput,
    req_ids: Sequence[str],
    num_reqs: int,
    requests: Mapping[str, Request],
    mamba_state_idx: Mapping[str, int],
) -> None:
    """Stage everything that ``postprocess_mamba_align_gpu`` reads, into the context's buffers.

    Raises UsageError naming a request without a state column.
    """
    # Columns of a pre-copy under way are this batch's too: writing them again changes nothing.
    ctx.staged.wait()
    stage_mamba_state_idx_to_gpu(mamba_state_idx, req_ids, num_reqs, ctx.mamba_state_idx_buf)
    stage_postprocess_metadata_to_gpu(
        scheduler_output, req_ids, num_reqs, requests, ctx.num_scheduled_tokens_buf,
        ctx.num_computed_tokens_buf, ctx.num_draft_tokens_buf,
    )  # fmt: skip
    ctx.staged.mark(ctx.num_draft_tokens_buf.gpu)


def postprocess_mamba_align_gpu(
    *,
    bufs: MambaBuffers,
    num_reqs: int,
    num_accepted_tokens_gpu: torch.Tensor,
    num_accepted_tokens_cpu_tensor: torch.Tensor,
    input_batch: BoundInputBatch,
    kv_cache_config: KVCacheConfig,
    forward_context: ForwardContext,
    mamba_state_copy_funcs: CopyFuncs,
) -> None:
    """Save states at block boundaries on the device; call it after the step, once staged.

    Binds the context on first use. The first ``num_reqs`` of ``num_accepted_tokens_cpu_tensor``
    receive the accepted counts, 1 where the boundary is in the running column, without waiting:
    synchronize before the next ``preprocess_mamba`` reads them.

    num_accepted_tokens_gpu: int32 by batch row; read only.

    Raises UsageError if ``bufs`` was made without the device context, and for what
    ``initialize_from_forward_context`` refuses.
    """
    context = bufs.postprocess_align
    if context is None:
        raise UsageError(
            "postprocess_mamba_align_gpu: the buffers have no device context. Create MambaBuffers "
            "with with_postprocess_align=True.",
            op="postprocess_mamba_align_gpu",
        )
    context.bind(kv_cache_config, forward_context, mamba_state_copy_funcs, input_batch)
    context.run_fused_postprocess(
        num_reqs,
        num_accepted_tokens_gpu,
        context.mamba_state_idx_buf.gpu,
        context.num_scheduled_tokens_buf.gpu,
        context.num_computed_tokens_buf.gpu,
        context.num_draft_tokens_buf.gpu,
    )
    num_accepted_tokens_cpu_tensor[:num_reqs].copy_(
        context.accepted_out(num_reqs), non_blocking=True
    )
