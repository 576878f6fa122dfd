"""agree_across_ranks in one process: a world of one, bad arguments, and the board between ranks.

Real ranks: tests/multiproc/test_ranks.py.
"""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import manifest_kernels
import pytest
import sample_kernels
import torch
import torch.distributed as dist
from benching import Bench, kernel_with, launched_block
from stored import RECORD

import launchkit
from launchkit.dispatch import triton_seam
from launchkit.dispatch.ranks.board import CHUNK_BYTES, SHORT_BYTES, Board
from launchkit.dispatch.ranks.store import RankStore
from launchkit.errors import AgreementError, NotAutotunedError, UsageError
from launchkit.store import MemoryStore

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}


@pytest.fixture
def kernel(measuring):
    return kernel_with(Bench(TIMES), name="ranked")


@pytest.fixture
def boards():
    """Boards of ranks 4 and 7 over one store."""
    store, made = dist.HashStore(), []

    def make(rank, silent_s=30.0):
        made.append(Board(store, "job", rank, (4, 7), silent_s=silent_s))
        return made[-1]

    yield make
    for board in made:
        board.close()


def test_a_world_of_one_agrees_at_once_and_keeps_what_it_tunes(kernel, memory_store):
    agreement = launchkit.agree_across_ranks([kernel])
    assert (agreement.keys, agreement.ranks) == (0, (0,))
    with agreement:
        assert launched_block(kernel) == 32
    assert agreement.keys == 1
    assert len(list(memory_store.records())) == 1
    again = launchkit.agree_across_ranks([kernel])
    assert (again.keys, again.changed, again.digest) == (1, 0, agreement.digest)
    assert launched_block(kernel) == 32


def test_without_a_list_every_stored_key_is_agreed_on(kernel, memory_store):
    gc.collect()  # what other tests have chosen counts as long as their kernels live
    before = launchkit.agree_across_ranks().keys
    launched_block(kernel)
    assert launchkit.agree_across_ranks().keys == before + 1


def test_what_was_agreed_holds_whatever_the_store_says_later(kernel, memory_store):
    launched_block(kernel)
    launchkit.agree_across_ranks([kernel])
    (record,) = memory_store.records()
    memory_store.discard(record)
    memory_store.put(replace(record, chosen=record.configs[0].config))
    other = kernel_with(Bench({}), name="ranked")
    assert launched_block(other) == 32
    with launchkit.use_store(memory_store):
        assert launched_block(kernel_with(Bench({}), name="ranked")) == 16


def test_spread_runs_every_call_and_tries_failed_ones_again(kernel):
    ran = []

    def fails_once(name):
        ran.append(name)
        if ran.count(name) == 1:
            raise MemoryError

    with launchkit.agree_across_ranks([kernel]) as agreement:
        agreement.spread({"a": lambda: fails_once("a"), "b": lambda: ran.append("b")})
        with pytest.raises(KeyError):
            agreement.spread({"c": lambda: {}[1]})
    assert (ran.count("a"), ran.count("b"), ran[-1]) == (2, 1, "a")


def test_a_manifest_is_tuned_in_the_block_and_what_fails_is_said(memory_store, measuring, tmp_path):
    path, x = tmp_path / "manifest.json", torch.empty(96)
    tuned = manifest_kernels.tuned
    with launchkit.record_manifest(path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_seam, "executes", lambda: False)
        for n in (64, 65):
            tuned[manifest_kernels.grid_of_block](x, x, n, 1)
    vars(tuned).pop("_launchkit_entry")  # as in a new process
    tuned.cache.clear()

    def make(name, arguments):
        if arguments["n"] == 65:
            raise MemoryError("on this rank")

    with launchkit.agree_across_ranks([tuned]) as agreement:
        failed = agreement.tune(path, make=make)
    assert [record.key.text.split()[0] for record in memory_store.records()] == ["n=64"]
    ((text, reason),) = failed.items()
    assert "65" in text
    assert "MemoryError" in reason


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"silent_s": -1.0}, {"unlike_configs": "any"},
     {"group": object()}],
)  # fmt: skip
def test_bad_argument_is_refused_at_once(kernel, options):
    with pytest.raises(UsageError):
        launchkit.agree_across_ranks([kernel], **options)


