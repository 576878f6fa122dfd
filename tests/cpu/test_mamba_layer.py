"""The annotated ops of one Mamba layer."""

from __future__ import annotations

import inspect

import pytest
import torch
from ssd_cases import make_problem

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels.mamba_layer import FINAL_STATE_WRITEBACK, SSD_SCAN, MambaLayer
from launchkit.kernels.ssd.final_states import final_state_writeback
from launchkit.kernels.ssd.scan import mamba_chunk_scan_combined_varlen


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
    layer = MambaLayer(0)
    assert inspect.signature(layer.ssd_scan) == inspect.signature(mamba_chunk_scan_combined_varlen)
    assert inspect.signature(layer.final_state_writeback) == inspect.signature(
        final_state_writeback
    )


def test_a_layer_that_is_no_number_is_refused():
    with pytest.raises(UsageError, match="layer"):
        MambaLayer("7")
