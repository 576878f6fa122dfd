"""Frozen launches and declared grids on a real GPU: values, graphs, streams, devices."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import sample_kernels
import torch
import triton
from launching import counted_runs
from triton import knobs

import launchkit
from launchkit.errors import FrozenArgumentError

BY_BLOCKS = launchkit.grid(launchkit.cdiv("n", "BLOCK"))


def nan(n, device="cuda"):
    return torch.full((n,), float("nan"), device=device)


def frozen_copy(x, y, n, stride=1, **options):
    return launchkit.freeze(
        sample_kernels.copy, BY_BLOCKS, x, y, n, stride, BLOCK=64,
        varying=("x_ptr", "y_ptr", "n"), **options,
    )  # fmt: skip


def test_declared_grid_covers_random_sizes_and_no_more():
    rng = random.Random(1)
    kernel = launchkit.autotuned(sample_kernels.configs(64), ["n"])(sample_kernels.copy)
    x = torch.randn(10_000, device="cuda")
    for _ in range(100):
        n, stride = rng.randrange(1, 3000), rng.choice((1, 2, 3))
        for launched, options in ((kernel, {}), (sample_kernels.copy, {"BLOCK": 64})):
            y = nan(n + 64)
            launched[BY_BLOCKS](x, y, n, stride, **options)
            assert torch.equal(y[:n], x[: n * stride : stride])
            assert y[n:].isnan().all()


@pytest.mark.parametrize("stride", [1, 2, 16])
def test_outputs_of_a_handle_equal_a_plain_copy_for_random_tensors(stride):
    rng = random.Random(stride)
    example = torch.randn(100_000, device="cuda")
    handle = frozen_copy(example, example, 48, stride)
    handle_odd = frozen_copy(example, example, 47, stride)
    with counted_runs() as runs:
        for _ in range(200):
            n = rng.randrange(2, 6000)
            x = torch.randn(n * stride, device="cuda")
            y = nan(n + 64)
            (handle_odd if n % 16 else handle)(x, y, n)
            assert torch.equal(y[:n], x[::stride])
            assert y[n:].isnan().all()
    assert runs.total == 0


def test_refused_call_writes_nothing():
    x, y = torch.randn(64, device="cuda"), nan(64)
    handle = frozen_copy(x, y, 64)
    for wrong in ((x, y, 63), (x[1:], y, 32), (x.half(), y, 64), (x.cpu(), y, 64)):
        with pytest.raises(FrozenArgumentError):
            handle(*wrong)
    assert y.isnan().all()


def test_handle_is_captured_and_replayed_with_new_contents():
    x, y = torch.randn(4096, device="cuda"), nan(4096)
    handle = frozen_copy(x, y, 4096)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        handle(x, y, 4096)
    assert y.isnan().all()
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(x, y)


def test_handle_launches_on_the_current_stream():
    x, y = torch.randn(1 << 20, device="cuda"), nan(1 << 20)
    handle = frozen_copy(x, y, 1 << 20)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.fill_(3.0)
        handle(x, y, 1 << 20)
        event = stream.record_event()
    event.synchronize()
    assert (y == 3.0).all()


def test_threads_that_never_used_cuda_call_one_handle():
    x = torch.randn(4096, device="cuda")
    handle = frozen_copy(x, x, 4096)
    outputs = [nan(4096) for _ in range(16)]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda y: handle(x, y, 4096), outputs))
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for y in outputs)


def test_launch_hook_switched_on_is_called_and_the_values_stay_right():
    x, y, seen = torch.randn(256, device="cuda"), nan(256), []
    handle = frozen_copy(x, y, 256)
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        handle(x, y, 256)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(seen) == 1
    assert torch.equal(x, y)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_handle_of_the_second_gpu_is_called_from_the_first():
    x = torch.randn(4096, device="cuda:1")
    y = nan(4096, device="cuda:1")
    handle = frozen_copy(x, y, 4096)
    assert torch.cuda.current_device() == 0
    handle(x, y, 4096)
    torch.cuda.synchronize(1)
    assert torch.equal(x, y)
    with pytest.raises(FrozenArgumentError, match="on cuda:1"):
        handle(x.to("cuda:0"), y, 4096)


def test_frozen_autotuned_kernel_uses_the_config_of_the_store():
    x, y = torch.randn(5000, device="cuda"), nan(5000)
    tuned = launchkit.autotuned(
        sample_kernels.configs(64, 128), ["n"], name="test.frozen",
        do_bench=lambda call, quantiles: triton.testing.do_bench(
            call, warmup=1, rep=3, quantiles=quantiles
        ),
    )(sample_kernels.copy)  # fmt: skip
    handle = launchkit.freeze(tuned, BY_BLOCKS, x, y, 5000, 1, varying=("x_ptr", "y_ptr"))
    y.fill_(float("nan"))
    handle(x, y)
    assert torch.equal(x, y)
    assert handle.config is tuned.best_config
