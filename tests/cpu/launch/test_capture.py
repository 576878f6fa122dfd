"""Under CUDA-graph capture: hits launch, compilations go through Triton, tuning is refused."""

from __future__ import annotations

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from benching import Bench, launched_block
from launching import counted_runs

import launchkit
from launchkit import hostonly
from launchkit.errors import CaptureError

pytestmark = pytest.mark.usefixtures("measuring")

TIMES = {16: 3.0, 32: 1.0, 64: 2.0}


def kernel_with(bench, blocks=(16, 32, 64), **options):
    return launchkit.autotuned(sample_kernels.configs(*blocks), ["n"], do_bench=bench, **options)(
        sample_kernels.copy
    )


def test_hit_launches_while_capturing():
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel)
    with hostonly.capturing(), counted_runs() as runs:
        assert launched_block(kernel) == 32
    assert runs.total == 0


def test_variant_that_has_to_be_compiled_goes_through_triton_while_capturing():
    kernel = kernel_with(bench := Bench(TIMES))
    launched_block(kernel)
    shifted = torch.empty(80)[1:]
    with hostonly.capturing():
        assert launched_block(kernel, x=shifted) == 32
        with counted_runs() as runs:
            assert launched_block(kernel, x=shifted) == 32
    assert runs.total == 0
    assert bench.measured == [16, 32, 64]


def test_plain_kernel_is_compiled_and_launched_while_capturing():
    x = torch.empty(64)
    with hostonly.capturing():
        compiled = launchkit.launch(sample_kernels.copy, (2,), x, x, 64, 1, BLOCK=16)
        assert launchkit.launch(sample_kernels.copy, (2,), x, x, 64, 1, BLOCK=16) is compiled
    assert len(hostonly.launches()) == 2


def test_cold_key_raises_before_anything_is_launched_and_works_afterwards(memory_store):
    kernel = kernel_with(bench := Bench(TIMES))
    hostonly.clear()
    with hostonly.capturing():
        for _ in range(2):
            with pytest.raises(CaptureError, match="before the capture"):
                launched_block(kernel)
    assert hostonly.launches() == []
    assert bench.measured == []
    assert kernel.cache == {}
    assert list(memory_store.records()) == []
    assert launched_block(kernel) == 32


def test_other_cold_key_of_a_tuned_kernel_raises_too():
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel, n=64)
    with hostonly.capturing():
        with pytest.raises(CaptureError):
            launched_block(kernel, n=65)
        assert launched_block(kernel, n=64) == 32


def test_cold_key_with_a_stored_config_launches_while_capturing():
    launched_block(kernel_with(Bench(TIMES)))
    with hostonly.capturing():
        assert launched_block(kernel_with(Bench({}))) == 32


@pytest.mark.parametrize("blocks", [(16,), (16, 32)], ids=["one config", "pruned to one"])
def test_choice_that_needs_no_benchmark_launches_while_capturing(blocks):
    pruning = {"early_config_prune": lambda configs, named, **_: configs[:1]}
    kernel = kernel_with(Bench({}), blocks=blocks, prune_configs_by=pruning)
    with hostonly.capturing():
        assert launched_block(kernel) == 16


def test_tuned_config_with_a_hook_launches_while_capturing():
    seen = []
    configs = [
        triton.Config({"BLOCK": b}, pre_hook=lambda named: seen.append(named["BLOCK"]))
        for b in (16, 32)
    ]
    kernel = launchkit.autotuned(configs, ["n"], do_bench=Bench(TIMES))(sample_kernels.copy)
    launched_block(kernel)
    with hostonly.capturing():
        assert launched_block(kernel) == 32
    assert seen == [16, 32, 32, 32]


@pytest.mark.parametrize("key", [3.5j, b"bytes"], ids=str)
def test_key_that_triton_has_to_tune_is_refused_too(key):
    configs = [triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)]
    bench = Bench({1: 1.0})
    kernel = launchkit.autotuned(configs, ["LABEL"], do_bench=bench)(odd_kernels.labelled)
    x = torch.empty(64)
    hostonly.clear()
    with hostonly.capturing(), pytest.raises(CaptureError):
        launchkit.launch_autotuned(kernel, (1,), x, LABEL=key)
    assert hostonly.launches() == []
    launchkit.launch_autotuned(kernel, (1,), x, LABEL=key)
    with hostonly.capturing():
        launchkit.launch_autotuned(kernel, (1,), x, LABEL=key)
    assert bench.measured == [1, 1]


def test_refusal_names_the_kernel():
    kernel = kernel_with(Bench(TIMES), name="the kernel")
    with hostonly.capturing(), pytest.raises(CaptureError) as caught:
        launched_block(kernel)
    assert caught.value.fields["kernel"] == "the kernel"


def test_heuristics_do_not_hide_a_cold_key():
    tuned = launchkit.autotuned(sample_kernels.configs(16, 32, 64), ["n"], do_bench=Bench(TIMES))
    kernel = triton.heuristics({"stride": lambda args: 1})(tuned(sample_kernels.copy))
    x = torch.empty(64)
    with hostonly.capturing(), pytest.raises(CaptureError):
        launchkit.launch_autotuned(kernel, (1,), x, x, 64)
