"""What aligned state indices promise, in the interpreter and on a GPU alike.

Test modules import these tests and define the fixture ``device``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels.state_indices import AlignedStateIndices, mamba_get_block_table_tensor

BLOCK, COLUMNS, POISON = 16, 7, -77
LAST = COLUMNS * BLOCK
EDGES = (0, 1, BLOCK, BLOCK + 1, LAST, LAST - BLOCK, 2 * BLOCK - 1, -1, -BLOCK - 5)


@dataclass
class Spec:
    """A cache group's description, as an engine has one."""

    block_size: int
    num_speculative_blocks: int = 0


def make_tables(groups, rows, device, seed=0):
    """Return tables of random blocks, none 0, which are columns of wider rows."""
    rng = torch.Generator().manual_seed(seed)
    wide = torch.randint(1, 2**31 - 1, (groups, rows, COLUMNS + 5), generator=rng)
    return [table[:, 2 : 2 + COLUMNS] for table in wide.int().to(device)]


def make_lengths(rows, seed=1):
    """Return tokens of each request: the edges first, then random."""
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-2, LAST + 1, (rows,), generator=rng).tolist()
    return [*EDGES, *drawn][:rows]


def expected(tables, lengths, slots, places=None, rows=None):
    """Return the same by walking the tables, in plain Python; ``rows`` with the padding."""
    places = range(len(lengths)) if places is None else places
    count = len(lengths) if rows is None else rows
    found = [[[0] * slots for _ in range(count)] for _ in tables]
    for found_rows, table in zip(found, tables, strict=True):
        blocks = table.tolist()
        for row, (length, place) in enumerate(zip(lengths, places, strict=False)):
            for slot in range(slots):
                column = (length - 1) // BLOCK + slot
                if length > 0 and place >= 0 and column < COLUMNS:
                    found_rows[row][slot] = blocks[place][column]
    return found


def looked_up(device, groups=3, rows=40, requests=35, slots=3, seq_lens=None, **options):
    """Return (context, tables, result) of one call, on a buffer that was poisoned before."""
    tables = make_tables(groups, rows, device)
    context = AlignedStateIndices(tables, BLOCK, slots)
    context.state_indices.fill_(POISON)
    if seq_lens is None:
        seq_lens = torch.tensor(make_lengths(requests), dtype=torch.int32, device=device)
    result = context.compute_aligned_state_indices(seq_lens, requests, **options)
    return context, tables, result


def assert_untouched_behind(context, rows):
    assert (context.state_indices[:, rows:] == POISON).all()


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("groups", [1, 3, 4])
def test_every_request_gets_its_blocks_and_rows_behind_stay(device, groups, slots):
    context, tables, result = looked_up(device, groups, slots=slots)
    assert result.tolist() == expected(tables, make_lengths(35), slots)
    assert_untouched_behind(context, 35)


@pytest.mark.parametrize("requests", [1, 31, 32, 33, 40])
def test_every_number_of_requests_is_served(device, requests):
    context, tables, result = looked_up(device, requests=requests)
    assert result.tolist() == expected(tables, make_lengths(requests), 3)
    assert_untouched_behind(context, requests)


@pytest.mark.parametrize("length", [0, -1, -BLOCK, -(2**31)])
def test_a_request_without_tokens_has_the_null_block(device, length):
    seq_lens = torch.full((35,), length, dtype=torch.int32, device=device)
    _, _, result = looked_up(device, seq_lens=seq_lens)
    assert not result.any()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_lengths_may_be_a_column_and_longer_than_the_batch(device, dtype):
    wide = torch.full((50, 3), 5, dtype=dtype, device=device)
    wide[:35, 1] = torch.tensor(make_lengths(35), device=device)
    _, tables, result = looked_up(device, seq_lens=wide[:, 1])
    assert result.tolist() == expected(tables, make_lengths(35), 3)


def test_the_lowest_and_the_highest_block_come_whole(device):
    tables = make_tables(1, 4, device)
    tables[0][:2, 0] = torch.tensor([2**31 - 1, -(2**31)], device=device)
    seq_lens = torch.ones(4, dtype=torch.int32, device=device)
    result = AlignedStateIndices(tables, BLOCK).compute_aligned_state_indices(seq_lens, 2)
    assert result.tolist() == [[[2**31 - 1], [-(2**31)]]]


def test_no_request_gives_no_row_and_writes_nothing(device):
    context, _, result = looked_up(device, requests=0)
    assert result.shape == (3, 0, 3)
    assert_untouched_behind(context, 0)


