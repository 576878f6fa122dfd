"""The device context: groups, binding, staging, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from mamba_batches import FUNCS, batch, make_buffer, output, request
from mamba_states import AttentionSpec, Geometry, Spec, States

from launchkit.errors import UsageError
from launchkit.kernels.state_copy import copy_specs
from launchkit.kernels.state_copy.buffers import MambaBuffers
from launchkit.kernels.state_copy.copy_specs import (
    get_conv_copy_spec,
    get_temporal_copy_spec,
    register_copy_func,
    set_conv_state_layout,
)
from launchkit.kernels.state_copy.groups import copy_funcs_for, get_mamba_groups
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext
from launchkit.kernels.state_copy.staging import (
    postprocess_mamba_align_gpu,
    stage_postprocess_inputs_to_gpu,
)


def config(*specs):
    return SimpleNamespace(
        kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec, layer_names=["l"]) for spec in specs]
    )


def tables(count, columns=9):
    return [torch.zeros(4, columns, dtype=torch.int32) for _ in range(count)]


def bound(states, block_tables=None, funcs=FUNCS):
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    context.initialize_from_forward_context(
        states.config, states.context, funcs, block_tables or tables(context.num_groups)
    )
    return context


def test_mamba_groups_are_told_from_others():
    spec = Spec(4, 2)
    uniform = SimpleNamespace(kv_cache_specs={"l": Spec(4, 2), "m": Spec(4, 2)}, block_size=4)
    assert get_mamba_groups(config(AttentionSpec(), spec, uniform)) == ([1, 2], spec)


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ((AttentionSpec(),), "no group of Mamba layers"),
        ((Spec(4, 2), AttentionSpec(), Spec(8, 2)), "groups 0 and 2 have different"),
        ((SimpleNamespace(kv_cache_specs={"a": Spec(4, 2), "b": Spec(4, 1)}),), "different"),
    ],
)
def test_groups_that_cannot_be_handled_together_are_refused(specs, said):
    with pytest.raises(UsageError, match=said):
        get_mamba_groups(config(*specs))


def test_copy_functions_may_be_given_by_type():
    assert copy_funcs_for(Spec(4, 2), {"mamba2": FUNCS, "gdn": ()}) == FUNCS
    with pytest.raises(UsageError, match="mamba_type 'mamba2'"):
        copy_funcs_for(Spec(4, 2), {"gdn": FUNCS})


@pytest.mark.parametrize("dim_first", [False, True])
def test_bound_facts_are_the_states(dim_first):
    states = States(Geometry(groups=2, layers=2, dim_first=dim_first))
    set_conv_state_layout("DS" if dim_first else "SD")
    try:
        table = bound(states).states
    finally:
        set_conv_state_layout("SD")
    flat = [s for name in ("g0.0", "g0.1", "g1.0", "g1.1") for s in states.context[name].kv_cache]
    assert table.base_addrs.tolist() == [state.data_ptr() for state in flat]
    assert table.block_strides.tolist() == [states.page_bytes] * 8
    assert table.group_indices.tolist() == [0] * 4 + [1] * 4
    assert table.conv_widths.tolist() == [5, 0] * 4
    assert table.elem_sizes.tolist() == [2, 4] * 4
    assert table.inner_sizes.tolist()[1::2] == [30] * 4
    assert table.dim_row_counts.tolist() == [7 if dim_first else 0, 0] * 4


def test_binding_happens_once_and_holds_the_tensors():
    states, first = States(Geometry()), tables(2)
    context = bound(states, first)
    held = context.states
    context.initialize_from_forward_context(config(), {}, (), [])
    assert context.states is held
    pointers = [table.data_ptr() for table in first]
    assert context.tables.pointers.tolist() == pointers
    assert [table.data_ptr() for table in context.tables.tables] == pointers
    context.is_initialized = False
    other = tables(2)
    context.initialize_from_forward_context(states.config, states.context, FUNCS, other)
    assert context.tables.pointers.tolist() == [table.data_ptr() for table in other]


def two_dimensional(states):
    states.context["g1.0"].kv_cache[0] = torch.zeros(64, 35)


def too_few(states):
    states.context["g1.0"].kv_cache.pop()


def with_gaps(states):
    states.context["g1.0"].kv_cache[1] = torch.zeros(64, 3, 5, 4)[..., ::2]


def not_there(states):
    del states.context["g1.0"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (two_dimensional, r"conv state of shape \(64, 35\), not 3-D"),
        (too_few, "1 state tensors for 2 copy functions"),
        (with_gaps, "no gaps"),
        (not_there, "not in the forward context"),
    ],
)
def test_states_that_do_not_fit_are_refused_by_layer(spoil, said):
    states = States(Geometry())
    spoil(states)
    with pytest.raises(UsageError, match=said) as caught:
        bound(states)
    assert caught.value.fields["layer"] == "g1.0"


@pytest.mark.parametrize(
    ("block_tables", "said"),
    [
        (tables(1), "has 2 Mamba groups, not 1"),
        ([*tables(1), *tables(1, columns=10)], "one pitch"),
        ([table.long() for table in tables(2)], "int64"),
        ([table[:0] for table in tables(2)], "without elements"),
    ],
)
def test_block_tables_that_do_not_fit_are_refused(block_tables, said):
    with pytest.raises(UsageError, match=said):
        bound(States(Geometry()), block_tables)


def test_refused_binding_can_be_tried_again():
    states = States(Geometry())
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    with pytest.raises(UsageError):
        context.initialize_from_forward_context(states.config, states.context, FUNCS, tables(1))
    assert not context.is_initialized
    context.initialize_from_forward_context(states.config, states.context, FUNCS, tables(2))
    assert context.is_initialized


def test_copy_functions_are_recognised_by_identity(monkeypatch):
    monkeypatch.setattr(copy_specs, "_kinds", dict(copy_specs._kinds))

    def theirs(*args):
        return get_conv_copy_spec(*args)

    states = States(Geometry())
    with pytest.raises(UsageError, match=r"unknown copy function.*register_copy_func"):
        bound(states, funcs=(theirs, get_temporal_copy_spec))
    register_copy_func(theirs, "conv")
    assert bound(states, funcs=(theirs, get_temporal_copy_spec)).states.conv_widths[0] == 5
    with pytest.raises(UsageError, match='"conv" or "temporal"'):
        register_copy_func(theirs, "ring")


def test_layout_is_one_of_two():
    with pytest.raises(UsageError, match='"SD" or "DS"'):
        set_conv_state_layout("DSD")


def run_all(context, num_reqs):
    ints = [torch.ones(4, dtype=torch.int32) for _ in range(6)]
    context.run_fused_preprocess(num_reqs, *ints, torch.ones(4, dtype=torch.int32))
    context.run_fused_precopy(num_reqs, *ints[:4])
    context.run_fused_precopy(num_reqs, *ints[:3], None)
    context.run_fused_postprocess(num_reqs, *ints[:5])
    context.run_fused_postprocess_align(num_reqs, *ints[:4])


def test_nothing_runs_without_requests_or_before_it_is_bound(host):
    states = States(Geometry())
    run_all(MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer), 3)
    run_all(bound(states), 0)
    assert host.launches() == []


def test_each_run_is_one_launch(host):
    run_all(bound(States(Geometry())), 3)
    prepared, *copies = [launch.grid for launch in host.launches()]
    assert prepared == (1, 1, 1)
    assert copies == [(4, 3, 1)] * 4


def test_more_requests_than_there_is_room_for_are_refused():
    with pytest.raises(UsageError, match="room for 4 requests, not 5"):
        run_all(bound(States(Geometry())), 5)


def test_counts_of_more_slots_than_there_is_room_for_are_refused():
    ones = torch.ones(5, dtype=torch.int32)
    with pytest.raises(UsageError, match="room for 4 slots, not 5"):
        bound(States(Geometry())).run_fused_postprocess_align(3, ones, ones, ones, ones)


def test_state_indices_are_those_of_the_bound_tables(host):
    whole = tables(2)
    context = bound(States(Geometry()), [table[:1] for table in whole])
    lengths = torch.ones(4, dtype=torch.int32)
    found = context.compute_aligned_state_indices(lengths, 4)
    assert found.shape == (2, 4, 3)
    assert context.compute_aligned_state_indices(lengths, 4) is found
    pointers = context.tables.pointers.tolist()
    assert pointers == [table.data_ptr() for table in whole]
    assert len(host.launches()) == 2


def test_state_indices_need_bound_tables():
    states = States(Geometry())
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    with pytest.raises(UsageError, match="not bound"):
        context.compute_aligned_state_indices(torch.ones(4, dtype=torch.int32), 1)


def test_everything_is_staged_in_batch_order_and_no_further():
    states = States(Geometry())
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    requests = {"a": request(10), "b": request(20), "c": request(30)}
    stage_postprocess_inputs_to_gpu(
        context, output({"a": 1, "b": 3, "c": 5}, {"b": 2}), ["b", "a", "c"], 2, requests,
        {"a": 4, "b": 6},
    )  # fmt: skip
    staged = (
        context.mamba_state_idx_buf, context.num_scheduled_tokens_buf,
        context.num_computed_tokens_buf, context.num_draft_tokens_buf,
    )  # fmt: skip
    wanted = [[6, 4, 0, 0], [3, 1, 0, 0], [20, 10, 0, 0], [2, 0, 0, 0]]
    assert [buffer.gpu.tolist() for buffer in staged] == wanted


def test_staging_names_a_request_without_a_column():
    states = States(Geometry())
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    with pytest.raises(UsageError, match="no entry for request 'b'") as caught:
        stage_postprocess_inputs_to_gpu(context, output({}), ["a", "b"], 2, {}, {"a": 4})
    assert caught.value.fields["request"] == "b"


def postprocess(states, buffers, num_reqs=2):
    rows = batch(dict.fromkeys("ab"[:num_reqs], 1))
    block_tables = dict(zip((1, 2), tables(2), strict=True))
    rows.block_table = {
        group: SimpleNamespace(get_device_tensor=lambda n, t=table: t[:n])
        for group, table in block_tables.items()
    }
    read_back = torch.full((4,), -7, dtype=torch.int32)
    postprocess_mamba_align_gpu(
        bufs=buffers, num_reqs=num_reqs,
        num_accepted_tokens_gpu=torch.tensor([3, 2, 9, 9], dtype=torch.int32),
        num_accepted_tokens_cpu_tensor=read_back, input_batch=rows, kv_cache_config=states.config,
        forward_context=states.context, mamba_state_copy_funcs=FUNCS,
    )  # fmt: skip
    return read_back.tolist()


def test_postprocess_binds_on_first_use_and_reads_counts_back(host):
    states = States(Geometry())
    buffers = MambaBuffers.create(4, states.config, FUNCS, make_buffer, "cpu", True)
    assert postprocess(states, buffers) == [3, 2, -7, -7]
    held = buffers.postprocess_align.states
    assert postprocess(states, buffers, num_reqs=1) == [3, -7, -7, -7]
    assert buffers.postprocess_align.states is held
    assert len(host.launches()) == 2


def test_step_without_requests_binds_addresses_all_the_same(host):
    states = States(Geometry())
    buffers = MambaBuffers.create(4, states.config, FUNCS, make_buffer, "cpu", True)
    assert postprocess(states, buffers, num_reqs=0) == [-7] * 4
    assert all(buffers.postprocess_align.tables.pointers.tolist())
    assert host.launches() == []


def test_postprocess_without_a_context_says_how_to_make_one():
    states = States(Geometry())
    buffers = MambaBuffers.create(4, states.config, FUNCS, make_buffer, "cpu", False)
    with pytest.raises(UsageError, match="with_postprocess_align=True"):
        postprocess(states, buffers)
