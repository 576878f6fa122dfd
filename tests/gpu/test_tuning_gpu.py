"""Tuning on a real GPU: what is timed, what it leaves in the arguments, and what it survives."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import access_kernels as kernels
import pytest
import sample_kernels
import stray_store
import torch
import triton
import triton.language as tl

import launchkit
from launchkit.dispatch.tuning import methods as tuning_methods


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(tuning_methods, "WARM_UP_MS", 1)
    monkeypatch.setattr(tuning_methods, "MEASURE_MS", 3)


def blocks(*sizes, **options):
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]


def blocks_of(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def autotuned(kernel, *sizes, **options):
    options = {"measure": "eager", "l2": "warm", **options}
    return launchkit.autotuned(blocks(*(sizes or (64, 128))), ["n"], **options)(kernel)


def record_of(store):
    (record,) = store.records()
    return record


METHODS = {
    "eager+warm": {"measure": "eager", "l2": "warm"},
    "eager+cold": {"measure": "eager", "l2": "cold"},
    "graph": {"measure": "graph"},
    "graph+cold": {"measure": "graph", "l2": "cold"},
}


@pytest.mark.parametrize("protect", ["auto", "copies"])
@pytest.mark.parametrize("method", METHODS)
def test_each_method_times_every_config_and_the_launch_is_right(memory_store, method, protect):
    x = torch.randn(5000, device="cuda")
    before = x.clone()
    kernel = autotuned(kernels.doubles, protect=protect, **METHODS[method])
    kernel[blocks_of](x, 4990)
    assert torch.equal(x[:4990], 2 * before[:4990])
    assert torch.equal(x[4990:], before[4990:])
    for tuned in record_of(memory_store).configs:
        assert tuned.method == method
        assert tuned.error is None
        assert 0 < tuned.p20_us <= tuned.median_us <= tuned.p80_us < 10_000
        assert tuned.reps > 1


def test_first_launch_of_a_sum_by_atomics_is_right():
    for protect in ("auto", "copies"):
        for measure in ("eager", "graph"):
            x, total = torch.ones(128, device="cuda"), torch.full((1,), 5.0, device="cuda")
            kernel = autotuned(kernels.counts, 128, 256, protect=protect, measure=measure)
            kernel[(1,)](x, total, 128)
            assert total.item() == 133.0


def test_first_launch_on_overlapping_tensors_is_right():
    memory = torch.randn(10_000, device="cuda")
    expected = memory.clone()
    expected[1000:6000] = expected[1000:6000] * 2
    autotuned(kernels.doubles)[blocks_of](memory[1000:], 5000)
    assert torch.equal(memory, expected)
    same = torch.randn(5000, device="cuda")
    expected = same.clone()
    autotuned(kernels.copies)[blocks_of](same, same, 5000)
    assert torch.equal(same, expected)


def test_input_that_does_not_fit_twice_is_kept_in_host_memory():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((held + 3 * 2**28) / total)
    try:
        x = torch.ones(2**27, device="cuda")  # 512 MiB of 768
        autotuned(kernels.doubles, 1024, 2048)[blocks_of](x, 2**27)
        assert bool((x == 2.0).all())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_config_that_leaves_elements_out_is_excluded(memory_store, protect):
    configs = [triton.Config({"BLOCK": 64, "WRONG": wrong}, num_warps=warps)
               for wrong, warps in ((3, 1), (0, 1), (0, 2))]  # fmt: skip
    kernel = launchkit.autotuned(
        configs, ["n"], measure="graph", protect=protect, check_outputs=True
    )(sample_kernels.adds)
    x = torch.randn(1000, device="cuda")
    y = x + 1.0
    kernel[blocks_of](x, y, 1000)
    assert kernel.best_config.kwargs["WRONG"] == 0
    errors = [tuned.error for tuned in record_of(memory_store).configs]
    assert errors[0].startswith("OutputMismatch: y_ptr differs in 3 of 1000 elements")
    assert errors[1:] == [None, None]
    assert torch.equal(y, x + 1.0)


@triton.jit
def _multiplies(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, n, BLOCK):
        total += tl.dot(
            tl.load(x_ptr + rows * n + columns + k), tl.load(x_ptr + (rows + k) * n + columns)
        )
    tl.store(y_ptr + rows * n + columns, total)


def test_config_that_needs_too_much_shared_memory_tells_how_much(memory_store):
    configs = [triton.Config({"BLOCK": 128}, num_warps=8, num_stages=s) for s in (8, 2)]
    kernel = launchkit.autotuned(configs, ["n"], measure="graph")(_multiplies)
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)
    y = torch.zeros(1024, 1024, device="cuda")
    kernel[(1,)](x, y, 1024)
    failed, good = record_of(memory_store).configs
    assert good.error is None
    limit = torch.cuda.get_device_properties(0).shared_memory_per_block_optin
    assert (failed.needed.name, failed.needed.limit) == ("shared_bytes", limit)
    assert failed.needed.required > limit


def test_launch_that_cannot_be_captured_is_timed_eagerly(memory_store, caplog):
    def hook(named):
        named["x_ptr"].sum().item()  # waits for the GPU, which a capture forbids

    kernel = launchkit.autotuned(blocks(64, 128, pre_hook=hook), ["n"], measure="graph")(
        kernels.doubles
    )
    x = torch.ones(500, device="cuda")
    stream = torch.cuda.current_stream()
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        for n in (500, 499):
            kernel[blocks_of](x, n)
    assert caplog.text.count("cannot be captured") == 1
    assert {t.method for r in memory_store.records() for t in r.configs} == {"eager"}
    assert torch.cuda.current_stream() == stream
    assert torch.equal(x, torch.tensor([4.0] * 499 + [2.0], device="cuda"))
    # The GPU is as usable as before, captures included.
    y, graph = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y += torch.ones(64, device="cuda")
    graph.replay()
    assert y.sum().item() == 64.0


def test_illegal_access_stops_the_process_and_the_next_one_passes_it_by(tmp_path):
    program = [sys.executable, str(Path(stray_store.__file__)), str(tmp_path / "store")]
    first = subprocess.run(program, capture_output=True, text=True, check=False)
    assert first.returncode == 1
    assert "stopped at BLOCK=16 FAR=17592186044416" in first.stderr
    assert "illegal" in first.stderr or "error" in first.stderr.lower()
    second = subprocess.run(program, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