@pytest.mark.parametrize("index_dtype", [torch.int32, torch.int64], ids=str)
def test_requests_are_found_by_their_place_in_the_tables(device, index_dtype):
    rng = torch.Generator().manual_seed(5)
    places = torch.randperm(40, generator=rng)[:35]
    places[[3, 11]] = torch.tensor([-1, -9])
    # A column, and with entries behind the batch that lie beyond every table.
    column = torch.full((60, 2), 2**30, dtype=index_dtype, device=device)
    column[:35, 1] = places.to(device)
    context, tables, result = looked_up(device, idx_mapping=column[:, 1], num_rows=38)
    lengths = make_lengths(35)
    assert result.tolist() == expected(tables, lengths, 3, places.tolist(), rows=38)
    assert_untouched_behind(context, 38)


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("requests", [0, 1, 31, 35])
def test_padded_rows_hold_the_null_block_and_read_nothing(device, requests, mapped):
    # Neither tensor has an entry for the padded rows.
    options = {}
    if mapped:
        options["idx_mapping"] = torch.arange(requests, dtype=torch.int32, device=device)
    context, tables, result = looked_up(device, requests=requests, num_rows=39, **options)
    assert result.tolist() == expected(tables, make_lengths(requests), 3, rows=39)
    assert_untouched_behind(context, 39)


def test_results_are_views_of_one_buffer_and_the_same_object_again(device):
    context, _, result = looked_up(device)
    seq_lens = torch.ones(40, dtype=torch.int32, device=device)
    assert context.compute_aligned_state_indices(seq_lens, 35) is result
    other = context.compute_aligned_state_indices(seq_lens, 40)
    assert other.data_ptr() == result.data_ptr() == context.state_indices.data_ptr()


def test_tables_are_read_as_they_are_at_the_call(device):
    context, tables, _ = looked_up(device, requests=35)
    for table in tables:
        table += 1 - 2 * (table == 2**31 - 1).int()
    seq_lens = torch.tensor(make_lengths(35), dtype=torch.int32, device=device)
    result = context.compute_aligned_state_indices(seq_lens, 35)
    assert result.tolist() == expected(tables, make_lengths(35), 3)


@pytest.mark.parametrize("slots", [1, 3])
def test_the_path_of_one_launch_a_group_gives_the_same(device, slots):
    _, tables, result = looked_up(device, slots=slots)
    seq_lens = torch.tensor(make_lengths(35), dtype=torch.int32, device=device)
    spec = Spec(BLOCK, slots - 1)
    for table, rows in zip(tables, result, strict=True):
        alone = mamba_get_block_table_tensor(table, seq_lens, spec, "align")
        assert alone.dtype == torch.int32
        assert torch.equal(alone, rows)


def test_the_path_of_one_launch_a_group_takes_columns_and_no_requests(device):
    (table,) = make_tables(1, 40, device)
    lengths = make_lengths(40)
    wide = torch.tensor(lengths, device=device)[:, None].expand(40, 2).contiguous()
    found = mamba_get_block_table_tensor(table, wide[:, 1], Spec(BLOCK, 1), "align")
    assert [found.tolist()] == expected([table], lengths, 2)
    assert mamba_get_block_table_tensor(table, wide[:0, 1], Spec(BLOCK), "align").shape == (0, 1)


@pytest.mark.parametrize("mode", ["none", "all"])
def test_modes_that_look_nothing_up_return_the_table_itself(device, mode):
    (table,) = make_tables(1, 4, device)
    precomputed = torch.zeros(4, 1, dtype=torch.int32, device=device)
    seq_lens = torch.ones(4, dtype=torch.int32, device=device)
    for given in (None, precomputed):
        found = mamba_get_block_table_tensor(table, seq_lens, Spec(BLOCK), mode, given)
        assert found is table


def test_rows_that_are_there_already_are_taken(device):
    (table,) = make_tables(1, 4, device)
    precomputed = torch.zeros(4, 1, dtype=torch.int32, device=device)
    seq_lens = torch.ones(4, dtype=torch.int32, device=device)
    found = mamba_get_block_table_tensor(table, seq_lens, Spec(BLOCK), "align", precomputed)
    assert found is precomputed


def test_an_unknown_mode_is_refused(device):
    (table,) = make_tables(1, 4, device)
    seq_lens = torch.ones(4, dtype=torch.int32, device=device)
    with pytest.raises(UsageError, match="mamba_cache_mode is 'aligned'"):
        mamba_get_block_table_tensor(table, seq_lens, Spec(BLOCK), "aligned")
