"""What the host side of the state copies refuses, and that nothing is half done then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from mamba_batches import FUNCS, batch, make_buffer, output, request
from mamba_states import Geometry, States, make_config

from launchkit.errors import UsageError
from launchkit.kernels.state_copy.batched import collect_mamba_copy_meta
from launchkit.kernels.state_copy.buffers import MambaBuffers, MambaCopyBuffers
from launchkit.kernels.state_copy.copy_specs import get_conv_copy_spec, get_temporal_copy_spec
from launchkit.kernels.state_copy.host_align import postprocess_mamba, preprocess_mamba
from launchkit.kernels.state_copy.host_all import (
    postprocess_mamba_all,
    preprocess_mamba_all_specdec,
)
from launchkit.kernels.state_copy.spec_decode import MambaSpecDecodeGPUContext
from launchkit.kernels.state_copy.staging import (
    stage_mamba_state_idx_to_gpu,
    stage_postprocess_metadata_to_gpu,
)

BLOCKS = (range(1, 9), range(1, 9))
CACHE_CONFIG = SimpleNamespace(enable_prefix_caching=True)


def step(known, scheduled, room=4, fused=False):
    """Run a step's host functions for requests a, b, ... of 4 tokens; return what they changed."""
    states = States(Geometry())
    buffers = MambaBuffers.create(room, states.config, FUNCS, make_buffer, "cpu", fused)
    rows, columns = batch(dict.fromkeys("abc", 2)), dict.fromkeys("abc", 0)
    rows.block_table = {
        group: SimpleNamespace(get_device_tensor=lambda n: torch.zeros(n, 9, dtype=torch.int32))
        for group in (1, 2)
    }
    requests = {name: request(4, *BLOCKS, req_id=name) for name in known}
    rest = (states.context, FUNCS, buffers.preprocess)

    def before():
        context = buffers.postprocess_align
        preprocess_mamba(
            output(scheduled), states.config, CACHE_CONFIG, columns, rows, requests, *rest, context
        )

    def after():
        postprocess_mamba(output(scheduled), states.config, rows, requests, columns, *rest)

    return before, after, columns, rows.num_accepted_tokens_cpu


UNKNOWN = [("ab", dict.fromkeys("abc", 5)), ("abc", dict.fromkeys("ab", 5))]


@pytest.mark.parametrize(("known", "scheduled"), UNKNOWN, ids=["request", "scheduled tokens"])
@pytest.mark.parametrize("phase", [0, 1], ids=["before", "after"])
def test_a_request_of_the_batch_that_nobody_knows_is_named(host, known, scheduled, phase):
    *phases, columns, accepted = step(known, scheduled)
    with pytest.raises(UsageError, match="request 'c' of the batch is not among") as caught:
        phases[phase]()
    assert caught.value.fields["request"] == "c"
    assert columns == dict.fromkeys("abc", 0)
    assert accepted.tolist() == [2, 2, 2]
    assert host.launches() == []


def test_a_batch_beyond_the_contexts_room_changes_nothing(host):
    before, _, columns, accepted = step("abc", dict.fromkeys("abc", 5), room=2, fused=True)
    with pytest.raises(UsageError, match="room for 2 requests, not 3"):
        before()
    assert columns == dict.fromkeys("abc", 0)
    assert accepted.tolist() == [2, 2, 2]
    assert host.launches() == []


@pytest.mark.parametrize(
    ("num_reqs", "said"), [(5, "room for 4"), (2, "has 1 requests"), (-1, "is -1")]
)
def test_rows_that_the_batch_or_the_buffers_do_not_have_are_not_staged(num_reqs, said):
    """One value would fill any number of rows, as NumPy writes it."""
    buffers = [make_buffer(4, dtype=torch.int32) for _ in range(3)]
    requests, known = {"a": request(7)}, batch({"a": 1})
    for buffer in buffers:
        buffer.np[:] = buffer.gpu[:] = 77
    for stage in (
        lambda: stage_mamba_state_idx_to_gpu({"a": 3}, ["a"], num_reqs, buffers[0]),
        lambda: stage_postprocess_metadata_to_gpu(
            output({"a": 2}), ["a"], num_reqs, requests, *buffers
        ),
        lambda: preprocess_mamba_all_specdec(output({}), known, {"a": 3}, num_reqs, buffers[0]),
    ):
        with pytest.raises(UsageError, match=said):
            stage()
    for buffer in buffers:
        assert buffer.np.tolist() == buffer.gpu.tolist() == [77] * 4


