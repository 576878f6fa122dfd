"""Gathering initial states: its launch, what compiles, and what is refused."""

from __future__ import annotations

import pytest
import torch
import triton

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels import initial_states
from launchkit.kernels.initial_states import gather_initial_states

STATE = torch.zeros(6, 4, 16, 16)
TABLE = torch.zeros(64, 48, dtype=torch.int32)
# How block tables are viewed: rows, columns of strides with and without a factor of 16.
VIEWS = {
    "rows": TABLE[0, :5],
    "rows at an odd place": TABLE[0, 3:8],
    "a column": TABLE[:5, 1],
    "a column of an odd stride": TABLE.flatten()[: 47 * 5].view(5, 47)[:, 2],
}
MASKS = {"none": None, "dense": torch.ones(5).bool(), "odd": torch.ones(11).bool()[1::2]}


def test_all_sequences_take_one_launch(host):
    host.clear()
    gather_initial_states(STATE, VIEWS["a column"], MASKS["dense"])
    (launch,) = host.launches()
    assert (launch.grid, launch.block) == ((1, 5, 1), (256, 1, 1))


def test_no_sequence_takes_no_launch(host):
    host.clear()
    gather_initial_states(STATE, TABLE[0, :0])
    assert host.launches() == []


def test_calls_like_an_earlier_one_are_replayed(c_core, host):
    plans = gather_initial_states.op_plans
    plans.clear()
    for _ in range(4):
        gather_initial_states(STATE, VIEWS["a column"], MASKS["odd"])
    before = plans.replays
    host.clear()
    result = gather_initial_states(STATE, VIEWS["a column"], MASKS["odd"])
    assert plans.replays == before + 1
    assert (result.shape, result.dtype) == ((5, 4, 16, 16), STATE.dtype)
    addresses = [int.from_bytes(param, "little") for param in host.launches()[-1].params[:4]]
    read = (STATE, VIEWS["a column"], MASKS["odd"], result)
    assert addresses == [tensor.data_ptr() for tensor in read]


def test_no_view_of_a_block_table_compiles_again(host):
    for mask in (None, MASKS["dense"]):
        gather_initial_states(STATE, VIEWS["rows"], mask)
    with launchkit.watch_compiles(log=False) as seen:
        for view in VIEWS.values():
            for mask in MASKS.values():
                gather_initial_states(STATE, view, mask)
    assert seen.events == []


def test_a_kernel_that_specializes_on_its_strides_fails_that_proof(host, monkeypatch):
    """A warm-up with dense indices alone would not serve: the compile detector sees it."""
    kernel = initial_states._gather_initial_states_kernel
    monkeypatch.setattr(initial_states, "_gather_initial_states_kernel", triton.jit(kernel.fn))
    gather_initial_states(STATE, VIEWS["rows"])
    with launchkit.watch_compiles(log=False) as seen:
        for view in VIEWS.values():
            gather_initial_states(STATE, view)
    assert len(seen.events) >= 2
    named = {change.argument for event in seen.events for change in event.changes}
    assert {"stride_indices", "indices_ptr"} <= named


WRONG = {
    "no state": (None, TABLE[0, :5], None, "state is a NoneType"),
    "a scalar": (torch.zeros(()), TABLE[0, :5], None, "state has shape"),
    "integers": (TABLE, TABLE[0, :5], None, "state is int32"),
    "apart": (STATE[..., ::2], TABLE[0, :5], None, "a slot of it is not dense"),
    "turned": (STATE.transpose(1, 2), TABLE[0, :5], None, "a slot of it is not dense"),
    "two dimensions": (STATE, TABLE[:5, :1], None, "indices has shape"),
    "floats": (STATE, torch.zeros(5), None, "indices is float32"),
    "int16": (STATE, torch.zeros(5).short(), None, "indices is int16"),
    "flags too short": (STATE, TABLE[0, :5], torch.ones(4).bool(), "has_initial_state has shape"),
    "flags of integers": (STATE, TABLE[0, :5], torch.ones(5).int(), "has_initial_state is int32"),
    "too many": (STATE, torch.zeros(65536).int(), None, "over 65535"),
}


@pytest.mark.parametrize(("state", "indices", "mask", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(host, state, indices, mask, message):
    host.clear()
    with pytest.raises(UsageError, match=message):
        gather_initial_states(state, indices, mask)
    assert host.launches() == []


def test_a_cpu_tensor_is_refused_where_nothing_can_run():
    with pytest.raises(UsageError, match="no GPU kernel can run"):
        gather_initial_states(STATE, VIEWS["rows"])
