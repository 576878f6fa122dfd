"""The final-state write-back on a GPU."""

from __future__ import annotations

import final_state_promises as promises
import pytest
import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("last", promises.EMPTY.values(), ids=promises.EMPTY.keys())
def test_named_rows_hold_the_final_states_and_no_other_byte_changes(last, with_initial):
    promises.check_rows(last, with_initial, torch.float32, torch.bfloat16, "cuda")


@pytest.mark.parametrize("cache_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_are_stored_in_the_dtype_of_the_cache(dtype, cache_dtype):
    promises.check_rows((1, 1, 3), True, dtype, cache_dtype, "cuda")


def test_a_negative_slot_is_skipped():
    promises.check_negative_slots("cuda")
