"""Aligned state indices: what is launched, what compiles, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import launchkit
from launchkit.errors import UsageError
from launchkit.kernels import state_indices
from launchkit.kernels.state_indices import AlignedStateIndices, mamba_get_block_table_tensor

BLOCK, ROWS, COLUMNS = 32, 256, 64


@dataclass
class Spec:
    block_size: int = BLOCK
    num_speculative_blocks: int = 2


def make_tables(groups=4, rows=ROWS, columns=COLUMNS):
    return [torch.ones(rows, columns, dtype=torch.int32) for _ in range(groups)]


@pytest.fixture
def context(host):
    return AlignedStateIndices(make_tables(), BLOCK, 3)


def lengths(requests=ROWS):
    return torch.ones(requests, dtype=torch.int32)


@pytest.mark.parametrize("requests", [1, 32, 33, 256])
def test_all_groups_take_one_launch(context, host, requests):
    host.clear()
    context.compute_aligned_state_indices(lengths(), requests)
    (launch,) = host.launches()
    assert launch.kernel == "get_aligned_state_indices_multi_group_kernel"
    assert launch.grid == (-(-requests // 32), 1, 1)
    assert launch.block == (32, 1, 1)


def test_no_request_takes_no_launch(context, host):
    host.clear()
    assert context.compute_aligned_state_indices(lengths(), 0).shape == (4, 0, 3)
    assert host.launches() == []


def test_padding_alone_is_written(context, host):
    host.clear()
    assert context.compute_aligned_state_indices(lengths(0), 0, num_rows=8).shape == (4, 8, 3)
    assert len(host.launches()) == 1


class Operators(TorchDispatchMode):
    """Notes which of torch's operators run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_a_group_by_itself_makes_its_result_and_no_other_tensor(host):
    """A copy to the GPU in every step would wait, and could not be captured into a graph."""
    (table,), seq_lens = make_tables(1), lengths()
    with Operators() as ran:
        mamba_get_block_table_tensor(table, seq_lens, Spec(), "align")
    assert ran.names == ["empty"]


def test_a_group_by_itself_takes_one_launch(host):
    host.clear()
    found = mamba_get_block_table_tensor(make_tables()[0], lengths(35), Spec(), "align")
    assert found.shape == (35, 3)
    assert [each.kernel for each in host.launches()] == ["get_aligned_state_indices_kernel"]


def test_calls_like_an_earlier_one_are_replayed(c_core, host):
    context = AlignedStateIndices(make_tables(), BLOCK)
    plans = state_indices._look_up.op_plans
    plans.clear()
    for _ in range(2):
        context.compute_aligned_state_indices(lengths(), 7)
    before, seq_lens = plans.replays, lengths()
    host.clear()
    for _ in range(5):
        context.compute_aligned_state_indices(seq_lens, 7)
    assert plans.replays == before + 5
    address = int.from_bytes(host.launches()[-1].params[1], "little")
    assert address == seq_lens.data_ptr()


def test_another_context_of_the_same_sizes_has_its_own_buffers(c_core, host):
    contexts = [AlignedStateIndices(make_tables(), BLOCK) for _ in range(2)]
    for _ in range(3):
        for context in contexts:
            host.clear()
            context.compute_aligned_state_indices(lengths(), 9)
            (launch,) = host.launches()
            assert int.from_bytes(launch.params[2], "little") == context.state_indices.data_ptr()


def test_neither_batches_nor_layouts_of_lengths_compile_again(host):
    context = AlignedStateIndices(make_tables(), BLOCK, 3)
    wide = torch.ones(ROWS + 1, 16, dtype=torch.int32)
    context.compute_aligned_state_indices(wide[:, 0], 5)
    mamba_get_block_table_tensor(make_tables()[0], wide[:5, 0], Spec(), "align")
    with launchkit.watch_compiles(log=False) as seen:
        for requests in (1, 16, 17, 256):
            for seq_lens in (wide[:, 0], wide[1:, 1], wide.flatten()[1:]):
                context.compute_aligned_state_indices(seq_lens, requests)
                for table in (make_tables()[0], make_tables(columns=65)[0][:, 1:]):
                    mamba_get_block_table_tensor(table, seq_lens[:requests], Spec(), "align")
    assert seen.events == []


def test_that_proof_can_fail(host):
    """The pointer of another dtype is another variant."""
    context = AlignedStateIndices(make_tables(), BLOCK, 3)
    context.compute_aligned_state_indices(lengths(), 5)
    with launchkit.watch_compiles(log=False) as seen:
        context.compute_aligned_state_indices(lengths().long(), 5)
    assert len(seen.events) == 1


