"""What the aligned step's launches refuse: numbers, overlaps, descriptions that do not belong."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from copy_worlds import Cache, ints, make_world

from launchkit.errors import UsageError
from launchkit.kernels.state_copy import launches
from launchkit.kernels.state_copy.launches import (
    postprocess_align,
    precopy_align,
    preprocess_align,
)
from launchkit.kernels.state_copy.layout import StateTensor, block_tables, state_table

FOUR = [0, 1, 2, 3]


@pytest.fixture
def world():
    return make_world("cpu", Cache(groups=2))


def four(count):
    return [ints(FOUR, "cpu") for _ in range(count)]


def precopy(world, reqs=2, **change):
    given = dict(zip(("state_idx", "src_col", "token_bias"), four(3), strict=True))
    given |= {"tables": world.tables, "states": world.table, "num_reqs": reqs}
    precopy_align(**given | change)


POSTPROCESS = (
    "num_accepted_tokens", "state_idx", "num_scheduled_tokens", "num_computed_tokens",
    "num_draft_tokens", "num_accepted_tokens_out",
)  # fmt: skip


def postprocess(world, **change):
    given = dict(zip(POSTPROCESS, four(6), strict=True))
    given |= {"tables": world.tables, "states": world.table, "num_reqs": 2, "block_size": 16}
    postprocess_align(**given | change)


PREPROCESS = (
    "idx_mapping", "state_idx", "num_computed_tokens", "query_start_loc", "num_accepted_tokens",
    "src_col", "src_off",
)  # fmt: skip


def preprocess(**change):
    given = dict(zip(PREPROCESS, four(7), strict=True))
    preprocess_align(**given | {"num_reqs": 2, "mamba_block_size": 16} | change)


@pytest.mark.parametrize("reqs", [-1, True, 2.0, None])
def test_a_number_of_requests_that_is_none_is_refused_every_time(host, world, reqs):
    for _ in range(2):
        for run in (
            lambda: precopy(world, reqs),
            lambda: postprocess(world, num_reqs=reqs),
            lambda: preprocess(num_reqs=reqs),
        ):
            with pytest.raises(UsageError, match="num_reqs is"):
                run()
    assert host.launches() == []


@pytest.mark.parametrize("size", [0, -16, True, None, 16.0])
def test_a_block_size_below_one_is_refused(host, world, size):
    with pytest.raises(UsageError, match=f"block_size is {size}"):
        postprocess(world, block_size=size)
    with pytest.raises(UsageError, match=f"mamba_block_size is {size}"):
        preprocess(mamba_block_size=size)
    assert host.launches() == []


@pytest.mark.parametrize("name", ["num_accepted_tokens", "state_idx", "num_accepted_tokens_out"])
def test_a_tensor_that_is_missing_is_named(host, world, name):
    with pytest.raises(UsageError, match=f"postprocess_align: {name} is a NoneType"):
        postprocess(world, **{name: None})
    with pytest.raises(UsageError, match="precopy_align: state_idx is a NoneType"):
        precopy(world, state_idx=None)
    with pytest.raises(UsageError, match="preprocess_align: idx_mapping is a NoneType"):
        preprocess(idx_mapping=None)


@pytest.mark.parametrize("name", POSTPROCESS[:-1])
def test_counts_that_are_written_may_share_no_byte_with_what_decides(host, world, name):
    """A program may read the count that another one, of the same request, has just reset."""
    postprocess(world)
    shared = ints([*FOUR, 4], "cpu")
    for out in (shared[:4], shared[1:]):
        with pytest.raises(UsageError, match=f"num_accepted_tokens_out shares memory with {name}"):
            postprocess(world, **{name: shared[:4], "num_accepted_tokens_out": out})
    assert len(host.launches()) == 1


@pytest.mark.parametrize("read", ["idx_mapping", "num_computed_tokens", "query_start_loc"])
@pytest.mark.parametrize("written", ["state_idx", "num_accepted_tokens", "src_col", "src_off"])
def test_what_is_advanced_may_share_no_byte_with_what_is_read(host, read, written):
    shared = ints([*FOUR, 4], "cpu")
    with pytest.raises(UsageError, match=f"{written} shares memory with {read}"):
        preprocess(**{read: shared[:4], written: shared[1:]})
    assert host.launches() == []


def test_states_of_a_group_without_a_table_are_refused(host, world):
    with pytest.raises(UsageError, match="tables has 1 groups, and a state is of group 1"):
        precopy(world, tables=block_tables(world.tables.tables[:1]))
    with pytest.raises(UsageError, match="tables has 1 groups"):
        postprocess(world, tables=block_tables(world.tables.tables[:1]))
    assert host.launches() == []


def test_tables_of_another_device_or_kind_are_refused(host, world):
    elsewhere = replace(world.tables, pointers=world.tables.pointers.to("meta"))
    with pytest.raises(UsageError, match="tables is on meta"):
        precopy(world, tables=elsewhere)
    with pytest.raises(UsageError, match="tables is a list"):
        precopy(world, tables=list(world.tables.tables))
    with pytest.raises(UsageError, match="states is a tuple"):
        postprocess(world, states=world.table.states)


CONV, TEMPORAL = torch.zeros(5, 3, 4), torch.zeros(5, 2, 4)
WRONG_STATES = {
    "no description": ([None], r"states\[0\] is a NoneType"),
    "two devices": (
        [StateTensor(CONV, True), StateTensor(TEMPORAL.to("meta"), False)],
        r"states\[1\] is on meta",
    ),
    "a negative group": ([StateTensor(TEMPORAL, False, -1)], r"states\[0\].group is -1"),
    "blocks that are one": (
        [StateTensor(torch.zeros(1, 8).expand(4, 8), False)],
        "elements of it share memory",
    ),
    "blocks that overlap": (
        [StateTensor(torch.zeros(64).as_strided((4, 8), (6, 1)), False)],
        "elements of it share memory",
    ),
}


@pytest.mark.parametrize(("states", "message"), WRONG_STATES.values(), ids=WRONG_STATES.keys())
def test_states_that_kernels_would_misread_are_refused(states, message):
    with pytest.raises(UsageError, match=message):
        state_table(states)


def test_equal_steps_are_replayed_and_are_checked_all_the_same(c_core, host, world):
    ops = (launches._precopy, launches._postprocess, launches._preprocess)
    given = dict(zip(POSTPROCESS, four(6), strict=True))

    def steps(count):
        for _ in range(count):
            precopy(world)
            postprocess(world, **given)
            preprocess()

    steps(2)
    before = [op.op_plans.replays for op in ops]
    host.clear()
    steps(3)
    assert [op.op_plans.replays for op in ops] == [count + 3 for count in before]
    assert [launch.kernel for launch in host.launches()] == [
        "precopy_mamba_align_fused_kernel", "postprocess_mamba_fused_kernel",
        "preprocess_mamba_align_fused_kernel",
    ] * 3  # fmt: skip
    with pytest.raises(UsageError, match="shares memory with num_accepted_tokens"):
        postprocess(world, **given | {"num_accepted_tokens_out": given["num_accepted_tokens"]})
