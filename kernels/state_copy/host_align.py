"""The "align" cache mode on the host: where each request's state runs, and what has to move.

A request's running state is in the column of its last scheduled token; the columns behind hold
the states after draft tokens. Before a step the state moves there from where the last step left
it; after a step whose accepted tokens cross a block boundary, the state at the boundary is saved
in the block that became full.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import chain
from typing import NamedTuple

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.batch_plan import Move
from launchkit.kernels.state_copy.batched import collect_moves, do_mamba_copy_block
from launchkit.kernels.state_copy.buffers import MambaCopyBuffers
from launchkit.kernels.state_copy.protocols import (
    BoundInputBatch,
    CacheConfig,
    CopyFuncs,
    ForwardContext,
    InputBatch,
    KVCacheConfig,
    Request,
    SchedulerOutput,
)
from launchkit.kernels.state_copy.rows import fill_rows, no_column, unknown_request
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext

_PRE, _POST = "preprocess_mamba", "postprocess_mamba"


def state_column(num_tokens: int, block_size: int) -> int:
    """Return the column of the block with a request's last token; -1 without tokens.

    block_size: that of the Mamba groups. The attention's would name a block that the request
    may not have.
    """
    return (num_tokens - 1) // block_size


def cleanup_mamba_state_idx(
    scheduler_output: SchedulerOutput, mamba_state_idx: MutableMapping[str, int]
) -> None:
    """Forget the state columns of requests that finished, were preempted, or are resumed.

    A request preempted by force is only seen when it is resumed, with other blocks.
    """
    for req_id in chain(
        scheduler_output.finished_req_ids,
        scheduler_output.preempted_req_ids or (),
        scheduler_output.scheduled_cached_reqs.resumed_req_ids,
    ):
        mamba_state_idx.pop(req_id, None)


class _Moved(NamedTuple):
    """The rows of a batch whose state moves, in batch order."""

    rows: list[int]
    before: list[int]
    """Columns that they come from."""
    after: list[int]
    """Columns that they go to."""


def preprocess_mamba(
    scheduler_output: SchedulerOutput,
    kv_cache_config: KVCacheConfig,
    cache_config: CacheConfig,
    mamba_state_idx: MutableMapping[str, int],
    input_batch: BoundInputBatch,
    requests: Mapping[str, Request],
    forward_context: ForwardContext,
    mamba_state_copy_funcs: CopyFuncs,
    copy_bufs: MambaCopyBuffers,
    align_ctx: MambaSpecDecodeGPUContext | None = None,
) -> None:
    """Move each request's state to the column in which this step runs; call it before the step.

    The column before is that of ``mamba_state_idx`` or, for a request that is new there, of its
    last computed token. ``mamba_state_idx`` then holds the new columns. Where the two differ,
    the state after the accepted tokens is copied, and the request's
    ``num_accepted_tokens_cpu`` becomes 1. One launch for the batch, none if nothing moves.

    align_ctx: copies by the fused kernel, which knows conv states in the DS layout, instead of
        a list of addresses. It is bound on first use, and reads this step's block tables on the
        device.

    Raises UsageError, with nothing changed but forgotten requests, without prefix caching, for
    a request without accepted tokens or one that is not among ``requests`` or not scheduled,
    for more requests than ``align_ctx`` has room for, and for what ``collect_mamba_copy_meta``
    refuses.
    """
    if not cache_config.enable_prefix_caching:
        raise UsageError(
            f"{_PRE}: enable_prefix_caching is off, so no block outlives its request. Call it in "
            'the "align" cache mode only.',
            op=_PRE,
        )
    cleanup_mamba_state_idx(scheduler_output, mamba_state_idx)
    copy_bufs.offset = 0
    block_size = copy_bufs.mamba_spec.block_size
    try:
        known, moved = _advance(
            scheduler_output, block_size, mamba_state_idx, input_batch, requests
        )
    except KeyError as error:
        raise unknown_request(_PRE, error.args[0]) from None
    bias = _biases(_PRE, input_batch, moved.rows) if moved.rows else []
    if align_ctx is None:
        moves = [
            Move(before, after, bias[at], requests[input_batch.req_ids[row]])
            for at, (row, before, after) in enumerate(zip(*moved, strict=True))
        ]
        collect_moves(
            copy_bufs, kv_cache_config, mamba_state_copy_funcs, copy_bufs.mamba_group_ids, moves,
            forward_context,
        )  # fmt: skip
    elif moved.rows:
        align_ctx.require_room(len(input_batch.req_ids))
        align_ctx.bind(kv_cache_config, forward_context, mamba_state_copy_funcs, input_batch)
    mamba_state_idx.update(known)
    if not moved.rows:
        return
    input_batch.num_accepted_tokens_cpu[moved.rows] = 1
    if align_ctx is None:
        do_mamba_copy_block(copy_bufs)
    else:
        columns = [mamba_state_idx[req_id] for req_id in input_batch.req_ids]
        _precopy(align_ctx, columns, moved, bias)


def _advance(
    scheduler_output: SchedulerOutput,
    block_size: int,
    mamba_state_idx: Mapping[str, int],
    input_batch: InputBatch,
    requests: Mapping[str, Request],
) -> tuple[dict[str, int], _Moved]:
    """Return the columns that are new or others than before, and the rows whose state moves."""
    scheduled = scheduler_output.num_scheduled_tokens
    known: dict[str, int] = {}
    moved = _Moved([], [], [])
    for row, req_id in enumerate(input_batch.req_ids):
        computed = requests[req_id].num_computed_tokens
        column = (computed + scheduled[req_id] - 1) // block_size
        before = mamba_state_idx.get(req_id)
        if before == column:
            continue
        known[req_id] = column
        if before is None:
            before = (computed - 1) // block_size
        if before not in (-1, column):
            moved.rows.append(row)
            moved.before.append(before)
            moved.after.append(column)
    return known, moved


def _biases(op: str, input_batch: InputBatch, rows: Sequence[int]) -> list[int]:
    """Return the accepted tokens less one of some rows, each of which accepted one at least."""
    counts: list[int] = input_batch.num_accepted_tokens_cpu[rows].tolist()
    if min(counts) < 1:
        at = next(at for at, count in enumerate(counts) if count < 1)
        req_id = input_batch.req_ids[rows[at]]
        raise UsageError(
            f"{op}: request {req_id!r} has {counts[at]} accepted tokens. Count the token that is "
            "always sampled: a step accepts at least 1.",
            op=op,
            request=req_id,
            accepted=counts[at],
        )
    return [count - 1 for count in counts]


def _precopy(
    context: MambaSpecDecodeGPUContext, columns: Sequence[int], moved: _Moved, bias: Sequence[int]
) -> None:
    """Hand the moves to the fused kernel, in batch order."""
    num_reqs = len(columns)
    state_idx, src_col = context.mamba_state_idx_buf, context.precopy_src_col_buf
    token_bias = context.precopy_token_bias_buf
    context.precopied.wait()
    context.staged.wait()
    fill_rows(_PRE, state_idx, columns, num_reqs)
    src_col.np[:num_reqs] = -1
    src_col.np[moved.rows] = moved.before
    token_bias.np[:num_reqs] = 0
    token_bias.np[moved.rows] = bias
    for buffer in (state_idx, src_col, token_bias):
        buffer.copy_to_gpu(num_reqs)
    context.precopied.mark(token_bias.gpu)
    context.run_fused_precopy(num_reqs, state_idx.gpu, src_col.gpu, token_bias.gpu, None)


def postprocess_mamba(
    scheduler_output: SchedulerOutput,
    kv_cache_config: KVCacheConfig,
    input_batch: InputBatch,
    requests: Mapping[str, Request],
    mamba_state_idx: MutableMapping[str, int],
    forward_context: ForwardContext,
    mamba_state_copy_funcs: CopyFuncs,
    copy_bufs: MambaCopyBuffers,
) -> None:
    """Save the state at a block boundary that accepted tokens crossed; call it after the step.

    For engines whose ``num_accepted_tokens_cpu`` holds this step's counts when it is called;
    ``postprocess_mamba_align_gpu`` decides the same on the device, without waiting for them. A
    request whose boundary is in its running column gets 1 there. One launch, or none.

    Raises UsageError, with nothing changed, for a request without a state column or accepted
    tokens, for one that is not among ``requests`` or not scheduled, and for what
    ``collect_mamba_copy_meta`` refuses.
    """
    moves: list[Move] = []
    in_place: list[int] = []
    drafts = scheduler_output.scheduled_spec_decode_tokens
    block_size = copy_bufs.mamba_spec.block_size
    rows = range(len(input_batch.req_ids))
    biases = _biases(_POST, input_batch, rows) if rows else []
    for row, req_id in enumerate(input_batch.req_ids):
        try:
            request = requests[req_id]
            scheduled = scheduler_output.num_scheduled_tokens[req_id]
        except KeyError:
            raise unknown_request(_POST, req_id) from None
        running = request.num_computed_tokens + scheduled - len(drafts.get(req_id, ()))
        aligned = (running + biases[row]) // block_size * block_size
        if aligned < max(running, 1):
            continue
        if req_id not in mamba_state_idx:
            raise no_column(_POST, req_id)
        move = Move(mamba_state_idx[req_id], aligned // block_size - 1, aligned - running, request)
        if move.src_col == move.dst_col:
            in_place.append(row)
        if move.src_col != move.dst_col or move.bias:
            moves.append(move)
    copy_bufs.offset = 0
    collect_moves(
        copy_bufs, kv_cache_config, mamba_state_copy_funcs, copy_bufs.mamba_group_ids, moves,
        forward_context,
    )  # fmt: skip
    if in_place:
        input_batch.num_accepted_tokens_cpu[in_place] = 1
    do_mamba_copy_block(copy_bufs)
