"""Stored checkpoints: their launches, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels.ssd.checkpoints import store_prefill_checkpoint, write_checkpointed_states

S, DIM, T, SLOTS, H, P, N = 3, 40, 30, 5, 2, 8, 16
STORE = "_store_prefill_checkpoint_kernel"


@dataclass
class Meta:
    state_indices: torch.Tensor
    offsets: torch.Tensor


def integers(count=S):
    return torch.ones(count, dtype=torch.int32)


def arguments(**options):
    """Return the arguments of one store, by name; ``options`` in place of some."""
    given = {
        "state_indices": integers(), "offsets": integers(), "chunk_idx": integers(),
        "x": torch.zeros(DIM, T), "conv_state": torch.zeros(SLOTS, DIM, 5),
        "chunk_states": torch.zeros(4, H, P, N), "ssm_state": torch.zeros(SLOTS, H, P, N),
        "query_start_loc": integers(S + 1), "state_len": 3, **options,
    }  # fmt: skip
    return {"meta": Meta(given.pop("state_indices"), given.pop("offsets")), **given}


def test_conv_and_ssm_states_of_all_sequences_take_one_launch(host):
    host.clear()
    store_prefill_checkpoint(**arguments())
    (launch,) = host.launches()
    assert (launch.kernel, launch.grid) == (STORE, (S, 1, 1))


def test_the_larger_of_the_two_states_decides_the_grid(host):
    host.clear()
    store_prefill_checkpoint(
        **arguments(x=torch.zeros(3000, T), conv_state=torch.zeros(SLOTS, 3000, 3))
    )
    assert host.launches()[0].grid == (S, -(-9000 // 1024), 1)


def test_final_states_are_written_after_the_checkpoints(host):
    host.clear()
    write_checkpointed_states(
        **arguments(), last_chunk_indices=integers(), final_state_indices=integers()
    )
    names = [launch.kernel for launch in host.launches()]
    assert names == [STORE, "_final_state_writeback_kernel"]


def test_no_sequence_takes_no_launch(host):
    host.clear()
    empty = integers(0)
    store_prefill_checkpoint(
        **arguments(
            state_indices=empty, offsets=empty, chunk_idx=empty, query_start_loc=integers(1)
        )
    )
    assert host.launches() == []


def test_no_view_of_the_metadata_compiles_again(host):
    store_prefill_checkpoint(**arguments())
    wide = torch.ones(16, 48, dtype=torch.int32)
    with launchkit.watch_compiles(log=False) as seen:
        for view in (wide[0, 1:], wide[:, 1], wide.flatten()[: 15 * 47].view(15, 47)[:, 0]):
            columns = dict.fromkeys(("state_indices", "offsets", "chunk_idx"), view[:S])
            store_prefill_checkpoint(**arguments(**columns, query_start_loc=view[: S + 1]))
    assert seen.events == []


SHARED = torch.zeros(SLOTS * H * P * N)
WRONG = {
    "another S": ({"offsets": integers(4)}, "state_indices has shape"),
    "chunks of another S": ({"chunk_idx": integers(4)}, "chunk_idx has shape"),
    "starts without the end": ({"query_start_loc": integers()}, "query_start_loc has shape"),
    "offsets of floats": ({"offsets": torch.ones(S)}, "offsets is float32"),
    "x in three dimensions": ({"x": torch.zeros(1, DIM, T)}, "x has shape"),
    "another dim": ({"conv_state": torch.zeros(SLOTS, DIM + 1, 5)}, "conv_state has shape"),
    "too short a window": ({"conv_state": torch.zeros(SLOTS, DIM, 2)}, "conv_state has shape"),
    "another dtype of conv": ({"conv_state": torch.zeros(SLOTS, DIM, 5).half()}, "conv_state is"),
    "initial conv of another S": (
        {"initial_conv_states": torch.zeros(S + 1, DIM, 3)}, "initial_conv_states has shape"),
    "another state": ({"chunk_states": torch.zeros(4, H, P, N + 1)}, "chunk_states has shape"),
    "states apart": ({"ssm_state": torch.zeros(SLOTS, H, P, 2 * N)[..., ::2]}, "is not dense"),
    "expanded slots": (
        {"ssm_state": torch.zeros(1, H, P, N).expand(SLOTS, H, P, N)}, "share memory"),
    "no window": ({"state_len": 0}, "state_len is 0"),
    "a flag for a window": ({"state_len": True}, "state_len is True"),
    "a cache over the states": (
        {"ssm_state": SHARED.view(SLOTS, H, P, N),
         "chunk_states": SHARED[: 4 * H * P * N].view(4, H, P, N)},
        "ssm_state shares memory with chunk_states"),
    "a cache over x": (
        {"ssm_state": SHARED.view(SLOTS, H, P, N), "x": SHARED[: DIM * T].view(DIM, T)},
        "ssm_state shares memory with x"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_refused(host, options, message):
    host.clear()
    for _ in range(2):
        with pytest.raises(UsageError, match=message):
            store_prefill_checkpoint(**arguments(**options))
    assert host.launches() == []


def test_two_caches_may_be_parts_of_the_same_pages(host):
    pages = torch.zeros(SLOTS, DIM * 5 + H * P * N)
    conv = pages[:, : DIM * 5].unflatten(1, (DIM, 5))
    ssm = pages[:, DIM * 5 :].unflatten(1, (H, P, N))
    store_prefill_checkpoint(**arguments(conv_state=conv, ssm_state=ssm))
    assert host.launches()[-1].kernel == STORE
