"""The benchmark of state indices on a GPU: what is compared does the same, and is timed there."""

from __future__ import annotations

import torch

from launchkit.benchmarks import indices


def test_variants_find_the_same():
    tables = indices._tables("cuda")
    for requests in (1, 33, 256):
        calls = indices.calls(tables, requests)
        found = {name: torch.stack(list(call())) for name, call in calls.items()}
        assert all(torch.equal(each, found["launchkit"]) for each in found.values())


def test_rows_of_a_gpu_hold_its_own_times():
    document = indices.measure((7,), 2)
    assert document["mode"] == "cuda"
    assert all(row["gpu_median_us"] > 0 for row in document["rows"])
    assert len(document["ratios"]) == 6
