"""One tuning per key, however many threads want it; who needs none does not wait."""

from __future__ import annotations

import threading

import access_kernels
import pytest
import torch
import triton
from benching import Bench, grid_of_block, kernel_with, launched_block
from executing import Executed
from threads import in_threads

import launchkit
from launchkit import hostonly
from launchkit.configs import identify

pytestmark = pytest.mark.usefixtures("measuring")


def test_sixteen_threads_on_one_cold_key_tune_once():
    bench = Bench({16: 3.0, 32: 1.0, 64: 2.0})
    kernel = kernel_with(bench)
    x = torch.empty(64)
    compiled = in_threads(
        16, lambda _: launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
    )
    assert bench.measured == [16, 32, 64]
    assert len(set(map(id, compiled))) == 1
    assert kernel.best_config is kernel.configs[1]


def test_keys_tuned_at_the_same_time_do_not_mix():
    times = {16: {16: 1.0, 32: 2.0}, 1: {16: 2.0, 32: 1.0}}
    measured = []

    def bench(call, quantiles):
        with lock:
            call()
            launch = hostonly.launches()[-1]
        n, block = launch.grid[1], launch.grid[0]
        measured.append((n, block))
        return [times[n][block]] * 3

    lock = threading.Lock()
    kernel = kernel_with(bench, blocks=(16, 32))
    x = torch.empty(64)

    def launch(index):
        n = (16, 1)[index % 2]
        launchkit.launch_autotuned(kernel, lambda meta: (meta["BLOCK"], meta["n"]), x, x, n, 1)
        return n

    in_threads(8, launch)
    assert sorted(measured) == [(1, 16), (1, 32), (16, 16), (16, 32)]
    assert {key[0]: config.kwargs["BLOCK"] for key, config in kernel.cache.items()} == {
        16: 16,
        1: 32,
    }
    assert launched_block(kernel, n=16) == 16
    assert launched_block(kernel, n=1) == 32


class FirstRaises(Bench):
    """Raises in the first benchmark, and has times for every later one."""

    def __call__(self, call, quantiles):
        first = not self.measured
        result = super().__call__(call, quantiles)
        if first:
            raise RuntimeError("the first benchmark failed")
        return result


def test_thread_whose_tuning_raises_gets_the_error_and_another_one_tunes_for_the_rest(memory_store):
    bench = FirstRaises({16: 3.0, 32: 1.0, 64: 2.0})
    kernel = kernel_with(bench)
    x = torch.empty(64)

    def launch(_):
        try:
            return launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
        except RuntimeError as error:
            return str(error)

    results = in_threads(16, launch)
    assert results.count("the first benchmark failed") == 1
    compiled = [result for result in results if not isinstance(result, str)]
    assert len(compiled) == 15
    assert len(set(map(id, compiled))) == 1
    assert bench.measured == [16, 16, 32, 64]
    (record,) = memory_store.records()
    assert record.chosen == identify(kernel.configs[1].all_kwargs())
    assert kernel.best_config is kernel.configs[1]


def test_stored_config_does_not_wait_for_another_kernels_tuning():
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}), name="stored"))
    measuring_now, go_on = threading.Event(), threading.Event()

    def slow_bench(call, quantiles):
        measuring_now.set()
        assert go_on.wait(60)
        return [1.0, 1.0, 1.0]

    tuning = threading.Thread(target=launched_block, args=(kernel_with(slow_bench, name="slow"),))
    tuning.start()
    try:
        assert measuring_now.wait(60)
        stored = kernel_with(Bench({}), name="stored")
        done = threading.Thread(target=launched_block, args=(stored,))
        done.start()
        done.join(60)
        assert not done.is_alive()
        assert stored.best_config.kwargs == {"BLOCK": 32}
        assert tuning.is_alive()
    finally:
        go_on.set()
        tuning.join()


def test_threads_that_tune_on_the_same_tensor_all_find_it_as_it_was(monkeypatch):
    def bench(call, quantiles):
        call()
        return [1.0] * 3

    Executed(monkeypatch, lambda named: named["x_ptr"].mul_(2.0))
    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    kernel = launchkit.autotuned(configs, ["n"], do_bench=bench)(access_kernels.doubles)
    x = torch.full((64,), 3.0)
    in_threads(16, lambda index: kernel[(1,)](x, 40 + index % 4))
    assert x.tolist() == [3.0] * 64
    assert len(kernel.cache) == 4


def test_hook_that_launches_its_own_kernel_with_a_cold_key_tunes_that_too():
    bench = Bench({16: 3.0, 32: 1.0})
    x = torch.empty(64)

    def hook(named):
        if named["n"] == 64:
            launched_block(kernel, n=5, x=x)

    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (16, 32)]
    kernel = kernel_with(bench, configs=configs)
    assert launched_block(kernel, n=64, x=x) == 32
    assert bench.measured == [16, 32, 16, 32]
    assert {key[0] for key in kernel.cache} == {64, 5}


def test_hook_that_launches_its_own_kernel_with_the_same_key_ends():
    nested = []
    x = torch.empty(64)

    def hook(named):
        if not nested:
            nested.append(named["BLOCK"])
            nested.append(launched_block(kernel, x=x))

    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (16, 32)]
    kernel = kernel_with(Bench({16: 3.0, 32: 1.0}), configs=configs)
    assert launched_block(kernel, x=x) == 32
    assert nested == [16, 32]


def test_thread_whose_benchmark_raises_leaves_arguments_and_terminal_to_the_others(monkeypatch):
    Executed(monkeypatch, lambda named: named["x_ptr"].mul_(2.0))
    failed = []

    def bench(call, quantiles):
        call()
        if not failed:
            failed.append(True)
            raise RuntimeError("the first benchmark failed")
        return [1.0] * 3

    configs = [triton.Config({"BLOCK": block}) for block in (16, 32)]
    kernel = launchkit.autotuned(configs, ["n"], do_bench=bench)(access_kernels.doubles)
    x = torch.full((64,), 3.0)

    def launch(_):
        try:
            kernel[(1,)](x, 64)
        except RuntimeError as error:
            return str(error)

    assert sorted(filter(None, in_threads(8, launch))) == ["the first benchmark failed"]
    assert x.tolist() == [3.0] * 64
