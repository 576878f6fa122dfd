"""The "align" mode on the host: decisions, launches, and errors that change nothing."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from mamba_batches import FUNCS, batch, make_buffer, output, request
from mamba_states import Geometry, States

from launchkit.errors import UsageError
from launchkit.kernels.state_copy import in_flight
from launchkit.kernels.state_copy.buffers import MambaBuffers
from launchkit.kernels.state_copy.host_align import (
    cleanup_mamba_state_idx,
    postprocess_mamba,
    preprocess_mamba,
    state_column,
)

BLOCKS = (range(1, 12), range(20, 31))
CACHING = SimpleNamespace(enable_prefix_caching=True)


class Runner:
    """States of four-token blocks, and the buffers of a batch of four."""

    def __init__(self, fused=False):
        self.states = States(Geometry(block_size=4))
        self.buffers = MambaBuffers.create(
            4, self.states.config, FUNCS, make_buffer, "cpu", with_postprocess_align=fused
        )
        self.columns = {}

    def before(self, out, rows, requests, caching=CACHING):
        table = torch.zeros(4, 9, dtype=torch.int32)
        lookup = SimpleNamespace(get_device_tensor=lambda n: table[:n])
        rows.block_table = {1: lookup, 2: lookup}
        preprocess_mamba(
            out, self.states.config, caching, self.columns, rows, requests, self.states.context,
            FUNCS, self.buffers.preprocess, self.buffers.postprocess_align,
        )  # fmt: skip

    def after(self, out, rows, requests):
        postprocess_mamba(
            out, self.states.config, rows, requests, self.columns, self.states.context, FUNCS,
            self.buffers.preprocess,
        )  # fmt: skip


@pytest.mark.parametrize("tokens", range(10))
def test_state_column_is_that_of_the_last_token(tokens):
    assert state_column(tokens, 4) == (-1 if tokens == 0 else (tokens + 3) // 4 - 1)


def test_cleanup_forgets_the_finished_the_preempted_and_the_resumed():
    columns = dict.fromkeys("abcde", 1)
    cleanup_mamba_state_idx(output({}, finished="ax", preempted={"b"}, resumed="c"), columns)
    assert columns == {"d": 1, "e": 1}
    cleanup_mamba_state_idx(output({}), columns)
    assert columns == {"d": 1, "e": 1}


@pytest.mark.parametrize(
    ("known", "computed", "scheduled", "column", "moves"),
    [
        (None, 0, 3, 0, False),
        (None, 0, 9, 2, False),
        (None, 4, 1, 1, True),
        (None, 4, 4, 1, True),
        (None, 3, 1, 0, False),
        (0, 3, 1, 0, False),
        (0, 3, 2, 1, True),
        (2, 3, 1, 0, True),
        (-1, 0, 1, 0, False),
    ],
)
@pytest.mark.parametrize("fused", [False, True])
def test_state_moves_where_its_column_changes(
    host, known, computed, scheduled, column, moves, fused
):
    runner, rows = Runner(fused), batch({"a": 3})
    runner.columns = {} if known is None else {"a": known}
    runner.before(output({"a": scheduled}), rows, {"a": request(computed, *BLOCKS)})
    assert runner.columns == {"a": column}
    assert rows.num_accepted_tokens_cpu.tolist() == [1 if moves else 3]
    assert len(host.launches()) == moves
    assert runner.buffers.preprocess.offset == (4 if moves and not fused else 0)


def test_resumed_request_starts_from_its_computed_tokens(host):
    runner, rows = Runner(), batch({"a": 1})
    runner.columns = {"a": 7}
    runner.before(output({"a": 1}, resumed="a"), rows, {"a": request(0, *BLOCKS)})
    assert runner.columns == {"a": 0}
    assert host.launches() == []


def test_batch_of_no_requests_launches_nothing(host):
    for fused in (False, True):
        runner = Runner(fused)
        runner.columns = {"gone": 1, "away": 2}
        runner.before(output({}, finished=["gone"]), batch({}), {})
        assert runner.columns == {"away": 2}
    assert host.launches() == []


def test_all_moves_of_a_batch_are_one_launch(host):
    for fused in (False, True):
        runner, rows = Runner(fused), batch({"a": 1, "b": 2, "c": 1})
        requests = {"a": request(4, *BLOCKS), "b": request(8, *BLOCKS), "c": request(0, *BLOCKS)}
        runner.before(output({"a": 1, "b": 1, "c": 5}), rows, requests)
        assert runner.columns == {"a": 1, "b": 2, "c": 1}
    assert [launch.grid for launch in host.launches()] == [(8, 1, 1), (4, 3, 1)]
    context = runner.buffers.postprocess_align
    assert context.precopy_src_col_buf.gpu.tolist()[:3] == [0, 1, -1]
    assert context.precopy_token_bias_buf.gpu.tolist()[:3] == [0, 1, 0]
    assert context.mamba_state_idx_buf.gpu.tolist()[:3] == [1, 2, 1]


@pytest.mark.parametrize(
    ("fused", "accepted", "blocks", "said"),
    [
        (False, 0, BLOCKS, "request 'b' has 0 accepted tokens"),
        (True, 0, BLOCKS, "request 'b' has 0 accepted tokens"),
        # The fused path reads the block tables instead of the requests' lists.
        (False, 1, (range(1, 2), range(1, 9)), "has 1 blocks in group 1"),
    ],
)
def test_bad_request_changes_nothing(host, fused, accepted, blocks, said):
    runner, rows = Runner(fused), batch({"a": 2, "b": accepted})
    runner.columns = {"a": 0, "b": 0}
    requests = {"a": request(4, *BLOCKS), "b": request(4, *blocks, req_id="b")}
    with pytest.raises(UsageError, match=said) as caught:
        runner.before(output({"a": 1, "b": 1}), rows, requests)
    assert caught.value.fields["request"] == "b"
    assert runner.columns == {"a": 0, "b": 0}
    assert rows.num_accepted_tokens_cpu.tolist() == [2, accepted]
    assert host.launches() == []


def test_without_prefix_caching_there_is_nothing_to_move():
    with pytest.raises(UsageError, match="enable_prefix_caching"):
        Runner().before(output({}), batch({}), {}, SimpleNamespace(enable_prefix_caching=False))


@pytest.mark.parametrize(
    ("computed", "scheduled", "drafts", "accepted", "column", "left", "moves"),
    [
        # running 7, new 8: a block became full, one token further than the running state.
        (5, 4, 2, 2, 2, 2, True),
        # running 7, new 7: within the block.
        (5, 4, 2, 1, 2, 1, False),
        # running 8, new 8: full without a draft, in its own column: nothing to move.
        (7, 1, 0, 1, 1, 1, False),
        # running 8, new 9: full before the accepted draft, which then starts a new column.
        (7, 2, 1, 2, 1, 1, False),
        (7, 2, 1, 2, 2, 2, True),
        # running 7, new 8 in the column that became full: shifted within it.
        (6, 2, 1, 2, 1, 1, True),
    ],
)
def test_state_at_a_crossed_boundary_is_saved(
    host, computed, scheduled, drafts, accepted, column, left, moves
):
    runner, rows = Runner(), batch({"a": accepted})
    runner.columns = {"a": column}
    out = output({"a": scheduled}, {"a": drafts} if drafts else None)
    runner.after(out, rows, {"a": request(computed, *BLOCKS)})
    assert rows.num_accepted_tokens_cpu.tolist() == [left]
    assert runner.columns == {"a": column}
    assert len(host.launches()) == moves


def test_request_without_a_column_is_named(host):
    rows = batch({"a": 2})
    with pytest.raises(UsageError, match=r"no entry for request 'a'.*preprocess_mamba"):
        Runner().after(output({"a": 4}, {"a": 2}), rows, {"a": request(5, *BLOCKS)})
    assert rows.num_accepted_tokens_cpu.tolist() == [2]


def test_columns_that_share_a_block_are_two_columns(host):
    """Whether the boundary is in the running column is a matter of columns, not of blocks."""
    runner, rows = Runner(), batch({"a": 2})
    runner.columns = {"a": 2}
    shared = [(1, 5, 5, 6), (2, 7, 7, 8)]
    runner.after(output({"a": 2}, {"a": 1}), rows, {"a": request(7, *shared)})
    assert rows.num_accepted_tokens_cpu.tolist() == [2]
    assert runner.buffers.preprocess.offset == 4


class FakeEvent:
    """A CUDA event that says what is done with it."""

    def __init__(self, log):
        self.log = log

    def record(self):
        self.log.append("record")

    def synchronize(self):
        self.log.append("wait")


def test_buffers_are_written_again_only_when_they_have_been_read(monkeypatch):
    log = []
    monkeypatch.setattr(torch.cuda, "Event", lambda: FakeEvent(log))
    monkeypatch.setattr(in_flight, "device_guard", lambda tensor: nullcontext())
    copies = in_flight.CopiesInFlight()
    copies.wait()
    copies.mark(torch.zeros(1))
    copies.wait()
    assert log == []
    for _ in range(2):
        copies.mark(SimpleNamespace(is_cuda=True))
        copies.wait()
        copies.wait()
    assert log == ["record", "wait"] * 2
