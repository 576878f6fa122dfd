"""Launches on a real GPU: values, tuning, streams, graphs and the store."""

from __future__ import annotations

import random

import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from launching import counted_runs

import launchkit
from launchkit import hostonly
from launchkit.errors import CaptureError, HostOnlyError


@triton.jit
def add_one_in_place(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 1, mask=mask)


def forbidden(*args, **kwargs):
    raise AssertionError("this launch must not benchmark")


def quick_bench(call, quantiles):
    return triton.testing.do_bench(call, warmup=1, rep=3, quantiles=quantiles)


def tuned_copy(bench=quick_bench, blocks=(64, 128)):
    return launchkit.autotuned(
        configs=sample_kernels.configs(*blocks), key=["n"], name="test.copy", do_bench=bench
    )(sample_kernels.copy)


def blocks_of(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def test_outputs_equal_a_plain_copy_for_random_views():
    rng = random.Random(1)
    kernel = tuned_copy(blocks=(64,))
    source = torch.randn(40_000, device="cuda")
    for _ in range(300):
        n, stride, shift = rng.randrange(1, 4000), rng.choice((1, 2, 3, 5)), rng.randrange(0, 9)
        x = source[shift:]
        y = torch.full((n + 64,), float("nan"), device="cuda")
        kernel[blocks_of(n)](x, y[rng.choice((0, 1)) :], n, stride=stride)
        launchkit.launch_autotuned(kernel, blocks_of(n), x_ptr=x, y_ptr=y[16:], n=n, stride=stride)
        expected = x[: n * stride : stride]
        assert torch.equal(y[16 : 16 + n], expected)
        assert y[16 + n :].isnan().all()


def test_tuning_measures_every_config_and_a_warm_store_needs_no_benchmark(memory_store):
    x, y = torch.randn(5000, device="cuda"), torch.empty(5000, device="cuda")
    first = tuned_copy()
    first[blocks_of(5000)](x, y, 5000, stride=1)
    (record,) = list(memory_store.records())
    assert [tuned.ok for tuned in record.configs] == [True, True]
    assert record.device.name == torch.cuda.get_device_name()
    assert record.device.shared_bytes > 0
    assert record.device.memory_gib > 0
    y.fill_(float("nan"))
    second = tuned_copy(bench=forbidden)
    second[blocks_of(5000)](x, y, 5000, stride=1)
    assert torch.equal(x, y)
    assert second.best_config.all_kwargs() == first.best_config.all_kwargs()


def test_tuning_an_in_place_kernel_leaves_exactly_one_update():
    kernel = launchkit.autotuned(
        configs=sample_kernels.configs(64, 128), key=["n"], restore_value=["x_ptr"],
        do_bench=quick_bench,
    )(add_one_in_place)  # fmt: skip
    x = torch.arange(1000, dtype=torch.float32, device="cuda")
    kernel[blocks_of(1000)](x, 1000)
    assert torch.equal(x, torch.arange(1, 1001, dtype=torch.float32, device="cuda"))


def test_hit_is_captured_and_replayed():
    kernel = tuned_copy()
    x, y = torch.zeros(2048, device="cuda"), torch.zeros(2048, device="cuda")
    kernel[blocks_of(2048)](x, y, 2048, stride=1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[blocks_of(2048)](x, y, 2048, stride=1)
        launchkit.launch_autotuned(kernel, blocks_of(1024), y, x, n=2048, stride=1)
    x.copy_(torch.randn(2048, device="cuda"))
    expected = x.clone()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, expected)


def test_miss_that_would_benchmark_raises_and_the_capture_survives():
    cold, warm = tuned_copy(bench=forbidden), tuned_copy()
    # The warm kernel's choice for 512 is in the store: 500 is a key that nobody has tuned.
    x, y = torch.randn(512, device="cuda"), torch.zeros(512, device="cuda")
    warm[blocks_of(512)](x, y, 512, stride=1)
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(CaptureError):
            cold[blocks_of(500)](x, y, 500, stride=1)
        warm[blocks_of(512)](x, y, 512, stride=1)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, y)


def test_launches_go_to_the_current_stream():
    kernel = tuned_copy()
    x, y = torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    kernel[blocks_of(4096)](x, y, 4096, stride=1)
    side = torch.cuda.Stream()
    x.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
        x.add_(1)
        kernel[blocks_of(4096)](x, y, 4096, stride=1)
        done_early = side.query()
    torch.cuda.synchronize()
    assert not done_early
    assert torch.equal(x, y)


def test_pageable_tensor_is_refused_and_pinned_accepted_as_by_triton():
    kernel = tuned_copy(blocks=(64,))
    device = torch.zeros(64, device="cuda")
    kernel[(1,)](torch.zeros(64, device="cuda"), device, 64, stride=1)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        kernel[(1,)](torch.zeros(64), device, 64, stride=1)
    pinned = torch.arange(64, dtype=torch.float32).pin_memory()
    kernel[(1,)](pinned, device, 64, stride=1)
    assert torch.equal(device.cpu(), pinned)


def copied_on(kernel, device):
    """Copy with ``kernel`` on one GPU, check what arrived there, and return what was launched."""
    with torch.cuda.device(device):
        x, y = torch.randn(999, device=device), torch.zeros(999, device=device)
        compiled = kernel[blocks_of(999)](x, y, 999, stride=1)
        torch.cuda.synchronize()
    assert y.device == torch.device(device)
    assert torch.equal(x, y)
    return compiled


def test_two_gpus_launch_a_compiled_kernel_each_and_share_the_choice_if_alike(memory_store):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA GPUs")
    kernel, devices = tuned_copy(), ("cuda:0", "cuda:1")
    first = [copied_on(kernel, device) for device in devices]
    assert first[0] is not first[1]
    with counted_runs() as runs:
        again = [copied_on(kernel, device) for device in devices]
    assert runs.total == 0
    assert [a is b for a, b in zip(again, first, strict=True)] == [True, True]
    stored = sorted(record.device.name for record in memory_store.records())
    assert stored == sorted({torch.cuda.get_device_name(device) for device in devices})


def test_recorded_launches_are_counted_by_kernel_and_range():
    kernel = tuned_copy(blocks=(64,))
    x, y = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
    kernel[(1,)](x, y, 64, stride=1)
    with launchkit.profile_launches() as profile:
        for layer in (3, 4):
            with launchkit.annotate("mixer", layer=layer):
                for _ in range(5):
                    kernel[(1,)](x, y, 64, stride=1)
    assert [(row.layer, row.launches) for row in sorted(profile.rows, key=lambda r: r.layer)] == [
        (3, 5), (4, 5),
    ]  # fmt: skip
    assert not profile.host_only


def test_host_only_mode_is_refused_beside_a_real_driver():
    with pytest.raises(HostOnlyError) as refused:
        hostonly.activate()
    assert refused.value.fields["reason"] in ("real_driver", "real_device")
    assert not hostonly.is_active()
