"""The "all" cache mode on the host: which block the last scheduled token of a request was in.

With speculative decoding the next step starts its writes there, since accepted drafts may leave
a sequence within a block.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from launchkit.kernels.state_copy.groups import get_mamba_groups
from launchkit.kernels.state_copy.host_align import cleanup_mamba_state_idx, state_column
from launchkit.kernels.state_copy.protocols import (
    InputBatch,
    KVCacheConfig,
    Request,
    SchedulerOutput,
    StagingBuffer,
)
from launchkit.kernels.state_copy.rows import fill_rows, unknown_request


def postprocess_mamba_all(
    scheduler_output: SchedulerOutput,
    kv_cache_config: KVCacheConfig,
    input_batch: InputBatch,
    requests: Mapping[str, Request],
    mamba_state_idx: MutableMapping[str, int],
    num_spec_tokens: int,
    num_reqs: int,
) -> None:
    """Note the column of each request's last scheduled token; call it after the step.

    Only of requests that were scheduled ``1 + num_spec_tokens`` tokens; others are forgotten.
    Nothing is done without speculative tokens.

    Raises UsageError naming a scheduled request that is not among ``requests``.
    """
    if num_spec_tokens <= 0:
        return
    _, spec = get_mamba_groups(kv_cache_config)
    scheduled = scheduler_output.num_scheduled_tokens
    for req_id in input_batch.req_ids[:num_reqs]:
        count = scheduled.get(req_id, 0)
        if count == 1 + num_spec_tokens:
            if req_id not in requests:
                raise unknown_request("postprocess_mamba_all", req_id)
            tokens = requests[req_id].num_computed_tokens + count
            mamba_state_idx[req_id] = max(0, state_column(tokens, spec.block_size))
        else:
            mamba_state_idx.pop(req_id, None)


def preprocess_mamba_all_specdec(
    scheduler_output: SchedulerOutput,
    input_batch: InputBatch,
    mamba_state_idx: MutableMapping[str, int],
    num_reqs: int,
    prev_last_scheduled_idx_buf: StagingBuffer,
) -> None:
    """Stage the noted column of every row, -1 where there is none, and copy all to the device.

    prev_last_scheduled_idx_buf: int32, at least ``num_reqs`` long; the rest of it becomes -1,
    as rows of padding need.

    Raises UsageError for more requests than the buffer has room for, or than the batch has.
    """
    cleanup_mamba_state_idx(scheduler_output, mamba_state_idx)
    columns = prev_last_scheduled_idx_buf.np
    known = [mamba_state_idx.get(each, -1) for each in input_batch.req_ids[:num_reqs]]
    fill_rows("preprocess_mamba_all_specdec", prev_last_scheduled_idx_buf, known, num_reqs)
    columns[num_reqs:] = -1
    prev_last_scheduled_idx_buf.copy_to_gpu()
