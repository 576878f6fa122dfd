"""Batched copies: what to move is collected on the host, and moved in one launch."""

from __future__ import annotations

from collections.abc import Sequence

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.batch_plan import OP, BatchPlan, Move, make_batch_plan
from launchkit.kernels.state_copy.buffers import MambaCopyBuffers
from launchkit.kernels.state_copy.groups import copy_funcs_for
from launchkit.kernels.state_copy.memcpy import batch_memcpy
from launchkit.kernels.state_copy.protocols import (
    CopyFuncs,
    ForwardContext,
    KVCacheConfig,
    Request,
)


def collect_mamba_copy_meta(
    copy_bufs: MambaCopyBuffers,
    kv_cache_config: KVCacheConfig,
    mamba_state_copy_funcs: CopyFuncs,
    mamba_group_ids: Sequence[int],
    src_block_idx: int,
    dest_block_idx: int,
    accept_token_bias: int,
    req_state: Request,
    forward_context: ForwardContext,
) -> None:
    """Append the copies of one request's states from a column to another to ``copy_bufs``.

    Nothing is appended if source and destination are one block and no token is skipped.

    src_block_idx, dest_block_idx: columns of the request's ``block_ids``.
    accept_token_bias: accepted tokens less one: how far conv windows are shifted, and how many
        columns behind the source a temporal state lies.

    Raises UsageError for columns or blocks that do not exist, a full buffer, and whatever the
    copy functions refuse.
    """
    if src_block_idx == dest_block_idx and accept_token_bias == 0:
        return
    move = Move(src_block_idx, dest_block_idx, accept_token_bias, req_state)
    collect_moves(
        copy_bufs, kv_cache_config, mamba_state_copy_funcs, mamba_group_ids, [move], forward_context
    )


def collect_moves(
    copy_bufs: MambaCopyBuffers,
    kv_cache_config: KVCacheConfig,
    mamba_state_copy_funcs: CopyFuncs,
    mamba_group_ids: Sequence[int],
    moves: Sequence[Move],
    forward_context: ForwardContext,
) -> None:
    """Append the copies of several requests at once; as ``collect_mamba_copy_meta`` for each.

    A move within one block without a shift is not one: leave it out.
    """
    if not moves:
        return
    plan = _plan_for(
        copy_bufs, kv_cache_config, mamba_state_copy_funcs, mamba_group_ids, forward_context
    )
    src, dst, sizes = plan.addresses(moves)
    start, end = copy_bufs.offset, copy_bufs.offset + sizes.size
    if end > len(copy_bufs.sizes.np):
        raise _full(len(copy_bufs.sizes.np), end)
    copy_bufs.in_flight.wait()
    copy_bufs.src_ptrs.np[start:end] = src.reshape(-1)
    copy_bufs.dst_ptrs.np[start:end] = dst.reshape(-1)
    copy_bufs.sizes.np[start:end] = sizes.reshape(-1)
    copy_bufs.offset = end


def _plan_for(
    copy_bufs: MambaCopyBuffers,
    kv_cache_config: KVCacheConfig,
    copy_funcs: CopyFuncs,
    group_ids: Sequence[int],
    forward_context: ForwardContext,
) -> BatchPlan:
    funcs = copy_funcs_for(copy_bufs.mamba_spec, copy_funcs)
    plan = copy_bufs.plan
    if plan is None or not plan.fits(kv_cache_config, group_ids, funcs, forward_context):
        plan = make_batch_plan(kv_cache_config, group_ids, funcs, forward_context)
        copy_bufs.plan = plan
    return plan


def _full(room: int, wanted: int) -> UsageError:
    return UsageError(
        f"{OP}: {wanted} copies do not fit into buffers of {room}. Set copy_bufs.offset to 0 before "
        "each step, and create the buffers for as many requests as a batch can have.",
        op=OP,
        room=room,
        wanted=wanted,
    )


def do_mamba_copy_block(copy_bufs: MambaCopyBuffers) -> None:
    """Move what was collected, in one launch; nothing if nothing was.

    Does not wait, and leaves ``offset``: set it to 0 before the next step collects.
    """
    count = copy_bufs.offset
    if count == 0:
        return
    src, dst = copy_bufs.src_ptrs.copy_to_gpu(count), copy_bufs.dst_ptrs.copy_to_gpu(count)
    sizes = copy_bufs.sizes.copy_to_gpu(count)
    copy_bufs.in_flight.mark(sizes)
    plan = copy_bufs.plan
    if plan is None or plan.formula is None:
        batch_memcpy(src, dst, sizes)
    else:
        batch_memcpy(src, dst, sizes, plan.formula.largest_bytes)
