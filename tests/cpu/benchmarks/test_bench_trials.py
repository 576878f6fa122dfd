"""Random trials over processes: which there are depends on the seed alone, and none is lost."""

from __future__ import annotations

import os

import pytest

from launchkit.benchmarks import trials
from launchkit.errors import LaunchkitError


def test_chunks_hold_every_trial_once_and_begin_with_each_kind():
    chunks = list(trials.chunks(("a", "b", "c"), 30_001, 9, 5000))
    found = [(c.kind, n) for c in chunks for n in range(c.first, c.first + c.count)]
    assert len(found) == len(set(found)) == 30_001
    assert max(chunk.count for chunk in chunks) == 5000
    assert [(chunk.kind, chunk.first) for chunk in chunks[:3]] == [("a", 0), ("b", 0), ("c", 0)]
    assert {chunk.seed for chunk in chunks} == {9}


def test_process_that_dies_is_an_error_with_the_given_text():
    with pytest.raises(LaunchkitError, match="it died"):
        list(trials.run_all(os._exit, [3], 1, lambda: "it died"))
