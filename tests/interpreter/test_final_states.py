"""The final-state write-back in Triton's interpreter."""

from __future__ import annotations

import final_state_promises as promises
import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("with_initial", [False, True])
@pytest.mark.parametrize("last", promises.EMPTY.values(), ids=promises.EMPTY.keys())
def test_named_rows_hold_the_final_states_and_no_other_byte_changes(last, with_initial):
    promises.check_rows(last, with_initial, torch.float32, torch.float16, "cpu")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_states_are_stored_in_the_dtype_of_the_cache(dtype):
    promises.check_rows((1, 1, 3), True, torch.float16, dtype, "cpu")


def test_a_negative_slot_is_skipped():
    promises.check_negative_slots("cpu")
