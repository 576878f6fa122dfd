"""Kernels that change under the dispatcher, or launch in a way of their own."""

from __future__ import annotations

import sys
import threading

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from benching import Bench, grid_of_block, launched_block
from launching import counted_runs

import launchkit
from launchkit import hostonly
from launchkit.dispatch import launcher, plan, triton_seam

pytestmark = pytest.mark.usefixtures("each_core", "host")


def arguments():
    return torch.empty(64), torch.empty(64)


def grid_of_split(meta):
    return (meta["BLOCK"], meta["SPLIT"])


@pytest.mark.parametrize("values", [{"SPLIT": 4}, {"SPLIT": 4, "m": 11}])
def test_list_that_gives_more_parameters_than_before_is_launched_with_them(values):
    kernel = launchkit.autotuned(sample_kernels.configs(16, 32), key=["n"])(odd_kernels.split)
    x, y = arguments()
    kernel[grid_of_split](x, y, 5)
    kernel[grid_of_split](x, y, 5)
    assert hostonly.launches()[-1].grid == (16, 1, 1)
    kernel.configs = [triton.Config({"BLOCK": 16, **values}), *sample_kernels.configs(64)]
    theirs = triton.autotune(kernel.configs, key=["n"])(odd_kernels.split)
    for _ in range(3):
        kernel[grid_of_split](x, y, 5)
        ours = hostonly.launches()[-1]
        theirs[grid_of_split](x, y, 5)
        assert ours == hostonly.launches()[-1]
        assert ours.grid == (16, 4, 1)
    with counted_runs() as runs:
        kernel[grid_of_split](x, y, 5)
    assert runs.jit == 0


def test_parameters_with_the_names_of_builtins_are_launched_as_by_triton():
    given = (torch.empty(8), 3, 4, 5, 6)
    for _ in range(3):
        ours = launchkit.launch(odd_kernels.builtins_named, (2,), *given)
        launched = hostonly.launches()[-1]
        assert odd_kernels.builtins_named[(2,)](*given) is ours
        assert launched == hostonly.launches()[-1]


def test_finding_a_kernel_while_another_thread_compiles_is_safe():
    class Kernel:
        def __init__(self, entries):
            self.device_caches = {0: (entries,)}

    wanted = object()
    entries = {f"key{i}": object() for i in range(5)} | {"wanted": wanted}
    assert triton_seam.cache_place(Kernel(entries), 0, wanted) == (0, (entries,), "wanted")
    stop = threading.Event()
    shared = dict(entries)

    def compile_more():
        while not stop.is_set():
            key = object()
            shared[key] = None
            del shared[key]

    other = threading.Thread(target=compile_more)
    other.start()
    try:
        for _ in range(20_000):
            assert triton_seam.cache_place(Kernel(shared), 0, wanted).key == "wanted"
    finally:
        stop.set()
        other.join()


class OwnRun(triton.runtime.autotuner.Autotuner):
    """An autotuner that takes its configs from elsewhere: always the last one."""

    runs = 0

    def run(self, *args, **kwargs):
        OwnRun.runs += 1
        return self.fn.run(*args, **kwargs, **self.configs[-1].all_kwargs())


def test_autotuner_with_a_run_of_its_own_is_launched_by_it_every_time():
    kernel = OwnRun(
        sample_kernels.copy, sample_kernels.copy.arg_names, sample_kernels.configs(16, 32), ["n"],
        None, None,
    )  # fmt: skip
    before = OwnRun.runs
    assert [launched_block(kernel) for _ in range(3)] == [32, 32, 32]
    assert OwnRun.runs == before + 3


def test_autotuner_whose_instance_was_given_a_run_is_launched_by_it():
    kernel = triton.autotune(sample_kernels.configs(16, 32), ["n"])(sample_kernels.copy)
    kernel.run = lambda *args, **kwargs: kernel.fn.run(
        *args, **kwargs, **kernel.configs[1].all_kwargs()
    )
    assert [launched_block(kernel) for _ in range(2)] == [32, 32]


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_option_that_the_config_gives_is_refused_under_heuristics_as_by_triton(order):
    def build(wrap):
        heuristic = triton.heuristics({"SIZE": lambda args: 16})
        tuned = wrap(configs=[triton.Config({"MODE": m}) for m in ("shift", "plain")], key=["n"])
        layers = (heuristic, tuned) if order == "outside" else (tuned, heuristic)
        return layers[0](layers[1](sample_kernels.mixed))

    x = torch.empty(64)
    given = {"a_ptr": x, "b_ptr": x, "n": 1, "flag": True, "alpha": 1.0}
    ours, theirs = build(launchkit.autotuned), build(triton.autotune)
    launchkit.launch_autotuned(ours, (1,), **given)
    for _ in range(2):
        with pytest.raises(TypeError) as refused:
            theirs[(1,)](**given, num_warps=8)
        with pytest.raises(type(refused.value), match="num_warps"):
            launchkit.launch_autotuned(ours, (1,), **given, num_warps=8)
    assert launchkit.launch_autotuned(ours, (1,), **given) is theirs[(1,)](**given)


