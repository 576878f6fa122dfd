"""The device side's host: what the fused copies need, bound once, and their launches.

The fused kernels decide and copy on the device, so a step with speculative decoding does not
wait for accepted counts. Needs no GPU to be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from launchkit.errors import UsageError
from launchkit.kernels import arguments
from launchkit.kernels.state_copy import launches, layout
from launchkit.kernels.state_copy.copy_specs import is_conv_state_dim_first
from launchkit.kernels.state_copy.groups import (
    copy_funcs_for,
    count_layers,
    get_mamba_groups,
    state_tensors,
    walk_states,
)
from launchkit.kernels.state_copy.in_flight import CopiesInFlight
from launchkit.kernels.state_copy.layout import (
    BlockTables,
    StateTable,
)
from launchkit.kernels.state_copy.protocols import (
    BoundInputBatch,
    CopyFuncs,
    ForwardContext,
    KVCacheConfig,
    MakeBuffer,
    StagingBuffer,
)
from launchkit.kernels.state_copy.shapes import CopyShape
from launchkit.kernels.state_indices import AlignedStateIndices

_OP = "MambaSpecDecodeGPUContext"


@dataclass
class MambaSpecDecodeGPUContext:
    """Staging buffers, what is known of states and block tables, and launches that use them.

    Tensors keep their addresses once bound, so that a CUDA graph may hold them. Per-request
    tensors are int32.
    """

    num_accepted_tokens_out: torch.Tensor
    """By batch row: accepted tokens after ``run_fused_postprocess``."""
    num_accepted_tokens_snapshot: torch.Tensor
    """By request slot: what ``run_fused_postprocess_align`` decides by."""
    mamba_state_idx_buf: StagingBuffer
    num_scheduled_tokens_buf: StagingBuffer
    num_computed_tokens_buf: StagingBuffer
    num_draft_tokens_buf: StagingBuffer
    precopy_src_col_buf: StagingBuffer
    precopy_token_bias_buf: StagingBuffer
    block_size: int
    num_states: int
    """State tensors of all layers, in the order group, layer, state."""
    mamba_group_ids: list[int]
    num_state_slots: int
    """Columns that a request's step may use: the running one and the speculative ones."""
    block_tables_by_slot: bool = True
    """With an ``idx_mapping``: whether a request's row in the block tables is its slot, as in
    vLLM 0.33, or its row in the batch."""
    shape: CopyShape | None = None
    """How copies are cut into programs; None takes the choice for the GPU."""
    states: StateTable | None = field(default=None, repr=False)
    """Addresses, strides and sizes of the states; None before they are bound."""
    tables: BlockTables | None = field(default=None, repr=False)
    """Addresses of the Mamba groups' block tables; None before they are bound."""
    indices: AlignedStateIndices | None = field(default=None, repr=False)
    """The buffer of ``compute_aligned_state_indices``; None before its first call."""
    precopied: CopiesInFlight = field(default_factory=CopiesInFlight, repr=False)
    """Whether the device still has to read what a pre-copy was given."""
    staged: CopiesInFlight = field(default_factory=CopiesInFlight, repr=False)
    """Whether the device still has to read what was staged for after the step."""
    is_initialized: bool = False
    _out_views: dict[int, torch.Tensor] = field(default_factory=dict, repr=False)

    @classmethod
    def create(
        cls,
        max_num_reqs: int,
        kv_cache_config: KVCacheConfig,
        copy_funcs: CopyFuncs,
        device: torch.device | str,
        make_buffer: MakeBuffer,
        *,
        block_tables_by_slot: bool = True,
        shape: CopyShape | None = None,
    ) -> MambaSpecDecodeGPUContext:
        """Make the context for batches of up to ``max_num_reqs``; nothing is bound yet.

        make_buffer: called as ``make_buffer(n, dtype=torch.int32)``.

        Raises UsageError if the configuration has no Mamba groups or different ones.
        """
        group_ids, spec = get_mamba_groups(kv_cache_config)
        per_layer = len(copy_funcs_for(spec, copy_funcs))

        def zeros() -> torch.Tensor:
            return torch.zeros(max_num_reqs, dtype=torch.int32, device=device)

        def staging() -> StagingBuffer:
            return make_buffer(max_num_reqs, dtype=torch.int32)

        return cls(
            num_accepted_tokens_out=zeros(),
            num_accepted_tokens_snapshot=zeros(),
            mamba_state_idx_buf=staging(),
            num_scheduled_tokens_buf=staging(),
            num_computed_tokens_buf=staging(),
            num_draft_tokens_buf=staging(),
            precopy_src_col_buf=staging(),
            precopy_token_bias_buf=staging(),
            block_size=spec.block_size,
            num_states=count_layers(kv_cache_config, group_ids) * per_layer,
            mamba_group_ids=group_ids,
            num_state_slots=1 + spec.num_speculative_blocks,
            block_tables_by_slot=block_tables_by_slot,
            shape=shape,
        )

    @property
    def num_groups(self) -> int:
        """Mamba groups."""
        return len(self.mamba_group_ids)

    @property
    def max_num_reqs(self) -> int:
        """Requests that a batch may have."""
        return self.num_accepted_tokens_out.shape[0]

    def bind(
        self,
        kv_cache_config: KVCacheConfig,
        forward_context: ForwardContext,
        mamba_state_copy_funcs: CopyFuncs,
        input_batch: BoundInputBatch,
    ) -> None:
        """As ``initialize_from_forward_context``, with the block tables of an input batch."""
        if self.is_initialized:
            return
        # A tensor without elements has no address.
        rows = max(1, len(input_batch.req_ids))
        tables = [
            input_batch.block_table[each].get_device_tensor(rows) for each in self.mamba_group_ids
        ]
        self.initialize_from_forward_context(
            kv_cache_config, forward_context, mamba_state_copy_funcs, tables
        )

    def initialize_from_forward_context(
        self,
        kv_cache_config: KVCacheConfig,
        forward_context: ForwardContext,
        mamba_state_copy_funcs: CopyFuncs,
        block_tables: Sequence[torch.Tensor],
    ) -> None:
        """Read addresses, strides and sizes of all states and tables, once: later calls return.

        block_tables: (rows, columns) int32 per Mamba group, in the order of ``mamba_group_ids``,
            at addresses that stay. A first part of the rows will do: the kernels read further.

        To bind other tensors, set ``is_initialized`` to False first.

        Raises UsageError, with nothing bound, for copy functions that are not known, a conv state
        that is not 3-D, blocks with gaps inside, tables that are not int32 or do not share
        ``stride(0)``, and other numbers of states or tables than the context was made for.
        """
        if self.is_initialized:
            return
        _, spec = get_mamba_groups(kv_cache_config)
        funcs = copy_funcs_for(spec, mamba_state_copy_funcs)
        walk = list(walk_states(_OP, kv_cache_config, self.mamba_group_ids, funcs, forward_context))
        if len(walk) != self.num_states:
            raise _refusal(f"has room for {self.num_states} states, not {len(walk)}",
                           "Create it with the configuration that it is bound with")  # fmt: skip
        if len(block_tables) != self.num_groups:
            raise _refusal(f"has {self.num_groups} Mamba groups, not {len(block_tables)}",
                           "Pass one block table for each")  # fmt: skip
        if any(table.numel() == 0 for table in block_tables):
            raise _refusal("was given a block table without elements, which has no address",
                           "Pass at least one row of the persistent table")  # fmt: skip
        tables = layout.block_tables(block_tables)
        self.states = layout.state_table(state_tensors(_OP, walk), is_conv_state_dim_first())
        self.tables, self.indices, self.is_initialized = tables, None, True

    def require_room(self, num_reqs: int) -> None:
        """Raise UsageError for more requests than the context was made for, or a negative number."""
        if not 0 <= num_reqs <= self.max_num_reqs:
            raise _refusal(f"has room for {self.max_num_reqs} requests, not {num_reqs}",
                           "Create it for as many as a batch can have")  # fmt: skip

    def _bound(self, num_reqs: int) -> tuple[StateTable, BlockTables] | None:
        """Return what is bound, or None if there is nothing to launch.

        Raises UsageError for more requests than the context has room for.
        """
        self.require_room(num_reqs)
        if num_reqs == 0 or not self.is_initialized or self.states is None or self.tables is None:
            return None
        return self.states, self.tables

    def run_fused_preprocess(
        self,
        num_reqs: int,
        idx_mapping: torch.Tensor,
        state_idx_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        query_start_loc: torch.Tensor,
        num_accepted_tokens_gpu: torch.Tensor,
        src_col_gpu: torch.Tensor,
        src_off_gpu: torch.Tensor,
    ) -> None:
        """Advance the state columns by slot, and say where each state comes from.

        All int32. idx_mapping: (num_reqs,) slots, -1 to skip; query_start_loc: (num_reqs + 1,);
        the rest (slots,). ``src_col_gpu`` and ``src_off_gpu`` are written for
        ``run_fused_precopy``; ``state_idx_gpu`` and ``num_accepted_tokens_gpu`` updated. A new
        slot's ``state_idx`` has to be ``state_column(num_computed_tokens, block_size)``.

        Nothing happens without requests or before the context is bound.
        """
        if self._bound(num_reqs) is not None:
            launches.preprocess_align(
                idx_mapping, state_idx_gpu, num_computed_tokens_gpu, query_start_loc,
                num_accepted_tokens_gpu, src_col_gpu, src_off_gpu, num_reqs, self.block_size,
            )  # fmt: skip

    def run_fused_precopy(
        self,
        num_reqs: int,
        state_idx_gpu: torch.Tensor,
        src_col_gpu: torch.Tensor,
        token_bias_gpu: torch.Tensor,
        idx_mapping: torch.Tensor | None,
    ) -> None:
        """Move states to the columns of this step; call it before the step.

        All int32: columns to copy to and from (-1: a fresh request) and accepted tokens less
        one, by slot with ``idx_mapping``, else by batch row.

        Nothing happens without requests or before the context is bound.
        """
        bound = self._bound(num_reqs)
        if bound is None:
            return
        states, tables = bound
        launches.precopy_align(
            state_idx_gpu, src_col_gpu, token_bias_gpu, tables, states, num_reqs, idx_mapping,
            self.block_tables_by_slot, self.shape,
        )  # fmt: skip

    def run_fused_postprocess(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        mamba_state_idx_gpu: torch.Tensor,
        num_scheduled_tokens_gpu: torch.Tensor,
        num_computed_tokens_gpu: torch.Tensor,
        num_draft_tokens_gpu: torch.Tensor,
    ) -> None:
        """Save states at block boundaries that accepted tokens crossed; all int32 by batch row.

        The first ``num_reqs`` of ``num_accepted_tokens_out`` become the accepted counts, or 1
        where the boundary is in the running column.

        Nothing happens without requests or before the context is bound.
        """
        bound = self._bound(num_reqs)
        if bound is None:
            return
        states, tables = bound
        _require_counts(num_accepted_tokens_gpu, num_reqs, self.num_accepted_tokens_out.device)
        self.accepted_out(num_reqs).copy_(num_accepted_tokens_gpu[:num_reqs])
        launches.postprocess_align(
            num_accepted_tokens_gpu, mamba_state_idx_gpu, num_scheduled_tokens_gpu,
            num_computed_tokens_gpu, num_draft_tokens_gpu, tables, states,
            self.num_accepted_tokens_out, num_reqs, self.block_size, shape=self.shape,
        )  # fmt: skip

    def run_fused_postprocess_align(
        self,
        num_reqs: int,
        num_accepted_tokens_gpu: torch.Tensor,
        state_idx_gpu: torch.Tensor,
        new_num_computed_tokens_gpu: torch.Tensor,
        idx_mapping: torch.Tensor,
    ) -> None:
        """As ``run_fused_postprocess`` by slot, with computed tokens after the step.

        All int32. ``num_accepted_tokens_gpu`` itself becomes 1 where the boundary is in the
        running column; the kernel decides by a copy of it, since its programs run in no order.

        Nothing happens without requests or before the context is bound.
        """
        bound = self._bound(num_reqs)
        if bound is None:
            return
        states, tables = bound
        _require_counts(num_accepted_tokens_gpu, 0, self.num_accepted_tokens_out.device)
        slots = num_accepted_tokens_gpu.shape[0]
        if slots > self.max_num_reqs:
            raise _refusal(f"has room for {self.max_num_reqs} slots, not {slots}",
                           "Create it for as many as there are")  # fmt: skip
        self.num_accepted_tokens_snapshot[:slots].copy_(num_accepted_tokens_gpu)
        launches.postprocess_align(
            self.num_accepted_tokens_snapshot, state_idx_gpu, None, new_num_computed_tokens_gpu,
            None, tables, states, num_accepted_tokens_gpu, num_reqs, self.block_size, idx_mapping,
            self.block_tables_by_slot, self.shape,
        )  # fmt: skip

    def compute_aligned_state_indices(
        self,
        seq_lens: torch.Tensor,
        num_reqs: int,
        idx_mapping: torch.Tensor | None = None,
        num_rows: int | None = None,
    ) -> torch.Tensor:
        """Return the state blocks of each request, (groups, rows, num_state_slots) int32.

        As ``launchkit.kernels.state_indices.AlignedStateIndices``, over the bound block tables.

        Raises UsageError before the context is bound, and for what that refuses.
        """
        if self.indices is None:
            if self.tables is None:
                raise _refusal("is not bound", "Call initialize_from_forward_context first")
            tables = [_all_rows(table, self.max_num_reqs) for table in self.tables.tables]
            self.indices = AlignedStateIndices(
                tables, self.block_size, self.num_state_slots, self.max_num_reqs
            )
        return self.indices.compute_aligned_state_indices(seq_lens, num_reqs, idx_mapping, num_rows)

    def accepted_out(self, num_reqs: int) -> torch.Tensor:
        """Return the first rows of ``num_accepted_tokens_out``, the same view for the same number."""
        view = self._out_views.get(num_reqs)
        if view is None:
            view = self._out_views[num_reqs] = self.num_accepted_tokens_out[:num_reqs]
        return view


def _refusal(problem: str, advice: str) -> UsageError:
    return UsageError(f"{_OP}: the context {problem}. {advice}.", op=_OP)


def _require_counts(accepted: torch.Tensor, least: int, device: torch.device) -> None:
    """Raise UsageError unless accepted counts are ``least`` or more, before any is copied."""
    name = "num_accepted_tokens_gpu"
    arguments.require_tensor(_OP, name, accepted, arguments.INDEX_DTYPES, device)
    if accepted.dim() != 1 or accepted.shape[0] < least:
        raise arguments.wrong_shape(_OP, name, accepted, f"(n,) with n >= {least}")


def _all_rows(table: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a block table with ``rows`` rows, if the tensor that it is the first part of has them."""
    columns, stride = table.shape[1], table.stride(0)
    end = table.storage_offset() + (rows - 1) * stride + columns
    if table.shape[0] >= rows or end * table.element_size() > table.untyped_storage().nbytes():
        return table
    return table.as_strided((rows, columns), (stride, 1))
