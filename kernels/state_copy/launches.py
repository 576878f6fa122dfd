"""Launches of the aligned step's kernels, with the shape of copy that the GPU is given.

Arguments are checked for what the host can know; values of device tensors are not looked at,
which would wait for the GPU. None of these launches anything for no requests.
"""

from __future__ import annotations

import functools
from dataclasses import astuple
from typing import Any

import torch

from launchkit import launch, planned
from launchkit.kernels import arguments
from launchkit.kernels.overlap import refuse_overlaps
from launchkit.kernels.placement import device_guard, require_launchable
from launchkit.kernels.state_copy.align import (
    precopy_mamba_align_fused_kernel,
    preprocess_mamba_align_fused_kernel,
)
from launchkit.kernels.state_copy.layout import BlockTables, StateTable
from launchkit.kernels.state_copy.postprocess import postprocess_mamba_fused_kernel
from launchkit.kernels.state_copy.shapes import CopyShape, copy_options, copy_shape

_PREPROCESS, _PRECOPY, _POSTPROCESS = "preprocess_align", "precopy_align", "postprocess_align"
_REQUESTS_PER_PROGRAM = 128


def _require_rows(op: str, count: int, device: torch.device, **tensors: torch.Tensor) -> None:
    """Raise UsageError unless each tensor is dense int32 or int64 of at least ``count`` rows."""
    for name, tensor in tensors.items():
        arguments.require_tensor(op, name, tensor, arguments.INDEX_DTYPES, device)
        if tensor.dim() != 1 or tensor.shape[0] < count or not tensor.is_contiguous():
            raise arguments.wrong_shape(op, name, tensor, f"(n,) with n >= {count}, dense")


def _require_mapping(
    op: str, num_reqs: int, device: torch.device, idx_mapping: torch.Tensor | None
) -> int:
    """Check ``idx_mapping``; return how many rows the per-request tensors must have."""
    arguments.require_count(op, "num_reqs", num_reqs, 0)
    if idx_mapping is None:
        return num_reqs
    _require_rows(op, num_reqs, device, idx_mapping=idx_mapping)
    return 0


def _require_described(op: str, tables: BlockTables, states: StateTable) -> None:
    """Raise UsageError unless tables and states are descriptions that belong together."""
    for name, value, wanted in (("tables", tables, BlockTables), ("states", states, StateTable)):
        if not isinstance(value, wanted):
            advice = "Pass what layout.block_tables and layout.state_table return."
            raise arguments.refusal(op, name, f"is a {type(value).__name__}", advice)
    if states.num_groups > len(tables.tables):
        problem = (
            f"has {len(tables.tables)} groups, and a state is of group {states.num_groups - 1}"
        )
        raise arguments.refusal(op, "tables", problem, "Pass a table for each KV-cache group.")


def preprocess_align(
    idx_mapping: torch.Tensor,
    state_idx: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    query_start_loc: torch.Tensor,
    num_accepted_tokens: torch.Tensor,
    src_col: torch.Tensor,
    src_off: torch.Tensor,
    num_reqs: int,
    mamba_block_size: int,
) -> None:
    """Advance every request's state column: ``preprocess_mamba_align_fused_kernel``.

    idx_mapping: (>= num_reqs,), query_start_loc: (>= num_reqs + 1,), by batch row; the rest by
    slot. All int32 or int64 and dense. state_idx, num_accepted_tokens, src_col and src_off are
    written.

    Raises UsageError for shapes, dtypes or devices that do not fit, and where what is written
    shares memory with another argument.
    """
    if num_reqs == 0:
        return
    _preprocess(
        idx_mapping, state_idx, num_computed_tokens, query_start_loc, num_accepted_tokens, src_col,
        src_off, num_reqs, mamba_block_size,
    )  # fmt: skip


