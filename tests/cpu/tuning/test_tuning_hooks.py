"""Pruning, input protection and hooks while tuning: what Triton does with them, and not less."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from benching import (
    BLOCKS,
    NO_CONFIG_LEFT,
    Bench,
    grid_of_block,
    kernel_with,
    launched_block,
    triton_block,
    triton_kernel_with,
)

import launchkit
from launchkit import hostonly

pytestmark = pytest.mark.usefixtures("each_core", "measuring")


def pruned_calls(make, launch):
    """What prune functions and the model were asked, with tensors by identity."""
    calls = []

    def early(configs, named_args, **kwargs):
        calls.append(("early", [str(c) for c in configs], dict(named_args), sorted(kwargs)))
        return configs[:3]

    def model(**everything):
        calls.append(("model", sorted(everything), everything["BLOCK"], everything["n"]))
        return {16: 3.0, 32: 2.0, 64: 1.0}[everything["BLOCK"]]

    pruning = {"early_config_prune": early, "perf_model": model, "top_k": 2}
    bench = Bench({16: 1.0, 32: 3.0, 64: 2.0, 128: 0.5})
    kernel = make(bench, blocks=(16, 32, 64, 128), prune_configs_by=pruning)
    return launch(kernel), bench.measured, calls


def test_pruning_gets_the_same_arguments_and_leaves_the_same_configs():
    x = torch.empty(64)
    ours = pruned_calls(kernel_with, lambda kernel: launched_block(kernel, x=x))
    theirs = pruned_calls(triton_kernel_with, lambda kernel: triton_block(kernel, x=x))
    assert str(ours) == str(theirs)
    assert ours[0] == 64
    assert ours[1] == [64, 32]


def test_pruning_to_one_config_measures_and_stores_nothing(memory_store):
    kernel = kernel_with(
        Bench({}), prune_configs_by={"early_config_prune": lambda configs, named, **_: configs[1:2]}
    )
    assert launched_block(kernel) == 32
    assert list(memory_store.records()) == []


def test_pruning_everything_is_refused_as_by_todays_triton():
    kernel = kernel_with(
        Bench({}), prune_configs_by={"early_config_prune": lambda configs, named, **_: []}
    )
    for _ in range(2):
        with pytest.raises(NO_CONFIG_LEFT, match="No valid autotuner configs after pruning"):
            launched_block(kernel)


class Writes(Bench):
    """Also writes into the tensor, as the kernel would, and remembers what it found there."""

    def __init__(self, times, tensor):
        super().__init__(times)
        self.tensor = tensor
        self.found = []

    def __call__(self, call, quantiles):
        def launch_and_write():
            call()
            self.tensor.add_(1.0)

        launch_and_write()
        return super().__call__(launch_and_write, quantiles)


PROTECTIONS = {
    "restore": {"restore_value": ["y_ptr"]},
    "reset": {"reset_to_zero": ["y_ptr"]},
    "reset another": {"reset_to_zero": ["x_ptr"], "restore_value": ["y_ptr"]},
}


def recording_hook(values):
    """A config pre_hook that notes what is in y: it runs before each measured launch."""
    return lambda named: values.append((named["y_ptr"].tolist()[0], named["x_ptr"].tolist()[0]))


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_inputs_are_protected_while_tuning_as_triton_protects_them(protection):
    def run(make, launch):
        x, y, values = torch.full((64,), 7.0), torch.full((64,), 5.0), []
        configs = [
            triton.Config({"BLOCK": block}, pre_hook=recording_hook(values)) for block in BLOCKS
        ]
        bench = Writes({16: 2.0, 32: 1.0, 64: 3.0}, y)
        kernel = make(bench, configs=configs, **PROTECTIONS[protection])
        launch(kernel, x, y)
        return values, x.tolist()[0], y.tolist()[0]

    ours = run(
        kernel_with,
        lambda kernel, x, y: launchkit.launch_autotuned(kernel, grid_of_block, x, y, 64, 1),
    )
    theirs = run(triton_kernel_with, lambda kernel, x, y: kernel[grid_of_block](x, y, 64, 1))
    assert ours == theirs


def test_argument_both_reset_and_restored_has_its_value_at_the_launch():
    # Triton zeroes it before it copies it, and so loses the value.
    y = torch.full((64,), 5.0)
    kernel = kernel_with(
        Bench({16: 2.0, 32: 1.0, 64: 3.0}), reset_to_zero=["y_ptr"], restore_value=["y_ptr"]
    )
    launchkit.launch_autotuned(kernel, grid_of_block, torch.empty(64), y, 64, 1)
    assert y.tolist() == [5.0] * 64


def test_none_among_protected_arguments_is_left_alone():
    bench = Bench({1: 1.0, 2: 2.0})
    configs = [triton.Config({"MODE": "shift"}), triton.Config({"MODE": "plain"})]
    kernel = launchkit.autotuned(
        configs, ["n"], do_bench=bench, reset_to_zero=["a_ptr"], restore_value=["a_ptr", "b_ptr"]
    )(sample_kernels.mixed)

    def grid(meta):
        return (1 if meta["MODE"] == "shift" else 2,)

    launchkit.launch_autotuned(kernel, grid, None, torch.empty(64), 3, True, 0.5)
    assert hostonly.launches()[-1].grid == (1, 1, 1)


def test_restored_values_survive_an_error_while_tuning():
    y = torch.full((64,), 5.0)
    kernel = kernel_with(Bench({16: 2.0, 32: RuntimeError("no"), 64: 3.0}), restore_value=["y_ptr"])
    with pytest.raises(RuntimeError):
        launchkit.launch_autotuned(kernel, grid_of_block, torch.empty(64), y, 64, 1)
    assert y.tolist() == [5.0] * 64


def test_users_hooks_get_what_triton_gives_them():
    def run(make, launch):
        seen = []

        def pre(named, reset_only=False):
            seen.append(("pre", reset_only, named["BLOCK"], sorted(named)))

        def post(named, exception):
            seen.append(("post", exception, named["BLOCK"], sorted(named)))

        launch(make(Bench({16: 2.0, 32: 1.0, 64: 3.0}), pre_hook=pre, post_hook=post))
        return seen

    ours = run(kernel_with, launched_block)
    assert ours == run(triton_kernel_with, triton_block)
    assert ours.count(("pre", True, 32, ours[0][3])) == 1


def hooked(seen, *blocks):
    def hook(named):
        seen.append(named["BLOCK"])

    return [triton.Config({"BLOCK": block}, pre_hook=hook) for block in blocks]


def test_pre_hook_config_is_tuned_once_and_its_hook_runs_once_per_launch():
    seen, bench = [], Bench({16: 2.0, 32: 1.0})
    kernel = kernel_with(bench, configs=hooked(seen, 16, 32))
    assert launched_block(kernel) == 32
    assert seen == [16, 32, 32]
    for _ in range(3):
        assert launched_block(kernel) == 32
    assert seen == [16, 32] + [32] * 4
    assert bench.measured == [16, 32]


@pytest.mark.parametrize("blocks", [(16, 32), (32,)], ids=["two configs", "one config"])
def test_pre_hook_of_a_stored_config_runs_in_each_launch(blocks):
    launched_block(kernel_with(Bench({16: 2.0, 32: 1.0}), configs=hooked([], 16, 32)))
    seen = []
    warm = kernel_with(Bench({}), configs=hooked(seen, *blocks))
    for _ in range(3):
        assert launched_block(warm) == 32
    assert seen == [32, 32, 32]


def test_pre_hook_gets_the_mapping_that_triton_gives_it():
    def run(launch, make):
        seen = []
        config = triton.Config({"BLOCK": 16}, pre_hook=lambda named: seen.append(dict(named)))
        kernel, x = make(Bench({}), configs=[config]), torch.empty(64)
        launch(kernel, x)
        return [sorted(named) for named in seen], [named["BLOCK"] for named in seen]

    ours = run(
        lambda kernel, x: launchkit.launch_autotuned(kernel, (1,), x, x, n=64, stride=1),
        kernel_with,
    )
    assert ours == run(lambda kernel, x: kernel[(1,)](x, x, n=64, stride=1), triton_kernel_with)


def test_pre_hook_may_launch_another_kernel_while_tuning():
    inner = kernel_with(Bench({16: 2.0, 32: 1.0, 64: 3.0}), key=("n", "stride"))
    done = []

    def hook(named):
        x = torch.empty(64)
        done.append(launchkit.launch_autotuned(inner, (named["BLOCK"],), x, x, 5, 1))

    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (16, 32)]
    outer = kernel_with(lambda call, quantiles: call() or [1.0] * 3, configs=configs)
    launchkit.launch_autotuned(outer, grid_of_block, torch.empty(64), torch.empty(64), 64, 1)
    assert len(done) == 3


def test_configs_that_differ_only_in_their_hook_are_not_stored(memory_store):
    seen = []
    configs = [
        triton.Config({"BLOCK": 16}, pre_hook=lambda named: seen.append("first")),
        triton.Config({"BLOCK": 16}, pre_hook=lambda named: seen.append("second")),
        triton.Config({"BLOCK": 32}),
    ]
    times = iter([3.0, 1.0, 2.0])

    def bench(call, quantiles):
        call()
        return [next(times)] * 3

    kernel = kernel_with(bench, configs=configs)
    assert launched_block(kernel) == 16
    assert seen == ["first", "second", "second"]
    assert list(memory_store.records()) == []
    launched_block(kernel)
    assert seen[3:] == ["second"]


def test_exact_duplicates_are_measured_once_and_stored(memory_store):
    bench = Bench({16: 2.0, 32: 1.0})
    kernel = kernel_with(bench, blocks=(16, 32, 16, 32))
    assert launched_block(kernel) == 32
    assert bench.measured == [16, 32]
    (record,) = memory_store.records()
    assert len(record.configs) == 2
