"""The "all" mode on the host: the noted columns and their staging."""

from __future__ import annotations

import pytest
import torch
from mamba_batches import batch, make_buffer, output, request
from mamba_states import Geometry, make_config

from launchkit.kernels.state_copy.host_all import (
    postprocess_mamba_all,
    preprocess_mamba_all_specdec,
)

CONFIG = make_config(Geometry(block_size=4))


def note(columns, computed, scheduled, num_spec_tokens, num_reqs=1):
    rows = batch(dict.fromkeys(scheduled, 1))
    requests = {name: request(tokens) for name, tokens in computed.items()}
    postprocess_mamba_all(
        output(scheduled), CONFIG, rows, requests, columns, num_spec_tokens, num_reqs
    )
    return columns


@pytest.mark.parametrize(("computed", "column"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 2)])
def test_column_of_the_last_scheduled_token_is_noted(computed, column):
    assert note({}, {"a": computed}, {"a": 3}, 2) == {"a": column}


def test_request_that_was_not_scheduled_in_full_is_forgotten():
    known = {"a": 5, "b": 6, "c": 7}
    computed = dict.fromkeys("abc", 9)
    assert note(known, computed, {"a": 2, "b": 3, "c": 2}, 2, num_reqs=2) == {"b": 2, "c": 7}


def test_nothing_is_noted_without_speculative_tokens():
    assert note({"a": 5}, {"a": 9}, {"a": 1}, 0) == {"a": 5}


def test_noted_columns_are_staged_and_the_rest_is_none():
    buffer = make_buffer(5, dtype=torch.int32)
    buffer.np[:] = 77
    columns = {"a": 3, "gone": 4, "c": 1}
    preprocess_mamba_all_specdec(
        output({}, finished=["gone"]), batch({"a": 1, "b": 1, "c": 1}), columns, 2, buffer
    )
    assert buffer.gpu.tolist() == buffer.np.tolist() == [3, -1, -1, -1, -1]
    assert columns == {"a": 3, "c": 1}
