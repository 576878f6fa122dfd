"""Tuning chooses as Triton's Autotuner would, once, and leaves nothing behind when it fails."""

from __future__ import annotations

import math
import random

import pytest
import torch
from benching import (
    BLOCKS,
    Bench,
    kernel_with,
    launched_block,
    too_big,
    triton_block,
    triton_kernel_with,
)
from launching import counted_runs
from triton import knobs

import launchkit
from launchkit.configs import identify
from launchkit.dispatch.stores import use_store
from launchkit.errors import TuningFailedError
from launchkit.store import MemoryStore

pytestmark = pytest.mark.usefixtures("measuring")


# -- the same choice as Triton's


SHAPES = [
    lambda median: median,
    lambda median: [median, median * 0.9, median * 1.1],
    lambda median: [median, median, median * 1.4],
]


def same_choice(times):
    ours, theirs = kernel_with(Bench(times)), triton_kernel_with(Bench(times))
    expected = triton_block(theirs)
    use_store(MemoryStore())
    assert launched_block(ours) == expected, times
    assert ours.best_config == theirs.best_config
    assert ours.cache == theirs.cache
    assert ours.configs_timings == theirs.configs_timings
    assert list(ours.configs_timings) == list(theirs.configs_timings)


@pytest.mark.parametrize("seed", range(60))
def test_same_timings_choose_the_same_config(seed):
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    times = {block: shape(rng.choice((0.5, 1.0, 2.0, math.inf))) for block in BLOCKS}
    times[rng.choice(BLOCKS)] = [1.5, 1.4, 1.6]  # one works: Triton has no answer to none
    same_choice(times)


@pytest.mark.parametrize("seed", range(20))
def test_scalar_timings_choose_the_same_config(seed):
    rng = random.Random(seed)
    scalars = [rng.choice((1.0, 2.0, 0.25)) for _ in BLOCKS]

    def bench():
        fixed = Bench(dict(zip(BLOCKS, map(float, scalars), strict=True)))
        return lambda call, quantiles: fixed(call, quantiles)[0]

    ours, theirs = kernel_with(bench()), triton_kernel_with(bench())
    assert launched_block(ours) == triton_block(theirs)
    assert ours.configs_timings == theirs.configs_timings


def test_first_of_equals_wins():
    assert launched_block(kernel_with(Bench(dict.fromkeys(BLOCKS, 1.0)))) == 16


def test_first_of_those_within_noise_wins_in_every_process():
    times = {16: [1.05, 1.0, 1.1], 32: [1.0, 0.9, 1.1], 64: [1.02, 0.95, 1.1]}
    assert triton_block(triton_kernel_with(Bench(times))) == 32
    assert launched_block(kernel_with(Bench(times))) == 16
    use_store(MemoryStore())
    times[32], times[64] = times[64], times[32]
    assert launched_block(kernel_with(Bench(times))) == 16


def test_tuning_leaves_what_tritons_tuning_leaves():
    times = {16: [3.0, 2.5, 3.5], 32: [1.0, 0.5, 1.5], 64: too_big()}
    ours, theirs = kernel_with(Bench(times)), triton_kernel_with(Bench(times))
    assert launched_block(ours) == triton_block(theirs) == 32
    assert ours.cache == theirs.cache
    assert ours.best_config is ours.configs[1]
    assert ours.cache[(64, "torch.float32", "torch.float32")] is ours.configs[1]
    assert ours.configs_timings == theirs.configs_timings
    assert ours.bench_time > 0
    assert getattr(ours, "nargs", None) is None


def test_store_hit_leaves_what_tuning_leaves_without_a_benchmark():
    times = {16: [3.0, 2.5, 3.5], 32: [1.0, 0.5, 1.5], 64: too_big()}
    tuned, again = kernel_with(Bench(times)), kernel_with(Bench({}))
    assert launched_block(tuned) == launched_block(again) == 32
    assert again.best_config is again.configs[1]
    assert again.cache == tuned.cache
    assert again.configs_timings == tuned.configs_timings
    assert list(again.configs_timings) == again.configs


def test_partly_stored_tuning_leaves_every_timing():
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    kernel = kernel_with(Bench({128: 0.5}), blocks=(64, 128, 16))
    assert launched_block(kernel) == 128
    timings = {config.kwargs["BLOCK"]: times for config, times in kernel.configs_timings.items()}
    assert timings == {64: [2.0] * 3, 128: [0.5] * 3, 16: [3.0] * 3}


def test_launch_after_tuning_is_a_hit():
    kernel = kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))
    launched_block(kernel)
    with counted_runs() as runs:
        assert launched_block(kernel) == 32
    assert runs.total == 0


