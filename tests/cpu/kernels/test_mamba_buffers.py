"""Staging buffers, the lists of batched copies, and which buffers a cache mode needs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from mamba_batches import FUNCS, make_buffer, request
from mamba_states import Geometry, States

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.batch_plan import Move
from launchkit.kernels.state_copy.batched import (
    collect_mamba_copy_meta,
    collect_moves,
    do_mamba_copy_block,
)
from launchkit.kernels.state_copy.buffers import CpuGpuBuffer, MambaBuffers, MambaCopyBuffers
from launchkit.kernels.state_copy.copy_specs import set_conv_state_layout

GROUPS, LAYERS = 2, 3
BLOCKS = ((5, 9, 2, 7), (3, 1, 8, 4))


@pytest.fixture
def states():
    return States(Geometry(groups=GROUPS, layers=LAYERS))


@pytest.fixture
def copies(states):
    return MambaCopyBuffers.create(2, states.config, FUNCS, make_buffer)


@pytest.fixture
def dim_first():
    set_conv_state_layout("DS")
    yield
    set_conv_state_layout("SD")


def collect(copies, states, src, dst, bias, req=None, funcs=FUNCS):
    collect_mamba_copy_meta(
        copies, states.config, funcs, copies.mamba_group_ids, src, dst, bias,
        req or request(0, *BLOCKS), states.context,
    )  # fmt: skip


def called(states, src, dst, bias):
    """What the copy functions say when each is called for each state."""
    rows = []
    for group in (1, 2):
        blocks = BLOCKS[group - 1]
        for name in states.config.kv_cache_groups[group].layer_names:
            for state, func in zip(states.context[name].kv_cache, FUNCS, strict=True):
                spec = func(state, blocks, src, bias + 1)
                size = spec.num_elements * state.element_size()
                rows.append((spec.start_addr, state[blocks[dst]].data_ptr(), size))
    return rows


def listed(copies):
    columns = (copies.src_ptrs.np, copies.dst_ptrs.np, copies.sizes.np)
    return list(zip(*(column[: copies.offset].tolist() for column in columns), strict=True))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint64, torch.bool, torch.float32], ids=str)
def test_buffer_copies_the_first_elements_both_ways_and_no_others(dtype):
    buffer = CpuGpuBuffer(7, dtype=dtype, device="cpu")
    assert not buffer.cpu.is_pinned()
    buffer.np[:] = 1
    first = buffer.copy_to_gpu(3)
    assert first.tolist() == [1] * 3
    assert first.data_ptr() == buffer.gpu.data_ptr()
    assert buffer.gpu.tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert buffer.copy_to_gpu(3) is first
    buffer.gpu.zero_()
    buffer.copy_to_cpu(2)
    assert buffer.np.tolist() == [0, 0, 1, 1, 1, 1, 1]
    buffer.copy_to_gpu()
    assert buffer.gpu.tolist() == [0, 0, 1, 1, 1, 1, 1]


def test_buffer_keeps_no_more_views_than_it_may():
    buffer = CpuGpuBuffer(3000, dtype=torch.int32, device="cpu")
    buffer.np[:] = np.arange(3000)
    for n in range(3000):
        assert buffer.copy_to_gpu(n).shape == (n,)
    assert len(buffer._views) <= 1024
    assert buffer.gpu.tolist() == [*range(2999), 0]


@pytest.mark.parametrize("n", [-1, 8])
def test_buffer_refuses_more_elements_than_it_has(n):
    with pytest.raises(UsageError, match="Pass 0 to 7") as caught:
        CpuGpuBuffer(7, dtype=torch.int32, device="cpu").copy_to_gpu(n)
    assert caught.value.fields["argument"] == "n"


def test_buffer_refuses_a_dtype_that_numpy_does_not_have():
    with pytest.raises(UsageError, match="bfloat16"):
        CpuGpuBuffer(7, dtype=torch.bfloat16, device="cpu")


def test_copy_buffers_hold_every_state_of_every_request(states, copies):
    assert len(copies.src_ptrs.np) == len(copies.dst_ptrs.np) == 2 * GROUPS * LAYERS * 2
    assert (copies.src_ptrs.np.dtype, copies.sizes.np.dtype) == (np.uint64, np.int32)
    assert (copies.mamba_group_ids, copies.mamba_spec.block_size) == ([1, 2], 4)


def test_device_context_is_made_for_speculative_decoding_only(states):
    args = (4, states.config, FUNCS, make_buffer, "cpu")
    assert MambaBuffers.create(*args, False).postprocess_align is None
    context = MambaBuffers.create(*args, True).postprocess_align
    assert (context.max_num_reqs, context.num_states, context.num_groups) == (4, 12, 2)


@pytest.mark.parametrize(("src", "dst", "bias"), [(0, 1, 0), (1, 2, 2), (2, 2, 1), (0, 3, 1)])
def test_collected_copies_are_those_of_the_copy_functions(states, copies, src, dst, bias):
    collect(copies, states, src, dst, bias)
    collect(copies, states, 0, 1, 0)
    assert listed(copies) == called(states, src, dst, bias) + called(states, 0, 1, 0)


def test_copy_functions_that_are_not_known_are_called(states, copies):
    unknown = [lambda *args, func=func: func(*args) for func in FUNCS]
    collect(copies, states, 1, 2, 2, funcs=unknown)
    assert listed(copies) == called(states, 1, 2, 2)


def test_whole_blocks_of_the_dim_first_layout_are_copied(dim_first):
    states = States(Geometry(groups=GROUPS, layers=LAYERS, dim_first=True))
    copies = MambaCopyBuffers.create(1, states.config, FUNCS, make_buffer)
    collect(copies, states, 1, 2, 0)
    assert listed(copies) == called(states, 1, 2, 0)
    with pytest.raises(UsageError, match="row by row") as caught:
        collect(copies, states, 1, 2, 1)
    assert caught.value.fields["num_accepted_tokens"] == 2


def test_nothing_is_collected_for_a_move_that_is_none(states, copies):
    collect(copies, states, 2, 2, 0)
    assert copies.offset == 0


def test_many_moves_are_collected_as_one_by_one(states, copies):
    other = MambaCopyBuffers.create(2, states.config, FUNCS, make_buffer)
    moves = [Move(1, 2, 2, request(0, *BLOCKS)), Move(0, 3, 0, request(0, *BLOCKS[::-1]))]
    collect_moves(copies, states.config, FUNCS, (1, 2), moves, states.context)
    for src, dst, bias, req in moves:
        collect(other, states, src, dst, bias, req)
    assert listed(copies) == listed(other)


def test_shift_as_long_as_the_conv_window_copies_no_bytes_of_it(copies):
    states = States(Geometry(groups=GROUPS, layers=LAYERS, width=2))
    collect(copies, states, 0, 1, 2)
    assert [size for _, _, size in listed(copies)][::2] == [0] * GROUPS * LAYERS
    with pytest.raises(UsageError, match="window of 2 tokens"):
        collect(copies, states, 0, 0, 3)


def test_tensors_that_a_layer_holds_instead_are_noticed(states, copies):
    collect(copies, states, 0, 1, 0)
    other = States(Geometry(groups=GROUPS, layers=LAYERS), seed=1)
    states.context["g1.2"].kv_cache[1] = other.context["g1.2"].kv_cache[1]
    states.context["g0.0"].kv_cache = other.context["g0.0"].kv_cache
    copies.offset = 0
    collect(copies, states, 0, 1, 0)
    assert listed(copies) == called(states, 0, 1, 0)


@pytest.mark.parametrize(
    ("src", "dst", "bias", "said"),
    [
        (0, 4, 0, "has 4 blocks in group 1"),
        (2, 0, 2, "has 4 blocks in group 1"),
        (-1, 0, 0, "negative"),
        (0, -1, 0, "negative"),
        (1, 0, -1, "negative"),
    ],
)
def test_columns_that_do_not_exist_are_refused(states, copies, src, dst, bias, said):
    with pytest.raises(UsageError, match=said) as caught:
        collect(copies, states, src, dst, bias)
    assert caught.value.fields["request"] == "a"
    assert copies.offset == 0


@pytest.mark.parametrize("block", [-1, 64, 2**40])
def test_block_ids_that_do_not_exist_are_refused(states, copies, block):
    with pytest.raises(UsageError, match="of 64 blocks"):
        collect(copies, states, 0, 1, 0, request(0, BLOCKS[0], (3, block)))


def test_full_buffers_are_refused_and_keep_what_they_hold(states, copies):
    collect(copies, states, 0, 1, 0)
    collect(copies, states, 1, 2, 0)
    before = listed(copies)
    with pytest.raises(UsageError, match="36 copies do not fit into buffers of 24"):
        collect(copies, states, 2, 3, 0)
    assert listed(copies) == before


def test_addresses_wrap_in_64_bits_and_no_sooner(states, copies):
    collect(copies, states, 0, 1, 0)
    formula = copies.plan.formula
    wide = dataclasses.replace(
        formula,
        base=np.full(12, 2**63 + 2**40, np.uint64),
        block_stride=np.full(12, 2**33 + 6, np.uint64),
    )
    blocks = np.array([[1, 5, 63, 2, 6, 62]])
    src, dst, _ = wide.addresses([Move(1, 2, 2, request(0))], blocks)
    base, stride, shift = 2**63 + 2**40, 2**33 + 6, 2 * 7 * 2
    first = [base + 1 * stride + shift, base + 5 * stride]
    second = [base + 2 * stride + shift, base + 6 * stride]
    assert src.tolist() == [first * LAYERS + second * LAYERS]
    assert dst.tolist() == [[base + 63 * stride] * 6 + [base + 62 * stride] * 6]


def test_copies_are_one_launch_and_none_if_there_are_none(host, states, copies):
    do_mamba_copy_block(copies)
    assert host.launches() == []
    collect(copies, states, 0, 1, 0)
    collect(copies, states, 1, 2, 1)
    do_mamba_copy_block(copies)
    (launch,) = host.launches()
    assert launch.grid[0] % 24 == 0
    assert int.from_bytes(launch.params[0], "little") == copies.src_ptrs.gpu.data_ptr()
    assert copies.src_ptrs.gpu.tolist() == copies.src_ptrs.np.tolist()
