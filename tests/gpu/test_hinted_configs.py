"""A config of another GPU that this one cannot run gives way to the next best, on a real GPU."""

from __future__ import annotations

import torch
from wide_kernels import CONFIGS, FITS, ROWS, too_large_for_this_gpu, tuned_wide

import launchkit


def in_order(call, quantiles):
    call()
    in_order.calls += 1
    return [1.0 / in_order.calls] * 3


def forbidden(call, quantiles):
    raise AssertionError("this launch must not benchmark")


def launched(kernel, x, y):
    out = torch.full((ROWS, ROWS), torch.nan, device="cuda")
    launchkit.launch_autotuned(kernel, (1,), x, y, out, x.shape[1])
    return out


def test_hint_that_needs_more_shared_memory_than_there_is_gives_way_to_the_next_best(memory_store):
    x = torch.randn(ROWS, 1024, device="cuda", dtype=torch.float16)
    y = torch.randn(1024, ROWS, device="cuda", dtype=torch.float16)
    expected = (x.double() @ y.double()).float()
    in_order.calls = 0
    launched(tuned_wide(CONFIGS[:2], in_order), x, y)
    (record,) = memory_store.records()
    store = launchkit.MemoryStore()
    store.put(too_large_for_this_gpu(record))
    launchkit.stats(reset=True)
    with launchkit.use_store(store, device="compatible"):
        kernel = tuned_wide(CONFIGS, forbidden)
        out = launched(kernel, x, y)
    torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-2)
    assert kernel.best_config.kwargs["BLOCK"] == FITS
    assert dict(launchkit.stats().configs.inexact) == {"device": 1}
