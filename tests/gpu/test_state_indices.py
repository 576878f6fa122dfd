"""Aligned state indices on a GPU: the shared promises, and what only a GPU shows."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from state_indices_promises import *  # noqa: F403  the tests that the interpreter runs too
from state_indices_promises import BLOCK, expected, make_lengths, make_tables

import launchkit
from launchkit.kernels.state_indices import AlignedStateIndices, mamba_get_block_table_tensor


@pytest.fixture
def device():
    return "cuda"


def test_tables_of_a_serving_engine_are_read_right():
    rng = torch.Generator("cuda").manual_seed(0)
    tables = [
        torch.randint(1, 2**31, (256, 1024), generator=rng, device="cuda", dtype=torch.int32)
        for _ in range(4)
    ]
    lengths = torch.randint(1, 32 * 1024, (256,), generator=rng, device="cuda").int()
    context = AlignedStateIndices(tables, 32, 1)
    for requests in (1, 7, 32, 255, 256):
        result = context.compute_aligned_state_indices(lengths, requests)
        columns = ((lengths[:requests].long() - 1) // 32)[:, None]
        for table, rows in zip(tables, result, strict=True):
            assert torch.equal(rows, table[:requests].gather(1, columns))


def test_a_captured_lookup_replays_into_the_same_buffer():
    tables = make_tables(3, 40, "cuda")
    context = AlignedStateIndices(tables, BLOCK, 3)
    seq_lens = torch.ones(35, dtype=torch.int32, device="cuda")
    context.compute_aligned_state_indices(seq_lens, 35, num_rows=40)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = context.compute_aligned_state_indices(seq_lens, 35, num_rows=40)
    for seed in range(3):
        lengths = make_lengths(35, seed)
        seq_lens.copy_(torch.tensor(lengths))
        tables[1].add_(-1)
        graph.replay()
        assert result.tolist() == expected(tables, lengths, 3, rows=40)
    assert result.data_ptr() == context.state_indices.data_ptr()


def test_a_captured_lookup_of_one_group_replays_into_the_same_tensor():
    (table,) = make_tables(1, 40, "cuda")
    seq_lens = torch.ones(35, dtype=torch.int32, device="cuda")
    spec = SimpleNamespace(block_size=BLOCK, num_speculative_blocks=2)
    mamba_get_block_table_tensor(table, seq_lens, spec, "align")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = mamba_get_block_table_tensor(table, seq_lens, spec, "align")
    lengths = make_lengths(35, 0)
    seq_lens.copy_(torch.tensor(lengths))
    graph.replay()
    assert [result.tolist()] == expected([table], lengths, 3)


def test_no_batch_compiles_after_the_first():
    tables = make_tables(3, 40, "cuda")
    context = AlignedStateIndices(tables, BLOCK, 3)
    wide = torch.ones(41, 3, dtype=torch.int32, device="cuda")
    context.compute_aligned_state_indices(wide[:, 0], 2)
    with launchkit.watch_compiles(log=False) as seen:
        for requests in (1, 2, 16, 17, 40):
            for seq_lens in (wide[:, 0], wide[1:, 1], wide.flatten(), wide.flatten()[1:]):
                context.compute_aligned_state_indices(seq_lens, requests)
    assert seen.events == []


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_a_lookup_never_waits_for_the_gpu():
    tables = make_tables(3, 40, "cuda")
    context = AlignedStateIndices(tables, BLOCK, 3)
    seq_lens = torch.ones(40, dtype=torch.int32, device="cuda")
    try:
        torch.cuda.set_sync_debug_mode("error")
        for requests in (40, 40, 35, 35):
            result = context.compute_aligned_state_indices(seq_lens, requests)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert result.tolist() == expected(tables, [1] * 35, 3)
