"""Tuning of kernels that are executed: what it leaves in their arguments, and what it excludes."""

from __future__ import annotations

import access_kernels as kernels
import pytest
import sample_kernels
import torch
import triton
from executing import times

import launchkit
from launchkit.configs import identify
from launchkit.dispatch.tuning import one_key as tuning
from launchkit.keys import LaunchKey


def tune(kernel, configs, *args, **options):
    """Tune a kernel on its arguments; return results by config and what was to be stored."""
    made = launchkit.autotuned(configs, ["n"], do_bench=times(), **options)(kernel)
    identities = [identify(config.all_kwargs()) for config in configs]

    def grid(meta):
        return (triton.cdiv(meta["n"], meta["BLOCK"]),)

    task = tuning.Task(
        "kernel", LaunchKey((), ()), configs, identities, (args, {"grid": grid, "warmup": False})
    )
    kept = []
    tuned = tuning.tune(made, task, None, lambda results, best, seconds: kept.append(best))
    assert kept == [tuned.best]
    return tuned


def blocks(*sizes, **more):
    return [triton.Config({"BLOCK": size, **more}) for size in sizes]


def values(n, seed=0):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("protect", ["auto", "copies"])
@pytest.mark.parametrize("n", [1, 37, 100])
def test_in_place_kernel_leaves_its_input_as_it_was(protect, n):
    x = values(n + 50)
    tune(kernels.doubles, blocks(16, 32), x, n, protect=protect)
    assert torch.equal(x, values(n + 50))


def test_without_protection_it_does_not():
    x = values(37)
    tune(kernels.doubles, blocks(16, 32), x, 37, protect="none")
    assert torch.equal(x, values(37) * 2**6)


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_sum_by_atomics_is_not_added_to(protect):
    x, total = values(16), torch.tensor([5.0])
    tune(kernels.counts, blocks(16, 32), x, total, 16, protect=protect)
    assert total.item() == 5.0


@pytest.mark.parametrize("protect", ["auto", "copies"])
@pytest.mark.parametrize("shift", [0, 1, 8])
def test_overlapping_input_and_output_are_restored(protect, shift):
    memory = values(200)
    x, y = memory[:64], memory[shift : shift + 64]
    tune(sample_kernels.adds, blocks(16, 32, WRONG=0), x, y, 64, protect=protect)
    assert torch.equal(memory, values(200))


@pytest.mark.parametrize("protect", ["auto", "copies"])
def test_config_that_leaves_elements_out_is_excluded(protect):
    configs = [*blocks(16, WRONG=3), *blocks(32, 64, WRONG=0)]
    x, y = values(100), values(100, seed=1)
    tuned = tune(sample_kernels.adds, configs, x, y, 100, protect=protect, check_outputs=True)
    assert tuned.config is configs[1]
    assert tuned.results[0].error.startswith("OutputMismatch: y_ptr differs in 3 of 100 elements")
    assert torch.equal(y, values(100, seed=1))
    assert tune(sample_kernels.adds, configs, x, y, 100, protect=protect).config is configs[0]
