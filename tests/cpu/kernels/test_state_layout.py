"""How state tensors and block tables are described to the copy kernels, and what is refused."""

from __future__ import annotations

import logging

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels.state_copy import layout
from launchkit.kernels.state_copy.layout import (
    StateTensor,
    block_tables,
    signed_address,
    state_table,
    warn_if_misaligned,
)


def pages(count=3, page=256, dtype=torch.float32):
    """Return a layer's (conv, temporal) in padded pages: (3, 4, 6) in bf16 and (3, 2, 5, 3)."""
    raw = torch.zeros(count * page, dtype=torch.uint8)
    conv = raw.view(torch.bfloat16).as_strided((count, 4, 6), (page // 2, 6, 1))
    width = torch.finfo(dtype).bits // 8
    temporal = raw.view(dtype).as_strided((count, 2, 5, 3), (page // width, 15, 3, 1), 48 // width)
    return conv, temporal


def described(table):
    return {
        name: getattr(table, name).tolist()
        for name in (
            "base_addrs", "block_strides", "elem_sizes", "inner_sizes", "conv_widths",
            "group_indices", "dim_row_counts", "dim_row_strides",
        )
    }  # fmt: skip


def test_padded_pages_are_described_in_bytes_and_elements():
    conv, temporal = pages()
    table = state_table([StateTensor(conv, True), StateTensor(temporal, False, group=2)])
    assert len(table) == 2
    assert described(table) == {
        "base_addrs": [conv.data_ptr(), temporal.data_ptr()],
        "block_strides": [256, 256],
        "elem_sizes": [2, 4],
        "inner_sizes": [6, 30],
        "conv_widths": [4, 0],
        "group_indices": [0, 2],
        "dim_row_counts": [0, 0],
        "dim_row_strides": [0, 0],
    }
    assert table.base_addrs.dtype == table.inner_sizes.dtype == torch.int64
    assert table.elem_sizes.dtype == table.conv_widths.dtype == torch.int32


def test_rows_of_a_dim_first_state_are_described():
    conv = torch.zeros(3, 6, 9, dtype=torch.bfloat16)[:, :, :4]
    found = described(state_table([StateTensor(conv, True)], conv_dim_first=True))
    assert found["conv_widths"] == [4]
    assert found["dim_row_counts"] == [6]
    assert found["dim_row_strides"] == [18]
    assert found["block_strides"] == [108]


def test_an_address_in_the_upper_half_keeps_its_bits():
    for address in (0, 2**63 - 1, 2**63, 2**64 - 8):
        assert signed_address(address) % 2**64 == address
        torch.tensor([signed_address(address)], dtype=torch.int64)


REFUSED = {
    "no states": ([], "states is empty"),
    "a flat conv state": ([StateTensor(torch.zeros(3, 8), True)], r"has shape \(3, 8\)"),
    "a transposed conv state": ([StateTensor(torch.zeros(3, 4, 6).mT, True)], "has strides"),
    "a temporal state with gaps": (
        [StateTensor(torch.zeros(3, 4, 6)[:, :, :5], False)],
        "has strides",
    ),
    "a conv state with gaps between tokens": (
        [StateTensor(torch.zeros(3, 4, 6)[:, :, :5], True)],
        "has strides",
    ),
    "a conv state that skips tokens": (
        [StateTensor(torch.zeros(3, 8, 6)[:, ::2], True)],
        "strides",
    ),
    "blocks of one memory": (
        [StateTensor(torch.zeros(4, 6).expand(3, 4, 6), True)],
        "share memory",
    ),
    "no tensor": ([StateTensor([1, 2], False)], "is a list"),
}


def test_rows_of_one_memory_are_refused():
    rows = torch.zeros(3, 1, 6).expand(3, 4, 6)
    with pytest.raises(UsageError, match="share memory"):
        state_table([StateTensor(rows, True)], conv_dim_first=True)


@pytest.mark.parametrize(("states", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_state_with_gaps_or_of_another_shape_is_refused(states, message):
    with pytest.raises(UsageError, match=message):
        state_table(states)


def test_misaligned_states_are_warned_of_once(monkeypatch, caplog):
    monkeypatch.setattr(layout, "_warned_of_alignment", False)
    aligned = StateTensor(torch.zeros(3, 16), False)
    odd_stride = StateTensor(torch.zeros(3, 9)[:, :8], False)
    odd_base = StateTensor(torch.zeros(3 * 8 + 1)[1:].view(3, 8), False)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        assert not warn_if_misaligned([aligned])
        assert not caplog.records
        assert warn_if_misaligned([aligned, odd_stride])
        assert warn_if_misaligned([odd_base])
    (record,) = caplog.records
    assert "state tensor 1 starts at byte 0 of 8 and has a block every 36 bytes" in record.message


def test_tables_share_a_pitch_and_hold_int32():
    rows = torch.zeros(2, 9, dtype=torch.int32)
    found = block_tables([rows[:, :4], torch.zeros(5, 9, dtype=torch.int32)])
    assert found.stride_req == 9
    assert found.pointers.tolist()[0] == rows.data_ptr()
    for tables, message in (
        ([], "tables is empty"),
        ([rows, torch.zeros(2, 8, dtype=torch.int32)], r"tables\[1\] has strides"),
        ([rows.mT], r"tables\[0\] has strides"),
        ([rows.long()], r"tables\[0\] is int64"),
        ([rows[0]], r"tables\[0\] has shape"),
    ):
        with pytest.raises(UsageError, match=message):
            block_tables(tables)
