"""Launches of the aligned step's kernels, with the shape of copy that the GPU is given.

Arguments are checked for what the host can know; values of device tensors are not looked at,
which would wait for the GPU. None of these launches anything for no requests.
"""

from __future__ import annotations

import torch

from launchkit import launch
from launchkit.kernels import arguments
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


def _require_rows(
    op: str, count: int, device: torch.device, **tensors: torch.Tensor | None
) -> None:
    """Raise UsageError unless each tensor is dense int32 or int64 of at least ``count`` rows."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        arguments.require_tensor(op, name, tensor, arguments.INDEX_DTYPES, device)
        if tensor.dim() != 1 or tensor.shape[0] < count or not tensor.is_contiguous():
            raise arguments.wrong_shape(op, name, tensor, f"(n,) with n >= {count}, dense")


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

    Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    device = idx_mapping.device
    _require_rows(_PREPROCESS, num_reqs, device, idx_mapping=idx_mapping)
    _require_rows(_PREPROCESS, num_reqs + 1, device, query_start_loc=query_start_loc)
    _require_rows(
        _PREPROCESS, 0, device, state_idx=state_idx, num_computed_tokens=num_computed_tokens,
        num_accepted_tokens=num_accepted_tokens, src_col=src_col, src_off=src_off,
    )  # fmt: skip
    require_launchable(_PREPROCESS, idx_mapping)
    if num_reqs == 0:
        return
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
    shape: how the copy is cut; by default what suits the GPU.

    Raises UsageError for shapes, dtypes or devices that do not fit.
    """
    device = states.base_addrs.device
    rows = 0 if idx_mapping is not None else num_reqs
    _require_rows(
        _PRECOPY, rows, device, state_idx=state_idx, src_col=src_col, token_bias=token_bias
    )
    _require_rows(_PRECOPY, num_reqs, device, idx_mapping=idx_mapping)
    require_launchable(_PRECOPY, states.base_addrs)
    if num_reqs == 0:
        return
    shape = copy_shape() if shape is None else shape
    with device_guard(states.base_addrs):
        launch(
            precopy_mamba_align_fused_kernel, (shape.tiles * len(states), num_reqs),
            state_idx, src_col, token_bias, tables.pointers, tables.stride_req,
            states.base_addrs, states.block_strides, states.elem_sizes, states.inner_sizes,
            states.conv_widths, states.group_indices, states.dim_row_counts,
            states.dim_row_strides, idx_mapping, num_reqs,
            CONV_STATE_DIM_FIRST=states.conv_dim_first, HAS_IDX_MAPPING=idx_mapping is not None,
            BLOCK_TABLE_BY_SLOT=table_by_slot, **copy_options(shape),
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
    and draft tokens, and where the snapshot is the tensor that is written.
    """
    device = states.base_addrs.device
    rows = 0 if idx_mapping is not None else num_reqs
    _require_rows(
        _POSTPROCESS, rows, device, num_accepted_tokens=num_accepted_tokens, state_idx=state_idx,
        num_scheduled_tokens=num_scheduled_tokens, num_computed_tokens=num_computed_tokens,
        num_draft_tokens=num_draft_tokens, num_accepted_tokens_out=num_accepted_tokens_out,
    )  # fmt: skip
    _require_rows(_POSTPROCESS, num_reqs, device, idx_mapping=idx_mapping)
    _check_counts(
        num_accepted_tokens, num_accepted_tokens_out, num_scheduled_tokens, num_draft_tokens
    )
    require_launchable(_POSTPROCESS, states.base_addrs)
    if num_reqs == 0:
        return
    shape = copy_shape() if shape is None else shape
    with device_guard(states.base_addrs):
        launch(
            postprocess_mamba_fused_kernel, (shape.tiles * len(states), num_reqs),
            num_accepted_tokens, state_idx, num_scheduled_tokens, num_computed_tokens,
            num_draft_tokens, tables.pointers, tables.stride_req, states.base_addrs,
            states.block_strides, states.elem_sizes, states.inner_sizes, states.conv_widths,
            states.group_indices, states.dim_row_counts, states.dim_row_strides,
            num_accepted_tokens_out, idx_mapping, num_reqs, block_size=block_size,
            CONV_STATE_DIM_FIRST=states.conv_dim_first,
            HAS_IDX_MAPPING=idx_mapping is not None,
            PRECOMPUTED_NEW_COMPUTED=num_scheduled_tokens is None,
            BLOCK_TABLE_BY_SLOT=table_by_slot, **copy_options(shape),
        )  # fmt: skip


def _check_counts(
    snapshot: torch.Tensor,
    out: torch.Tensor,
    scheduled: torch.Tensor | None,
    draft: torch.Tensor | None,
) -> None:
    if (scheduled is None) != (draft is None):
        missing = "num_scheduled_tokens" if scheduled is None else "num_draft_tokens"
        raise arguments.refusal(_POSTPROCESS, missing, "is None", "Pass both, or neither.")
    if snapshot.data_ptr() == out.data_ptr():
        problem = "is the tensor that num_accepted_tokens_out names"
        raise arguments.refusal(_POSTPROCESS, "num_accepted_tokens", problem, "Pass a copy of it.")
