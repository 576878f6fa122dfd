"""Tuning chooses as Triton's Autotuner would, once, and leaves nothing behind when it fails."""

from __future__ import annotations

import logging
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from benching import Bench, grid_of_block, launched_block, triton_block
from launching import counted_runs
from triton import knobs
from triton.runtime.errors import OutOfResources

import launchkit
from launchkit import hostonly, settings
from launchkit.configs import identify
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.stores import use_store
from launchkit.errors import StoreError, TuningFailedError
from launchkit.store import DirectoryStore, MemoryStore

pytestmark = pytest.mark.usefixtures("measuring")

BLOCKS = (16, 32, 64)


def too_big():
    return OutOfResources(300_000, 232_448, "shared memory")


def kernel_with(bench, blocks=BLOCKS, configs=None, key=("n",), **options):
    configs = sample_kernels.configs(*blocks) if configs is None else configs
    return launchkit.autotuned(configs, list(key), do_bench=bench, **options)(sample_kernels.copy)


def triton_kernel_with(bench, blocks=BLOCKS, configs=None, key=("n",), **options):
    configs = sample_kernels.configs(*blocks) if configs is None else configs
    return triton.autotune(configs, list(key), do_bench=bench, **options)(sample_kernels.copy)


# -- the same choice as Triton's


def random_times(rng):
    median = rng.choice((0.5, 1.0, 2.0, math.inf))
    return rng.choice(
        (median, [median, median * 0.9, median * 1.1], [median, median, median * 1.5])
    )


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
    times = {block: random_times(rng) for block in BLOCKS}
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


def test_equal_medians_are_decided_by_the_quantiles():
    times = {16: [1.0, 0.9, 1.2], 32: [1.0, 0.8, 1.2], 64: [1.0, 0.9, 1.1]}
    same_choice(times)


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


# -- pruning and input protection, as Triton does them


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


def test_pruning_everything_raises_what_triton_raises():
    pruning = {"early_config_prune": lambda configs, named, **_: []}
    for make, launch in ((triton_kernel_with, triton_block), (kernel_with, launched_block)):
        with pytest.raises(Exception, match="No valid autotuner configs after pruning"):
            launch(make(Bench({}), prune_configs_by=pruning))


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


# -- pre_hook configs


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


# -- one tuning per key, however many threads


def in_threads(count, call):
    barrier = threading.Barrier(count)

    def started(index):
        barrier.wait()
        return call(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(started, range(count)))


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


# -- the stored record and the live config list


def retuned(blocks):
    """Which configs a kernel with ``blocks`` measures after BLOCKS were stored, and what it takes."""
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    bench = Bench({128: 1.5, 256: 0.5, 16: 0.0, 32: 0.0, 64: 0.0})
    chosen = launched_block(kernel_with(bench, blocks=blocks))
    return bench.measured, chosen


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ((16, 32, 64), ([], 32)),
        ((64, 32, 16), ([], 32)),
        ((16, 64), ([], 64)),
        ((16, 32, 64, 128), ([128], 32)),
        ((256, 64, 16), ([256], 256)),
        ((128, 256), ([128, 256], 256)),
    ],
    ids=str,
)
def test_changed_list_tunes_only_what_is_new(blocks, expected):
    assert retuned(blocks) == expected


def test_record_of_a_longer_list_keeps_every_timing(memory_store):
    retuned((256, 64, 16))
    (record,) = memory_store.records()
    assert [tuned.median_us for tuned in record.configs] == [3000.0, 1000.0, 2000.0, 500.0]


def test_stored_config_that_is_not_in_the_live_list_is_never_launched(memory_store):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (record,) = memory_store.records()
    foreign = replace(
        record.winner, config=identify({"BLOCK": 4096, "num_warps": 32}), median_us=1.0, p20_us=1.0
    )
    forged = replace(record, configs=(foreign,), chosen=foreign.config)
    use_store(store := MemoryStore())
    store.put(forged)
    bench = Bench({16: 3.0, 32: 2.0, 64: 1.0})
    assert launched_block(kernel_with(bench)) == 64
    assert bench.measured == [16, 32, 64]