def test_kernel_without_configs_is_refused(measuring):
    with pytest.raises(NotAutotunedError):
        launchkit.agree_across_ranks([sample_kernels.copy])


def test_an_agreement_is_entered_once_at_a_time_and_spreads_inside_only(kernel):
    agreement = launchkit.agree_across_ranks([kernel])
    with pytest.raises(UsageError):
        agreement.spread({})
    with agreement, pytest.raises(UsageError):
        agreement.__enter__()


@pytest.mark.parametrize("size", [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 2 * CHUNK_BYTES + 3])
def test_messages_of_any_length_arrive_whole(boards, size):
    one, two = boards(4), boards(7)
    data = bytes(n % 251 for n in range(size))
    assert one.read("note") is None
    assert one.post("note", data)
    assert not two.post("note", b"later")
    assert two.read("note") == data


def test_all_ranks_gather_all_messages(boards):
    one, two = boards(4), boards(7)
    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(board.gather, "hello", bytes([board.rank]), 20.0) for board in (one, two)
        ]
        assert [future.result(timeout=30) for future in futures] == [{4: b"\4", 7: b"\7"}] * 2


def test_a_rank_that_does_not_come_is_named_and_told_when_it_comes_late(boards):
    with pytest.raises(AgreementError) as caught:
        boards(4).gather("hello", b"", 0.05)
    assert caught.value.silent == (7,)
    late = boards(7)
    assert set(late.gather("hello", b"", 5.0)) == {4, 7}
    with pytest.raises(AgreementError, match="gave up") as told:
        late.gather("next", b"", 5.0)
    assert told.value.silent == (7,)


def test_a_rank_whose_pulse_stops_is_dead_long_before_the_time_is_up(boards):
    dead = boards(7, silent_s=0.3)
    dead.close()
    with pytest.raises(AgreementError, match="died") as caught:
        boards(4, silent_s=0.3).gather("hello", b"", 600.0)
    assert caught.value.silent == (7,)


def test_of_many_claims_one_holds(boards):
    one, two = boards(4), boards(7)
    gate = threading.Barrier(16)

    def claim(n):
        gate.wait()
        mine = f"{n}:x"
        return (one, two)[n % 2].claim("key", "", mine) == mine

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(claim, range(16))) == 1


class Broken(MemoryStore):
    """Somebody's store, which fails."""

    def get(self, *identity):
        raise OSError("get")

    def put(self, record):
        raise OSError("put")


def test_config_store_that_fails_fails_no_flight_and_keeps_no_claim(boards):
    stores = [RankStore(store, lambda _: True) for store in (Broken(), MemoryStore())]
    for store, rank in zip(stores, (4, 7), strict=True):
        store.open_claims(boards(rank), 5.0)
    broken, whole = stores
    with broken.enter_flight(RECORD.identity, 5.0) as outcome:
        assert outcome == "alone"
        with whole.enter_flight(RECORD.identity, 0.01) as other:
            assert other == "late"
    with whole.enter_flight(RECORD.identity, 5.0) as outcome:
        whole.put(RECORD)
    with broken.enter_flight(RECORD.identity, 5.0) as outcome:
        assert outcome == "waited"
    assert (broken.counters, whole.counters) == (
        {"owned": 1, "received": 1}, {"late": 1, "owned": 1},
    )  # fmt: skip


def test_lost_store_is_an_agreement_error_at_once():
    class Lost:
        def set(self, key, value):
            raise RuntimeError("broken pipe")

    with pytest.raises(AgreementError, match="lost"):
        Board(Lost(), "job", 0, (0, 1), silent_s=30.0)
