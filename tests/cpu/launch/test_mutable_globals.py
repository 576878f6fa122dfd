"""A global that changes in place ends shortcuts, as one that is replaced does."""

from __future__ import annotations

import functools

import mutable_globals
import pytest
import torch
from launching import counted_runs, outcome, triton_launch

import launchkit

pytestmark = pytest.mark.usefixtures("each_core", "host")

# What changes, and how it is changed back.
CHANGES = {
    "listed": (lambda m: m.LISTED.value.append(3), lambda m: m.LISTED.value.pop()),
    "nested": (lambda m: m.NESTED.value[1][1].append(4), lambda m: m.NESTED.value[1][1].pop()),
    "mapped": (
        lambda m: m.MAPPED.value.update(offset=2),
        lambda m: m.MAPPED.value.update(offset=1),
    ),
    "members": (lambda m: m.MEMBERS.value.add(3), lambda m: m.MEMBERS.value.remove(3)),
    "empty": (lambda m: m.EMPTY.value.append(1), lambda m: m.EMPTY.value.pop()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_launches_and_frozen_handles_raise_as_triton_until_it_is_as_it_was(name):
    kernel = getattr(mutable_globals, name)
    change, restore = CHANGES[name]
    x = torch.empty(64)
    handle = launchkit.freeze(kernel, (1,), x, 3)
    calls = (
        functools.partial(triton_launch, kernel, (1,), (x, 3), {}),
        functools.partial(launchkit.launch, kernel, (1,), x, 3),
        handle,
    )
    for call in calls * 2:
        assert outcome(call)[0] is handle.compiled
    change(mutable_globals)
    try:
        assert [outcome(call) for call in calls] == [RuntimeError] * 3
    finally:
        restore(mutable_globals)
    for call in calls:
        assert outcome(call)[0] is handle.compiled


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "members"])
def test_as_long_as_it_stays_launches_take_no_run_of_triton(name):
    kernel, x = getattr(mutable_globals, name), torch.empty(64)
    handle = launchkit.freeze(kernel, (1,), x, 3)
    for _ in range(2):
        launchkit.launch(kernel, (1,), x, 3)
    with counted_runs() as runs:
        launchkit.launch(kernel, (1,), x, 3)
        handle()
    assert runs.total == 0