def test_each_new_key_is_tuned_once():
    bench = Bench({16: 3.0, 32: 1.0, 64: 2.0})
    kernel = kernel_with(bench)
    for n in (64, 65, 64, 66, 65):
        launched_block(kernel, n)
    assert bench.measured == [16, 32, 64] * 3


@pytest.mark.skipif(not hasattr(knobs.autotuning, "listener"), reason="this Triton has no listener")
def test_listener_hears_what_it_hears_from_triton(monkeypatch):
    heard = []
    monkeypatch.setattr(knobs.autotuning, "listener", lambda **facts: heard.append(facts))
    times = {16: 3.0, 32: 1.0, 64: 2.0}
    launched_block(kernel_with(Bench(times)))
    triton_block(triton_kernel_with(Bench(times)))
    ours, theirs = heard
    assert ours.pop("duration") > 0
    assert theirs.pop("duration") > 0
    assert ours == theirs
    launched_block(kernel_with(Bench({})))
    from_store = heard[2]
    assert from_store.pop("duration") is None
    assert from_store == {**ours, "cache_hit": True}


# -- failing configs


def test_config_that_does_not_fit_is_excluded_and_stored_with_its_reason(memory_store):
    kernel = kernel_with(Bench({16: too_big(), 32: 2.0, 64: 1.0}))
    assert launched_block(kernel) == 64
    (record,) = memory_store.records()
    failed = record.configs[0]
    assert failed.error.startswith("OutOfResources: out of resource: shared memory")
    assert not failed.ok
    assert record.chosen == identify(kernel.configs[2].all_kwargs())
    assert [tuned.median_us for tuned in record.configs] == [None, 2000.0, 1000.0]


def test_stored_failure_is_not_measured_again():
    launched_block(kernel_with(Bench({16: too_big(), 32: 2.0, 64: 1.0})))
    assert launched_block(kernel_with(Bench({}))) == 64


def test_all_configs_failing_raises_with_every_reason_and_keeps_nothing(memory_store):
    bench = Bench({16: too_big(), 32: too_big(), 64: math.inf})
    kernel = kernel_with(bench)
    for _ in range(2):
        with pytest.raises(TuningFailedError) as caught:
            launched_block(kernel)
        reasons = caught.value.fields["reasons"]
        assert len(reasons) == 3
        assert [("out of resource" in reason, "inf" in reason) for reason in reasons.values()] == [
            (True, False), (True, False), (False, True),
        ]  # fmt: skip
    assert bench.measured == [16, 32, 64] * 2
    assert list(memory_store.records()) == []
    assert kernel.cache == {}
    bench.times = {16: 2.0, 32: 1.0, 64: 3.0}
    assert launched_block(kernel) == 32


@pytest.mark.parametrize(
    "bad", [math.nan, 0.0, -1.0, math.inf, [math.nan] * 3, [0.0, 0.0, 0.0], []], ids=str
)
@pytest.mark.parametrize("place", [16, 64])
def test_impossible_time_never_wins(bad, place):
    times = {16: 2.0, 32: 1.5, 64: 2.5, place: bad}
    assert launched_block(kernel_with(Bench(times))) == 32


@pytest.mark.parametrize(
    "error", [ValueError("no"), RuntimeError("no"), KeyboardInterrupt()], ids=repr
)
def test_other_error_ends_the_tuning_and_leaves_nothing_behind(memory_store, error):
    bench = Bench({16: 2.0, 32: error, 64: 1.0})
    kernel = kernel_with(bench)
    with pytest.raises(type(error)):
        launched_block(kernel)
    assert list(memory_store.records()) == []
    assert kernel.cache == {}
    assert not hasattr(kernel, "best_config")
    bench.times[32] = 3.0
    assert launched_block(kernel) == 64


def test_exception_in_the_first_launch_leaves_no_plan():
    kernel = kernel_with(Bench({16: 2.0, 32: 1.0, 64: 3.0}))

    def failing_grid(meta):
        raise LookupError("no grid")

    x = torch.empty(64)
    launched_block(kernel, n=1)
    with pytest.raises(LookupError):
        launchkit.launch_autotuned(kernel, failing_grid, x, x, 64, 1)
    assert len(kernel._launchkit_entry._core) == 1
    assert launched_block(kernel) == 32


# -- host-only


def test_host_only_measures_nothing_and_stores_nothing(monkeypatch, memory_store):
    monkeypatch.undo()
    use_store(memory_store)
    bench = Bench({})
    kernel = kernel_with(bench)
    assert launched_block(kernel) == 16
    assert launched_block(kernel) == 16
    assert bench.measured == []
    assert list(memory_store.records()) == []
