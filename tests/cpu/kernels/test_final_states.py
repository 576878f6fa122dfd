"""Arguments that the final-state write-back refuses, and what it launches."""

from __future__ import annotations

import pytest
import torch

from launchkit.errors import UsageError
from launchkit.kernels.ssd.final_states import final_state_writeback

shared = torch.zeros(10, 2, 3, 5)


def good_arguments():
    """Return arguments that fit: 4 chunks, 2 heads, P 3, N 5, 2 sequences, 6 slots."""
    return {
        "states": torch.zeros(4, 2, 3, 5),
        "last_chunk_indices": torch.tensor([1, 3], dtype=torch.int32),
        "final_states_out": torch.zeros(6, 2, 3, 5),
        "final_state_indices": torch.tensor([0, 1]),
        "initial_states": torch.zeros(2, 2, 3, 5),
    }


BAD = {
    "flat states": ({"states": torch.zeros(4, 2, 15)}, "states has shape"),
    "states of double": ({"states": torch.zeros(4, 2, 3, 5).double()}, "states is float64"),
    "no state channel": (
        {"states": torch.zeros(4, 2, 3, 0), "final_states_out": torch.zeros(6, 2, 3, 0)},
        "states has shape .* with N above 0",
    ),
    "wide chunk indices": (
        {"last_chunk_indices": torch.tensor([1, 3])},
        "last_chunk_indices is int64",
    ),
    "cache of other sizes": (
        {"final_states_out": torch.zeros(6, 2, 5, 3)},
        "final_states_out has shape",
    ),
    "slots of another batch": (
        {"final_state_indices": torch.tensor([0, 1, 2])},
        "final_state_indices has shape",
    ),
    "no slots": ({"final_state_indices": None}, "final_state_indices is missing"),
    "initial states the other way round": (
        {"initial_states": torch.zeros(2, 2, 5, 3)},
        "initial_states has shape",
    ),
    "cache over the states": (
        {"states": shared[:4], "final_states_out": shared[1:7]},
        "final_states_out shares memory with states",
    ),
    "cache over the initial states": (
        {"initial_states": shared[:2], "final_states_out": shared[1:7]},
        "final_states_out shares memory with initial_states",
    ),
    "more sequences than a grid holds": (
        {"last_chunk_indices": torch.zeros(65536, dtype=torch.int32)},
        "last_chunk_indices has 65536 sequences",
    ),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD.keys())
def test_an_argument_that_does_not_fit_is_named_with_what_to_pass(change, message):
    with pytest.raises(UsageError, match=message) as caught:
        final_state_writeback(**{**good_arguments(), **change})
    assert caught.value.fields["argument"] == message.split()[0]
    assert str(caught.value).endswith(".")


def test_all_sequences_are_written_by_one_launch(host):
    final_state_writeback(**good_arguments())
    (launch,) = host.launches()
    assert launch.kernel == "_final_state_writeback_kernel"
    assert launch.grid == (1, 2, 2)


def test_nothing_is_launched_without_sequences(host):
    arguments = good_arguments()
    arguments["last_chunk_indices"] = torch.zeros(0, dtype=torch.int32)
    arguments["final_state_indices"] = torch.zeros(0, dtype=torch.int64)
    arguments["initial_states"] = None
    final_state_writeback(**arguments)
    assert host.launches() == []


def test_calls_like_an_earlier_one_are_replayed_and_checked_all_the_same(c_core, host):
    for _ in range(2):
        final_state_writeback(**good_arguments())
    before = final_state_writeback.op_plans.replays
    host.clear()
    for _ in range(3):
        arguments = good_arguments()
        final_state_writeback(**arguments)
        cache = int.from_bytes(host.launches()[-1].params[3], "little")
        assert cache == arguments["final_states_out"].data_ptr()
    assert final_state_writeback.op_plans.replays == before + 3
    with pytest.raises(UsageError, match="final_states_out shares memory with states"):
        final_state_writeback(**arguments | {"states": shared[:4], "final_states_out": shared[1:7]})