def mapped(rows):
    return {"idx_mapping": torch.zeros(rows, dtype=torch.int32)}


REFUSED = {
    "lengths too short": ((lengths(4), 5), {}, "seq_lens has shape"),
    "lengths in two dimensions": ((torch.ones(8, 1).int(), 5), {}, "seq_lens has shape"),
    "lengths of floats": ((torch.ones(8), 5), {}, "seq_lens is float32"),
    "no lengths": ((None, 5), {}, "seq_lens is a NoneType"),
    "more requests than rows": ((lengths(300), 257), {}, "num_rows is 257"),
    "fewer rows than requests": ((lengths(), 5), {"num_rows": 4}, "num_reqs is 5"),
    "no rows for requests": ((lengths(), 5), {"num_rows": 0}, "num_reqs is 5"),
    "a negative number": ((lengths(), -1), {}, "num_rows is -1"),
    "a flag": ((lengths(), True), {}, "num_rows is True"),
    "a fraction": ((lengths(), 2.0), {}, "num_rows is 2.0"),
    "mapping too short": ((lengths(), 5), mapped(4), "idx_mapping has shape"),
}


@pytest.mark.parametrize(("args", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_call_is_refused_every_time_and_launches_nothing(
    context, host, args, options, message
):
    host.clear()
    for _ in range(2):
        with pytest.raises(UsageError, match=message):
            context.compute_aligned_state_indices(*args, **options)
    assert host.launches() == []


WRONG_TABLES = {
    "none": ([], "block_tables is empty"),
    "no tensor": ([None], r"block_tables\[0\] is a NoneType"),
    "a vector": ([torch.ones(4).int()], r"block_tables\[0\] has shape"),
    "int64": ([torch.ones(4, 4).long()], r"block_tables\[0\] is int64"),
    "two shapes": ([*make_tables(1), *make_tables(1, rows=8)], r"block_tables\[1\] has shape"),
    "two row strides": (
        [*make_tables(1), make_tables(1, columns=65)[0][:, 1:]],
        r"block_tables\[1\] has strides",
    ),
    "one of two no tensor": ([*make_tables(1), None], r"block_tables\[1\] is a NoneType"),
    "a number": ([*make_tables(1), torch.tensor(1).int()], r"block_tables\[1\] has shape"),
    "two devices": ([*make_tables(1), make_tables(1)[0].to("meta")], r"\[1\] is on meta"),
    "columns apart": ([make_tables(1)[0][:, ::2]], r"block_tables\[0\] has strides"),
}


@pytest.mark.parametrize(("tables", "message"), WRONG_TABLES.values(), ids=WRONG_TABLES.keys())
def test_tables_that_do_not_fit_are_refused(tables, message):
    with pytest.raises(UsageError, match=message):
        AlignedStateIndices(tables, BLOCK)


@pytest.mark.parametrize("name", ["block_size", "num_state_slots", "max_num_reqs"])
@pytest.mark.parametrize("value", [0, -1, True, 2.0, "7"])
def test_sizes_below_one_are_refused(name, value):
    options = {"block_size": BLOCK, name: value}
    with pytest.raises(UsageError, match=f"{name} is {value!r}"):
        AlignedStateIndices(make_tables(), **options)


def test_a_cpu_tensor_is_refused_where_nothing_can_run():
    context = AlignedStateIndices(make_tables(), BLOCK)
    with pytest.raises(UsageError, match="no GPU kernel can run"):
        context.compute_aligned_state_indices(lengths(), 5)


def test_lengths_and_places_within_the_buffer_that_is_written_are_refused(host):
    context = AlignedStateIndices(make_tables(), BLOCK)
    inside = context.state_indices[0, :, 0]
    with pytest.raises(UsageError, match="state_indices shares memory with seq_lens"):
        context.compute_aligned_state_indices(inside, 4)
    with pytest.raises(UsageError, match="state_indices shares memory with idx_mapping"):
        context.compute_aligned_state_indices(lengths(), 4, inside)
    assert host.launches() == []


@pytest.mark.parametrize("blocks", [-1, -3])
def test_a_group_with_less_than_no_speculative_block_is_refused(host, blocks):
    spec = Spec(num_speculative_blocks=blocks)
    with pytest.raises(UsageError, match=f"num_speculative_blocks is {1 + blocks}"):
        mamba_get_block_table_tensor(make_tables()[0], lengths(), spec, "align")