def test_record_of_another_toolchain_is_a_miss(monkeypatch):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    other = replace(seam.toolchain(), triton="9.9.9")
    monkeypatch.setattr(seam, "toolchain", lambda: other)
    assert launched_block(kernel_with(Bench({16: 1.0, 32: 3.0, 64: 2.0}))) == 16


@pytest.mark.parametrize(
    "field",
    [
        {"name": "other"},
        {"arch": "sm_80"},
        {"multiprocessors": 7},
        {"shared_bytes": 1},
        {"memory_gib": 40},
    ],
    ids=str,
)
def test_record_of_another_device_is_a_miss(monkeypatch, field):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    other = replace(seam.device_identity(0), **field)
    monkeypatch.setattr(seam, "device_identity", lambda device: other)
    assert launched_block(kernel_with(Bench({16: 1.0, 32: 3.0, 64: 2.0}))) == 16


def test_kernels_with_one_name_and_unlike_source_do_not_share():
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}), name="ours"))
    other = launchkit.autotuned([triton.Config({"SIZE": s}) for s in (16, 32)], ["n"], name="ours",
                                do_bench=Bench({16: 1.0, 32: 2.0}))(odd_kernels.optional)  # fmt: skip
    launchkit.launch_autotuned(other, lambda meta: (meta["SIZE"],), torch.empty(64), 64)
    assert hostonly.launches()[-1].grid == (16, 1, 1)


# -- a store that is broken


class BrokenStore(MemoryStore):
    def __init__(self, *broken):
        super().__init__()
        self.broken = broken

    def get(self, *identity):
        if "get" in self.broken:
            raise OSError("the disk is gone")
        return super().get(*identity)

    def put(self, record):
        if "put" in self.broken:
            raise OSError("the disk is gone")
        return super().put(record)


@pytest.mark.parametrize("broken", [("get",), ("put",), ("get", "put")], ids=str)
def test_store_that_raises_never_fails_a_launch_and_is_reported_once(caplog, broken):
    use_store(BrokenStore(*broken))
    bench = Bench({16: 3.0, 32: 1.0, 64: 2.0})
    kernel = kernel_with(bench)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        for n in (64, 65, 64, 66):
            assert launched_block(kernel, n) == 32
    assert bench.measured == [16, 32, 64] * 3
    warnings = [record for record in caplog.records if "the disk is gone" in record.getMessage()]
    assert len(warnings) == len(broken)


def test_store_that_answers_nonsense_is_a_miss():
    class Nonsense(MemoryStore):
        def get(self, *identity):
            return "a record"

    use_store(Nonsense())
    assert launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))) == 32


def test_store_that_answers_with_the_record_of_another_key_is_a_miss(memory_store):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})), n=64)
    (record,) = memory_store.records()

    class Liar(MemoryStore):
        def get(self, *identity):
            return record

    use_store(Liar())
    bench = Bench({16: 1.0, 32: 3.0, 64: 2.0})
    assert launched_block(kernel_with(bench), n=65) == 16
    assert bench.measured == [16, 32, 64]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": 99}', b"[" * 100_000]
)
def test_corrupt_store_directory_never_fails_a_launch(tmp_path, content):
    use_store(DirectoryStore(tmp_path))
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(content)
    use_store(DirectoryStore(tmp_path))
    bench = Bench({16: 1.0, 32: 3.0, 64: 2.0})
    assert launched_block(kernel_with(bench)) == 16
    assert bench.measured == [16, 32, 64]


def test_store_directory_that_is_a_file_is_reported_and_tunes(tmp_path, monkeypatch, caplog):
    (tmp_path / "launchkit").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_store(None)
    with caplog.at_level(logging.WARNING, logger="launchkit"):
        assert launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0}))) == 32
    assert "not a directory" in caplog.text


def test_place_named_by_the_user_that_is_no_directory_raises(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LAUNCHKIT_STORE", str(tmp_path / "file"))
    settings.reload()
    use_store(None)
    with pytest.raises(StoreError, match="is not a directory"):
        launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))


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