@planned
def _preprocess(
    idx_mapping: torch.Tensor,
    state_idx: torch.Tensor,
    num_computed_tokens: torch.Tensor,
    query_start_loc: torch.Tensor,
    num_accepted_tokens: torch.Tensor,
    src_col: torch.Tensor,
    src_off: torch.Tensor,
    num_reqs: int,
    mamba_block_size: int,
) -> None:
    op = _PREPROCESS
    arguments.sizes_of(op, "idx_mapping", idx_mapping)
    device = idx_mapping.device
    _require_mapping(op, num_reqs, device, idx_mapping)
    arguments.require_count(op, "mamba_block_size", mamba_block_size, 1)
    _require_rows(op, num_reqs + 1, device, query_start_loc=query_start_loc)
    written = {
        "state_idx": state_idx, "num_accepted_tokens": num_accepted_tokens, "src_col": src_col,
        "src_off": src_off,
    }  # fmt: skip
    _require_rows(op, 0, device, num_computed_tokens=num_computed_tokens, **written)
    read = (
        ("idx_mapping", idx_mapping), ("num_computed_tokens", num_computed_tokens),
        ("query_start_loc", query_start_loc),
    )  # fmt: skip
    refuse_overlaps(op, tuple(written.items()), read)
    require_launchable(op, idx_mapping)
    with device_guard(idx_mapping):
        launch(
            preprocess_mamba_align_fused_kernel, (-(-num_reqs // _REQUESTS_PER_PROGRAM),),
            idx_mapping, state_idx, num_computed_tokens, query_start_loc, num_accepted_tokens,
            src_col, src_off, num_reqs, BLOCK_SIZE=_REQUESTS_PER_PROGRAM,
            MAMBA_BLOCK_SIZE=mamba_block_size,
        )  # fmt: skip


def precopy_align(
    state_idx: torch.Tensor,
    src_col: torch.Tensor,
    token_bias: torch.Tensor,
    tables: BlockTables,
    states: StateTable,
    num_reqs: int,
    idx_mapping: torch.Tensor | None = None,
    table_by_slot: bool = True,
    shape: CopyShape | None = None,
) -> None:
    """Copy the states of requests that enter a new block: ``precopy_mamba_align_fused_kernel``.

    state_idx, src_col, token_bias: by slot, or by batch row without ``idx_mapping``.
    table_by_slot: whether a block table's rows are slots; else they are batch rows.
    shape: how the copy is cut; by default what suits the GPU and the states.

    Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    _require_described(_PRECOPY, tables, states)
    if num_reqs == 0:
        return
    _precopy(
        state_idx, src_col, token_bias, num_reqs, idx_mapping,
        *_described(tables, states, shape, table_by_slot),
    )  # fmt: skip


def _described(
    tables: BlockTables, states: StateTable, shape: CopyShape | None, by_slot: bool
) -> tuple[Any, ...]:
    """Return what the copies know of tables, states and shape, as the planned ops take it.

    Field by field: a plan compares tensors where they are parameters of their own, and in no object.
    """
    shape = copy_shape(states.largest_bytes) if shape is None else shape
    return (*states.with_tables(tables), states.conv_dim_first, by_slot, _fields(shape))


@functools.lru_cache(64)
def _fields(shape: CopyShape) -> tuple[Any, ...]:
    return astuple(shape)


@planned
def _precopy(
    state_idx: torch.Tensor,
    src_col: torch.Tensor,
    token_bias: torch.Tensor,
    num_reqs: int,
    idx_mapping: torch.Tensor | None,
    pointers: torch.Tensor,
    stride_req: int,
    base_addrs: torch.Tensor,
    block_strides: torch.Tensor,
    elem_sizes: torch.Tensor,
    inner_sizes: torch.Tensor,
    conv_widths: torch.Tensor,
    group_indices: torch.Tensor,
    dim_row_counts: torch.Tensor,
    dim_row_strides: torch.Tensor,
    conv_dim_first: bool,
    by_slot: bool,
    fields: tuple[Any, ...],
) -> None:
    op, device, shape = _PRECOPY, base_addrs.device, CopyShape(*fields)
    rows = _require_mapping(op, num_reqs, device, idx_mapping)
    arguments.require_tensor(op, "tables", pointers, (torch.int64,), device)
    _require_rows(op, rows, device, state_idx=state_idx, src_col=src_col, token_bias=token_bias)
    require_launchable(op, base_addrs)
    with device_guard(base_addrs):
        launch(
            precopy_mamba_align_fused_kernel, (shape.tiles * base_addrs.shape[0], num_reqs),
            state_idx, src_col, token_bias, pointers, stride_req, base_addrs, block_strides,
            elem_sizes, inner_sizes, conv_widths, group_indices, dim_row_counts, dim_row_strides,
            idx_mapping, num_reqs, CONV_STATE_DIM_FIRST=conv_dim_first,
            HAS_IDX_MAPPING=idx_mapping is not None, BLOCK_TABLE_BY_SLOT=by_slot,
            **copy_options(shape),
        )  # fmt: skip


def postprocess_align(
    num_accepted_tokens: torch.Tensor,
    state_idx: torch.Tensor,
    num_scheduled_tokens: torch.Tensor | None,
    num_computed_tokens: torch.Tensor,
    num_draft_tokens: torch.Tensor | None,
    tables: BlockTables,
    states: StateTable,
    num_accepted_tokens_out: torch.Tensor,
    num_reqs: int,
    block_size: int,
    idx_mapping: torch.Tensor | None = None,
    table_by_slot: bool = True,
    shape: CopyShape | None = None,
) -> None:
    """Copy the states at block ends that were reached: ``postprocess_mamba_fused_kernel``.

    Per-request tensors are by slot, or by batch row without ``idx_mapping``. Without scheduled
    and draft tokens, num_computed_tokens already counts the accepted ones.
    num_accepted_tokens is a snapshot; num_accepted_tokens_out, which programs write while
    others read the snapshot, must be another tensor.

    Raises UsageError for shapes, dtypes or devices that do not fit, for only one of scheduled
    and draft tokens, and where what is written shares memory with what is read.
    """
    _require_described(_POSTPROCESS, tables, states)
    if num_reqs == 0:
        return
    _postprocess(
        num_accepted_tokens, state_idx, num_scheduled_tokens, num_computed_tokens,
        num_draft_tokens, num_accepted_tokens_out, num_reqs, block_size, idx_mapping,
        *_described(tables, states, shape, table_by_slot),
    )  # fmt: skip


@planned
def _postprocess(
    num_accepted_tokens: torch.Tensor,
    state_idx: torch.Tensor,
    num_scheduled_tokens: torch.Tensor | None,
    num_computed_tokens: torch.Tensor,
    num_draft_tokens: torch.Tensor | None,
    num_accepted_tokens_out: torch.Tensor,
    num_reqs: int,
    block_size: int,
    idx_mapping: torch.Tensor | None,
    pointers: torch.Tensor,
    stride_req: int,
    base_addrs: torch.Tensor,
    block_strides: torch.Tensor,
    elem_sizes: torch.Tensor,
    inner_sizes: torch.Tensor,
    conv_widths: torch.Tensor,
    group_indices: torch.Tensor,
    dim_row_counts: torch.Tensor,
    dim_row_strides: torch.Tensor,
    conv_dim_first: bool,
    by_slot: bool,
    fields: tuple[Any, ...],
) -> None:
    op, device, shape = _POSTPROCESS, base_addrs.device, CopyShape(*fields)
    rows = _require_mapping(op, num_reqs, device, idx_mapping)
    arguments.require_count(op, "block_size", block_size, 1)
    arguments.require_tensor(op, "tables", pointers, (torch.int64,), device)
    read = {
        "num_accepted_tokens": num_accepted_tokens, "state_idx": state_idx,
        "num_computed_tokens": num_computed_tokens,
        **_scheduled(num_scheduled_tokens, num_draft_tokens),
    }  # fmt: skip
    _require_rows(op, rows, device, **read, num_accepted_tokens_out=num_accepted_tokens_out)
    # Programs decide by what they read while another one writes.
    written = (("num_accepted_tokens_out", num_accepted_tokens_out),)
    refuse_overlaps(op, written, (*read.items(), ("idx_mapping", idx_mapping)))
    require_launchable(op, base_addrs)
    with device_guard(base_addrs):
        launch(
            postprocess_mamba_fused_kernel, (shape.tiles * base_addrs.shape[0], num_reqs),
            num_accepted_tokens, state_idx, num_scheduled_tokens, num_computed_tokens,
            num_draft_tokens, pointers, stride_req, base_addrs, block_strides, elem_sizes,
            inner_sizes, conv_widths, group_indices, dim_row_counts, dim_row_strides,
            num_accepted_tokens_out, idx_mapping, num_reqs, block_size=block_size,
            CONV_STATE_DIM_FIRST=conv_dim_first, HAS_IDX_MAPPING=idx_mapping is not None,
            PRECOMPUTED_NEW_COMPUTED=num_scheduled_tokens is None, BLOCK_TABLE_BY_SLOT=by_slot,
            **copy_options(shape),
        )  # fmt: skip


def _scheduled(
    scheduled: torch.Tensor | None, draft: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    if scheduled is not None and draft is not None:
        return {"num_scheduled_tokens": scheduled, "num_draft_tokens": draft}
    if scheduled is None and draft is None:
        return {}
    missing = "num_scheduled_tokens" if scheduled is None else "num_draft_tokens"
    raise arguments.refusal(_POSTPROCESS, missing, "is None", "Pass both, or neither.")