def test_list_changed_while_another_thread_tunes_is_not_given_the_old_choice(measuring):
    started, go_on = threading.Event(), threading.Event()

    def slow_bench(call, quantiles):
        started.set()
        assert go_on.wait(60)
        call()
        return [float(hostonly.launches()[-1].grid[0])] * 3

    kernel = launchkit.autotuned(
        sample_kernels.configs(16, 32), key=["n"], do_bench=slow_bench, name="changing"
    )(sample_kernels.copy)
    tuning = threading.Thread(target=launched_block, args=(kernel,))
    tuning.start()
    try:
        assert started.wait(60)
        kernel.configs = sample_kernels.configs(32, 64)
    finally:
        go_on.set()
        tuning.join()
    assert [launched_block(kernel) for _ in range(3)] == [32, 32, 32]


def test_launch_slot_that_comes_while_fronts_change_is_never_lost():
    kernel = launchkit.autotuned(sample_kernels.configs(16), key=["n"])(sample_kernels.copy)
    launched_block(kernel)
    entry = kernel._launchkit_entry
    stop = threading.Event()

    def relink():
        while not stop.is_set():
            entry.link(entry.direct)

    other = threading.Thread(target=relink)
    other.start()
    try:
        for _ in range(2000):
            seen = []
            launcher.set_launch_slot(lambda fn, name, seen=seen: lambda *a, **k: seen.append(name))
            entry.fast((1,))
            launcher.set_launch_slot(None)
            assert len(seen) == 1
            assert entry.fast == entry.direct
    finally:
        stop.set()
        other.join()
        launcher.set_launch_slot(None)


def test_kernel_gets_plans_again_after_a_driver_of_another_device_type(monkeypatch):
    kernel = launchkit.autotuned(sample_kernels.configs(16), key=["n"])(sample_kernels.copy)
    launched_block(kernel)
    active = triton_seam.active_driver()
    other = type(active).__new__(type(active))
    other.__dict__.update(vars(active))
    other.expected_device_type = "cuda"
    triton.runtime.driver.set_active(other)
    launched_block(kernel)
    triton.runtime.driver.set_active(active)
    launched_block(kernel)
    with counted_runs() as runs:
        launched_block(kernel)
    assert runs.jit == 0


def test_heuristics_above_a_kernel_share_its_choice(measuring):
    bench = Bench({16: 2.0, 32: 1.0})
    configs = sample_kernels.configs(16, 32)
    inner = launchkit.autotuned(configs, key=["n"], do_bench=bench)(sample_kernels.copy)
    outer = triton.heuristics({"stride": lambda args: 1})(inner)
    x = torch.empty(64)
    with launchkit.use_store("memory:"):
        launchkit.launch_autotuned(outer, grid_of_block, x, x, 64)
        with launchkit.use_store("memory:"):
            assert launched_block(inner) == 32
    assert bench.measured == [16, 32]


def test_table_that_is_full_takes_plans_from_many_threads_at_once(monkeypatch):
    monkeypatch.setattr(plan, "MAX_PLANS", 8)
    table, errors = plan.PlanTable(), []

    def insert(thread):
        try:
            for i in range(30_000):
                table.insert((thread, i), i)
        except RuntimeError as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=insert, args=(j,)) for j in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(table) <= 8 + 4


def test_choice_from_another_list_never_comes_under_this_lists_guard(monkeypatch):
    first, second = sample_kernels.configs(16, 32), sample_kernels.configs(64, 32)
    kernel = launchkit.autotuned(first[:], key=["n"])(sample_kernels.copy)
    launched_block(kernel, n=7)
    entry = kernel._launchkit_entry
    fit = entry._fit_cores

    def fit_then_switch():
        # Stands for another thread that rebinds the list at the worst moment.
        fit()
        kernel.configs = second[:]
        monkeypatch.setattr(entry, "_fit_cores", fit)

    monkeypatch.setattr(entry, "_fit_cores", fit_then_switch)
    launched_block(kernel, n=16)
    kernel.configs = first[:]
    assert [launched_block(kernel, n=16) for _ in range(3)] == [16, 16, 16]