def test_unknown_requests_are_named_where_counts_are_staged_or_noted():
    buffers = [make_buffer(4, dtype=torch.int32) for _ in range(3)]
    with pytest.raises(UsageError, match="request 'a' of the batch"):
        stage_postprocess_metadata_to_gpu(output({"a": 1}), ["a"], 1, {}, *buffers)
    with pytest.raises(UsageError, match="request 'a' of the batch"):
        config = make_config(Geometry())
        postprocess_mamba_all(output({"a": 3}), config, batch({"a": 1}), {}, {}, 2, 1)


CONV, TEMPORAL = torch.zeros(5, 3, 4), torch.zeros(5, 2, 4)


@pytest.mark.parametrize(
    ("block_ids", "column", "accepted", "said"),
    [
        ([1, 2], -1, 1, "has 2 columns, not column -1"),
        ([1, 2], 2, 1, "has 2 columns, not column 2"),
        ([1, 5], 1, 1, "holds 5 in column 1 of 5 blocks"),
        ([1, -1], 1, 1, "holds -1 in column 1"),
        ([1, 2], 0, 0, "num_accepted_tokens is 0"),
    ],
)
def test_places_that_do_not_exist_are_no_copy_specification(block_ids, column, accepted, said):
    """Python and torch would count them from the end."""
    for func, state in ((get_conv_copy_spec, CONV), (get_temporal_copy_spec, TEMPORAL)):
        with pytest.raises(UsageError, match=f"{func.__name__}.*{said}"):
            func(state, block_ids, column, accepted)


def test_more_tokens_than_the_window_has_are_no_copy_specification():
    assert get_conv_copy_spec(CONV, [1, 2], 0, 4).num_elements == 0
    with pytest.raises(UsageError, match="is 5, and the window has 3 tokens"):
        get_conv_copy_spec(CONV, [1, 2], 0, 5)


@pytest.mark.parametrize("block", [-1, 64])
def test_unknown_copy_functions_do_not_get_blocks_that_do_not_exist(block):
    states, called = States(Geometry()), []
    copies = MambaCopyBuffers.create(2, states.config, FUNCS, make_buffer)
    for blocks in ((3, block), (block, 3)):
        with pytest.raises(UsageError, match=r"has block ids \[.*of 64 blocks"):
            collect_mamba_copy_meta(
                copies, states.config, (lambda *a: called.append(a),) * 2,
                copies.mamba_group_ids, 0, 1, 0, request(0, (1, 2), blocks), states.context,
            )  # fmt: skip
    assert not called
    assert copies.offset == 0


def test_a_copy_of_two_gib_by_an_unknown_function_is_refused():
    states = States(Geometry())
    copies = MambaCopyBuffers.create(2, states.config, FUNCS, make_buffer)
    huge = SimpleNamespace(start_addr=1, num_elements=2**31)
    with pytest.raises(UsageError, match="below 2 GiB"):
        collect_mamba_copy_meta(
            copies, states.config, (lambda *a: huge,) * 2, copies.mamba_group_ids, 0, 1, 0,
            request(0, (1, 2), (3, 4)), states.context,
        )  # fmt: skip
    assert copies.offset == 0


WRONG_COUNTS = {
    "one for all": (torch.ones(1, dtype=torch.int32), r"has shape \(1,\)"),
    "a number": (torch.tensor(3, dtype=torch.int32), r"has shape \(\)"),
    "floats": (torch.ones(4), "is float32"),
    "none": (None, "is a NoneType"),
}


@pytest.mark.parametrize(("counts", "said"), WRONG_COUNTS.values(), ids=WRONG_COUNTS.keys())
def test_accepted_counts_that_do_not_fit_change_no_count(host, counts, said):
    states, ones = States(Geometry()), torch.ones(4, dtype=torch.int32)
    context = MambaSpecDecodeGPUContext.create(4, states.config, FUNCS, "cpu", make_buffer)
    tables = [torch.zeros(4, 9, dtype=torch.int32) for _ in range(context.num_groups)]
    context.initialize_from_forward_context(states.config, states.context, FUNCS, tables)
    context.num_accepted_tokens_out[:] = 77
    with pytest.raises(UsageError, match=f"num_accepted_tokens_gpu {said}"):
        context.run_fused_postprocess(3, counts, ones, ones, ones, ones)
    if said != r"has shape \(1,\)":
        with pytest.raises(UsageError, match=f"num_accepted_tokens_gpu {said}"):
            context.run_fused_postprocess_align(3, counts, ones, ones, ones)
    with pytest.raises(UsageError, match="not -1"):
        context.run_fused_precopy(-1, ones, ones, ones, None)
    assert context.num_accepted_tokens_out.tolist() == [77] * 4
    assert host.launches() == []
