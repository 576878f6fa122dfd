"""What ``launchkit bench serve`` compares: how states are looked up, moved, scanned and updated.

Both variants compute the same numbers with the same configs and leave the same bits. The one launches
through ``kernel[grid]`` behind an engine's ordinary wrappers, with a lookup a group and states that
torch moves; the other through launchkit's ops, which look up once and move states in the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from launchkit import launch
from launchkit.benchmarks.baseline.scan import scan_before
from launchkit.benchmarks.baseline.stored_states import (
    final_state_writeback_separate,
    gather_separate,
)
from launchkit.benchmarks.indices import group_by_triton
from launchkit.benchmarks.pinned_configs import ScanKernels
from launchkit.benchmarks.serve.batch import Batch
from launchkit.benchmarks.serve.decode import decode_launch, decode_update_kernel
from launchkit.benchmarks.serve.model import LayerOps, ScanTensors
from launchkit.benchmarks.serve.states import GROUPS, States
from launchkit.kernels.mamba_layer import MambaLayer, MambaStep
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.state_copy.align import (
    precopy_mamba_align_fused_kernel,
    preprocess_mamba_align_fused_kernel,
)
from launchkit.kernels.state_copy.shapes import copy_options, copy_shape
from launchkit.kernels.state_indices import AlignedStateIndices

VARIANTS = ("baseline", "launchkit")

_REQUESTS_PER_PROGRAM = 128


@dataclass
class Baseline(LayerOps):
    """As engines do it: ``kernel[grid]`` for each launch, states moved with torch."""

    states: States
    kernels: ScanKernels
    """The scan's, under Triton's own Autotuner."""
    _found: list[torch.Tensor] = field(default_factory=list)

    def begin(self, batch: Batch) -> None:
        """Look up one group after another; where a state moves, decide and copy."""
        states, steps, rows = self.states, self.states.steps, batch.rows
        tables = [table[:rows] for table in steps.tables]
        found = [group_by_triton(table, batch.seq_lens, steps.block_size) for table in tables]
        # Without a kernel that ran, blocks that are there.
        self._found = [each[:, 0] for each in (found if states.executes else tables)]
        if batch.moves:
            self._copy(batch)

    def _copy(self, batch: Batch) -> None:
        states, steps, rows = self.states, self.states.steps, batch.rows
        preprocess: Any = preprocess_mamba_align_fused_kernel
        preprocess[(-(-rows // _REQUESTS_PER_PROGRAM),)](
            batch.slots, batch.columns, batch.computed, batch.query_start, states.accepted,
            states.src_col, states.src_off, rows, BLOCK_SIZE=_REQUESTS_PER_PROGRAM,
            MAMBA_BLOCK_SIZE=steps.block_size,
        )  # fmt: skip
        described = states.table
        shape = copy_shape(described.largest_bytes)
        precopy: Any = precopy_mamba_align_fused_kernel
        precopy[(shape.tiles * len(described), rows)](
            batch.columns, states.src_col, states.src_off, *described.with_tables(states.tables),
            batch.slots, rows,
            CONV_STATE_DIM_FIRST=False, HAS_IDX_MAPPING=True, BLOCK_TABLE_BY_SLOT=False,
            **copy_options(shape),
        )  # fmt: skip

    def decode(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Launch ``kernel[grid]``."""
        slots = self._found[layer % GROUPS][: batch.decodes]
        grid, arguments, options = _update(self.states, layer, slots, tokens)
        update: Any = decode_update_kernel
        update[grid](*arguments, **options)

    def prefill(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Gather states, scan, and write the last ones back."""
        t, w, m = tokens, tokens.weights, batch.metadata
        assert m is not None
        cache, slots = self.states.caches[layer], self._found[layer % GROUPS][batch.decodes :]
        initial = None
        moved = cache
        if not self.states.executes:
            # torch really copies CPU tensors, which is no cost of a launch: one element a row.
            moved = cache[:, :1, :1, :1]
        if batch.has_initial is not None:
            initial = gather_separate(moved, slots, batch.has_initial)
            if not self.states.executes:
                initial = initial.new_empty((len(slots), *cache.shape[1:]))
        states: Any = scan_before(
            self.kernels, t.x, t.dt, w.A, t.B, t.C, m.chunk_size, m.cu_seqlens,
            m.cu_chunk_seqlens, m.last_chunk_indices, m.seq_idx, t.out, D=w.D, dt_bias=w.dt_bias,
            initial_states=initial, dt_softplus=True, return_intermediate_states=True,
            state_dtype=cache.dtype,
        )  # fmt: skip
        if not self.states.executes:
            states = states[:, :1, :1, :1]
        final_state_writeback_separate(states, m.last_chunk_indices, moved, slots)


class Launchkit(LayerOps):
    """``launchkit.kernels``: op plans, states read and written in their cache, one lookup."""

    def __init__(self, states: States) -> None:
        self.states, steps = states, states.steps
        self._layers = [MambaLayer(layer) for layer in range(len(states.caches))]
        self._step = MambaStep()
        self._indices = AlignedStateIndices(steps.tables, steps.block_size)
        self._found: list[torch.Tensor] = []

    def begin(self, batch: Batch) -> None:
        """Look up all groups at once; where a state moves, decide and copy."""
        states, step, rows = self.states, self._step, batch.rows
        found = step.state_indices(self._indices, batch.seq_lens, rows)
        self._found = [found[group, :, 0] for group in range(GROUPS)]
        if not batch.moves:
            return
        step.preprocess_align(
            batch.slots, batch.columns, batch.computed, batch.query_start, states.accepted,
            states.src_col, states.src_off, rows, states.steps.block_size,
        )  # fmt: skip
        step.precopy_align(
            batch.columns, states.src_col, states.src_off, states.tables, states.table, rows,
            batch.slots, table_by_slot=False,
        )  # fmt: skip

    def scans(self) -> dict[str, int]:
        """Return the scans so far: replayed from an op plan, and those that ran as they are."""
        scan: Any = mamba_chunk_scan_combined_varlen
        plans = scan.op_plans
        return {"replayed": plans.replays, "ran_as_is": sum(plans.reasons.values())}

    def decode(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Launch the same kernel."""
        slots = self._found[layer % GROUPS][: batch.decodes]
        grid, arguments, options = _update(self.states, layer, slots, tokens)
        launch(decode_update_kernel, grid, *arguments, **options)

    def prefill(self, layer: int, batch: Batch, tokens: ScanTensors) -> None:
        """Scan in the cache."""
        t, w, m = tokens, tokens.weights, batch.metadata
        assert m is not None
        cache, slots = self.states.caches[layer], self._found[layer % GROUPS][batch.decodes :]
        starts: dict[str, Any] = {}
        if batch.has_initial is not None:
            starts = {
                "initial_state_cache": cache,
                "initial_state_indices": slots,
                "has_initial_state": batch.has_initial,
            }
        self._layers[layer].ssd_scan(
            t.x, t.dt, w.A, t.B, t.C, m.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
            m.last_chunk_indices, m.seq_idx, t.out, D=w.D, dt_bias=w.dt_bias, dt_softplus=True,
            state_dtype=cache.dtype, final_states_out=cache, final_state_indices=slots, **starts,
        )  # fmt: skip


def _update(
    states: States, layer: int, slots: torch.Tensor, tokens: ScanTensors
) -> tuple[tuple[int, int], tuple[Any, ...], dict[str, int]]:
    t, w = tokens, tokens.weights
    return decode_launch(
        states.caches[layer], t.x, t.dt, w.A, t.B, t.C, w.D, w.dt_bias, slots, t.out
    )