def test_key_named_twice_is_launched_as_by_triton():
    kernel = triton.autotune(sample_kernels.configs(16, 32), ["n", "n"])(sample_kernels.copy)
    assert [launched_block(kernel) for _ in range(2)] == [16, 16]


def test_heuristics_with_a_run_of_their_own_are_launched_by_it():
    class Own(triton.runtime.autotuner.Heuristics):
        def run(self, *args, **kwargs):
            return self.fn.run(*args, **{**kwargs, "SIZE": 32})

    kernel = Own(sample_kernels.mixed, sample_kernels.mixed.arg_names, {"SIZE": lambda args: 16})
    given = (None, torch.empty(64), 3, True, 0.5, "plain")
    for _ in range(2):
        assert launchkit.launch(kernel, (1,), *given) is kernel[(1,)](*given)


def test_config_of_a_class_of_its_own_is_asked_at_each_launch():
    class Own(triton.Config):
        def all_kwargs(self):
            return {**super().all_kwargs(), "SPLIT": 4, "m": 9}

    kernel = launchkit.autotuned([Own({"BLOCK": 16})], key=["n"])(odd_kernels.split)
    for _ in range(3):
        kernel[grid_of_split](*arguments(), 5)
        assert hostonly.launches()[-1].grid == (16, 4, 1)


@pytest.mark.parametrize("rebind", [False, True])
def test_value_that_is_equal_but_of_another_type_is_launched_as_by_triton(rebind):
    def build(wrap):
        return wrap(configs=[triton.Config({"MODE": "plain", "alpha": 1})], key=["n"])(
            sample_kernels.mixed
        )

    x = torch.empty(64)
    given = {"a_ptr": x, "b_ptr": x, "n": 7, "flag": True}
    ours, theirs = build(launchkit.autotuned), build(triton.autotune)
    for _ in range(2):
        assert ours[(1,)](**given) is theirs[(1,)](**given)
    for kernel in (ours, theirs):
        if rebind:
            kernel.configs = [triton.Config({"MODE": "plain", "alpha": 1.0})]
        else:
            kernel.configs[0].kwargs["alpha"] = 1.0
    for _ in range(2):
        assert ours[(1,)](**given) is theirs[(1,)](**given)


def test_finalizer_that_launches_while_the_slot_changes_does_not_hang():
    launched_block(launchkit.autotuned(sample_kernels.configs(16), ["n"])(sample_kernels.copy))

    class Holder:
        def __del__(self):
            launcher.set_launch_slot(None)

    def wrap_with(holder):
        return lambda fn, name: lambda *args, **kwargs: (holder, fn(*args, **kwargs))[1]

    def switch():
        launcher.set_launch_slot(wrap_with(Holder()))
        launcher.set_launch_slot(None)

    thread = threading.Thread(target=switch, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_keys_rebound_after_the_first_launch_choose_anew(measuring):
    def by_stride(configs, named, **kwargs):
        return [configs[1 if named["stride"] == 2 else 0]]

    kernel = launchkit.autotuned(
        sample_kernels.configs(16, 32),
        key=["n"],
        prune_configs_by={"early_config_prune": by_stride},
    )(sample_kernels.copy)
    x = torch.empty(64)

    def block(stride):
        kernel[grid_of_block](x, x, 64, stride)
        return hostonly.launches()[-1].grid[0]

    assert [block(1), block(1), block(2)] == [16, 16, 16]
    kernel.keys = ["n", "stride"]
    assert [block(1), block(2), block(2), block(1)] == [16, 32, 32, 16]


def test_pre_hook_that_changes_its_config_is_obeyed_in_the_same_launch():
    def hook(named):
        config.kwargs["BLOCK"] = 32

    config = triton.Config({"BLOCK": 16}, pre_hook=hook)
    kernel = launchkit.autotuned([config], key=["n"])(sample_kernels.copy)
    assert launched_block(kernel) == 32


def test_compiler_option_in_a_configs_keywords_is_no_obstacle_to_a_hit():
    configs = [triton.Config({"BLOCK": b, "enable_fp_fusion": False}) for b in (16, 32)]
    ours = launchkit.autotuned(configs, key=["n"])(sample_kernels.copy)
    theirs = triton.autotune(configs, key=["n"])(sample_kernels.copy)
    x = torch.empty(64)
    expected = theirs[(1,)](x, x, 64, 1)
    assert ours[(1,)](x, x, 64, 1) is expected
    with counted_runs() as runs:
        assert ours[(1,)](x, x, 64, 1) is expected
    assert runs.total == 0
