"""The annotated ops of one Mamba layer."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import pytest
import torch
from ssd_cases import make_problem

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels.initial_states import gather_initial_states
from launchkit.kernels.mamba_layer import (
    FINAL_STATE_WRITEBACK,
    SSD_SCAN,
    STATE_COPY,
    STATE_INDICES,
    MambaLayer,
    MambaStep,
)
from launchkit.kernels.ssd.checkpoints import write_checkpointed_states
from launchkit.kernels.ssd.final_states import final_state_writeback
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen
from launchkit.kernels.state_copy import batched, launches
from launchkit.kernels.state_copy.layout import StateTensor, block_tables, state_table
from launchkit.kernels.state_indices import AlignedStateIndices, mamba_get_block_table_tensor


def run(layer, problem, fused):
    """Run one layer's prefill: final states written by the scan, or after it."""
    p, m = problem, problem.metadata
    sizes = (p.x.shape[1], p.x.shape[2], p.B.shape[2])
    cache, slots = torch.zeros(6, *sizes), torch.arange(len(p.lengths), dtype=torch.int32)
    final = {"final_states_out": cache, "final_state_indices": slots} if fused else {}
    states = layer.ssd_scan(
        p.x, p.dt, p.A, p.B, p.C, p.chunk_size, m.cu_seqlens, m.cu_chunk_seqlens,
        m.last_chunk_indices, m.seq_idx, torch.empty_like(p.x),
        return_intermediate_states=not fused, **final,
    )  # fmt: skip
    if not fused:
        layer.final_state_writeback(states, m.last_chunk_indices, cache, slots)


def test_fused_final_states_leave_no_launch_outside_the_scan(host):
    problem = make_problem((20, 12))
    with launchkit.profile_launches() as profile:
        for number in (3, 4):
            run(MambaLayer(number), problem, fused=True)
    counts = {(row.path, row.layer): row.launches for row in profile.ranges}
    assert counts == {((SSD_SCAN,), 3): 5, ((SSD_SCAN,), 4): 5}


def test_a_write_back_of_its_own_is_a_range_of_its_own(host):
    with launchkit.profile_launches() as profile:
        run(MambaLayer(7), make_problem((20, 12)), fused=False)
    counts = {(row.path, row.layer): row.launches for row in profile.ranges}
    assert counts == {((SSD_SCAN,), 7): 5, ((FINAL_STATE_WRITEBACK,), 7): 1}


def test_the_annotated_ops_have_the_signatures_of_the_ops():
    layer, step = MambaLayer(0), MambaStep()
    pairs = [
        (layer.ssd_scan, mamba_chunk_scan_combined_varlen),
        (layer.final_state_writeback, final_state_writeback),
        (layer.gather_initial_states, gather_initial_states),
        (layer.write_checkpointed_states, write_checkpointed_states),
        (step.state_indices, AlignedStateIndices.compute_aligned_state_indices),
        (step.block_table_tensor, mamba_get_block_table_tensor),
        (step.preprocess_align, launches.preprocess_align),
        (step.precopy_align, launches.precopy_align),
        (step.postprocess_align, launches.postprocess_align),
        (step.copy_blocks, batched.do_mamba_copy_block),
    ]
    for annotated, op in pairs:
        assert inspect.signature(annotated) == inspect.signature(op)


def test_indices_and_copies_of_a_step_are_ranges_without_a_layer(host):
    def zeros():
        return torch.zeros(2, dtype=torch.int32)

    step, table = MambaStep(), torch.zeros(2, 4, dtype=torch.int32)
    context = AlignedStateIndices([table], 16)
    states = state_table([StateTensor(torch.zeros(4, 8, 16), is_conv=False)])
    with launchkit.profile_launches() as profile:
        step.state_indices(context, zeros(), 2)
        step.block_table_tensor(table, zeros(), SimpleNamespace(
            block_size=16, num_speculative_blocks=0), "align")  # fmt: skip
        step.precopy_align(zeros(), zeros(), zeros(), block_tables([table]), states, 2)
    counts = {(row.path, row.layer): row.launches for row in profile.ranges}
    assert counts == {((STATE_INDICES,), None): 2, ((STATE_COPY,), None): 1}


@pytest.mark.parametrize("layer", ["7", None, 2**63])
def test_a_layer_that_is_no_number_is_refused(layer):
    with pytest.raises(UsageError, match="layer"):
        MambaLayer(layer)
