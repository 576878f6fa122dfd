"""Configs of other devices, toolchains and programs are hints: allowed, counted, and tried first."""

from __future__ import annotations

from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
from benching import (
    BLOCKS,
    Bench,
    grid_of_block,
    kernel_with,
    launched_block,
    triton_block,
    triton_kernel_with,
)
from hinting import (
    TIMES,
    another_n,
    elsewhere,
    other_version,
    refuse,
    relaunched,
    tuned_record,
)
from stored import store_of
from wide_kernels import CONFIGS, FITS, TOO_LARGE, too_large_for_this_gpu, tuned_wide, wide

import launchkit
from launchkit import hostonly, settings
from launchkit.configs import TunedConfig
from launchkit.dispatch import permissions
from launchkit.dispatch.stores import use_store
from launchkit.errors import UsageError
from launchkit.store import MemoryStore

pytestmark = pytest.mark.usefixtures("measuring", "fresh_stats")

MOVED = {
    "device": (elsewhere, {"device": "compatible"}),
    "toolchain": (other_version, {"toolchain": "any"}),
}
COMPATIBLE = {"device": "compatible"}


@pytest.mark.parametrize("kind", MOVED)
def test_what_is_not_exact_is_tuned_by_default(kind):
    move, _ = MOVED[kind]
    assert relaunched(move(tuned_record()))[0] == [16, 32, 64]
    assert dict(launchkit.stats().configs.inexact) == {}


@pytest.mark.parametrize("kind", MOVED)
def test_policy_of_the_store_takes_it_and_counts_it(kind):
    move, policies = MOVED[kind]
    assert relaunched(move(tuned_record()), policies=policies) == ([], 32)
    assert dict(launchkit.stats().configs.inexact) == {kind: 1}


@pytest.mark.parametrize("kind", MOVED)
def test_policy_of_the_kernel_takes_it(kind):
    move, policies = MOVED[kind]
    assert relaunched(move(tuned_record()), **policies) == ([], 32)


@pytest.mark.parametrize("kind", MOVED)
def test_policy_of_the_environment_takes_it(kind, monkeypatch):
    move, policies = MOVED[kind]
    monkeypatch.setenv(f"LAUNCHKIT_{kind.upper()}_POLICY", f" {policies[kind].upper()} ")
    settings.reload()
    assert relaunched(move(tuned_record())) == ([], 32)


@pytest.mark.parametrize("kind", MOVED)
def test_kernel_may_be_stricter_than_the_process(kind):
    move, policies = MOVED[kind]
    measured, _ = relaunched(move(tuned_record()), policies=policies, **{kind: "exact"})
    assert measured == [16, 32, 64]


def test_policy_ends_with_its_block():
    store = store_of(elsewhere(tuned_record()))
    assert relaunched(store, policies=COMPATIBLE) == ([], 32)
    assert relaunched(store)[0] == [16, 32, 64]


@pytest.mark.parametrize("name", ["LAUNCHKIT_DEVICE_POLICY", "LAUNCHKIT_TOOLCHAIN_POLICY"])
def test_policy_in_the_environment_that_does_not_exist_is_refused(name, monkeypatch):
    monkeypatch.setenv(name, "fuzzy")
    with pytest.raises(UsageError, match="none of exact"):
        settings.reload()


@pytest.mark.parametrize("bad", [{"device": "any"}, {"toolchain": "newest"}])
def test_policy_that_does_not_exist_is_refused_where_it_is_given(bad):
    with pytest.raises(UsageError, match="Choose"):
        use_store("memory:", **bad)
    with pytest.raises(UsageError, match="Choose"):
        launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], **bad)


def test_exact_record_wins_over_a_hint():
    record = tuned_record(times={16: 1.0, 32: 2.0, 64: 3.0})
    store = store_of(elsewhere(tuned_record()), record)
    assert relaunched(store, policies=COMPATIBLE) == ([], 16)
    assert dict(launchkit.stats().configs.inexact) == {}


def test_hint_leaves_what_a_hit_leaves(each_core):
    seen = []
    with use_store(store_of(elsewhere(tuned_record())), device="compatible"):
        kernel = kernel_with(Bench({}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                triton.knobs.autotuning, "listener", lambda **e: seen.append(e), raising=False
            )
            assert launched_block(kernel) == 32
    assert kernel.best_config is kernel.configs[1]
    assert list(kernel.cache.values()) == [kernel.configs[1]]
    assert kernel.configs_timings[kernel.configs[0]] == [3.0] * 3
    assert [event["cache_hit"] for event in seen] == [True]
    assert len(kernel._launchkit_entry._core) == 1


def test_hint_is_not_stored_as_measured_here():
    store = store_of(elsewhere(tuned_record()))
    before = list(store.records())
    relaunched(store, policies=COMPATIBLE)
    assert list(store.records()) == before


def test_choice_is_made_once_and_then_remembered():
    with use_store(store_of(elsewhere(tuned_record())), device="compatible"):
        kernel = kernel_with(Bench({}))
        for stride in (1, 2, 3):
            x = torch.empty(64)
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, stride)
            kernel._launchkit_entry._choices.clear()
    found = launchkit.stats().configs
    assert dict(found.inexact) == {"device": 1}
    assert dict(found.hits) == {"memory of this process": 1, "this process": 1}


@pytest.mark.parametrize(
    ("move", "options"),
    [
        (elsewhere, COMPATIBLE),
        (lambda record: another_n(record, 60), {"shapes": {"n": launchkit.nearest(within=2)}}),
        (lambda record: imported(record, (64, None)), {}),
    ],
    ids=["device", "shape", "imported"],
)
def test_hint_is_tuned_where_hints_are_not_wanted_and_is_exact_from_then_on(move, options):
    store = store_of(move(tuned_record()))
    with permissions.without_hints():
        assert relaunched(store, times=TIMES, **options) == ([16, 32, 64], 32)
    assert relaunched(store, **options) == ([], 32)
    assert dict(launchkit.stats().configs.inexact) == {}


# -- feasibility


def test_hint_that_does_not_fit_gives_way_to_the_next_best_by_its_times(monkeypatch):
    tried = refuse(monkeypatch, 32)
    assert relaunched(elsewhere(tuned_record()), policies=COMPATIBLE) == ([], 64)
    assert tried == [32, 64]


def test_hints_of_which_none_fits_are_tuned_instead(monkeypatch):
    tried = refuse(monkeypatch, *BLOCKS)
    measured, block = relaunched(
        elsewhere(tuned_record()), policies=COMPATIBLE, times={16: 1.0, 32: 2.0, 64: 3.0}
    )
    assert (measured, block) == ([16, 32, 64], 16)
    assert set(tried) == set(BLOCKS)
    assert dict(launchkit.stats().configs.misses) == {"no stored config fits": 1}


def test_config_that_does_not_fit_is_not_tried_again_for_the_next_record(monkeypatch):
    store = store_of(elsewhere(tuned_record(), "A"), elsewhere(tuned_record(), "B"))
    tried = refuse(monkeypatch, 32, 64)
    assert relaunched(store, policies=COMPATIBLE) == ([], 16)
    assert tried == [32, 64, 16]


@pytest.mark.parametrize(
    "error", [triton.OutOfResources(1, 0, "registers"), triton.CompilationError("", None, "no")]
)
def test_errors_of_a_config_are_misses_of_the_hint(monkeypatch, error):
    refuse(monkeypatch, 32, error=error)
    assert relaunched(elsewhere(tuned_record()), policies=COMPATIBLE) == ([], 64)


def test_other_errors_pass_through(monkeypatch):
    refuse(monkeypatch, 32, error=RuntimeError("illegal address"))
    with pytest.raises(RuntimeError, match="illegal address"):
        relaunched(elsewhere(tuned_record()), policies=COMPATIBLE)


def wide_launch(kernel):
    x = torch.empty(64, dtype=torch.float16)
    launchkit.launch_autotuned(kernel, grid_of_block, x, x, torch.empty(256), 64)
    return hostonly.launches()[-1].grid[0]


def test_config_with_more_shared_memory_than_this_gpu_has_is_not_launched(memory_store):
    x = torch.empty(64, dtype=torch.float16)
    with pytest.raises(triton.OutOfResources):
        wide.run(x, x, x, 64, grid=(1,), warmup=False, BLOCK=TOO_LARGE, num_stages=10)
    bench = Bench({FITS // 2: 3.0, FITS: 2.0})
    assert wide_launch(tuned_wide(CONFIGS[:2], bench)) == FITS
    (record,) = memory_store.records()
    with use_store(store_of(too_large_for_this_gpu(record)), device="compatible"):
        kernel = tuned_wide(CONFIGS, Bench({}))
        assert wide_launch(kernel) == FITS
        for kept in (kernel._launchkit_entry._core, kernel._launchkit_entry._choices, kernel.cache):
            kept.clear()
        kernel._launchkit_entry._chooser._choices.by_place.clear()
        assert wide_launch(kernel) == FITS  # Triton remembers the kernel that did not fit


def test_hint_is_taken_by_a_kernel_above_heuristics():
    make = launchkit.autotuned(
        [triton.Config({"SPLIT": 1}), triton.Config({"SPLIT": 2})], ["n"], do_bench=by_split
    )
    jit = triton.heuristics({"SIZE": lambda args: 16})(odd_kernels.optional)
    x = torch.empty(64)
    with use_store(store := MemoryStore()):
        launchkit.launch_autotuned(make(jit), (1,), x, 3)
    with use_store(store_of(*map(elsewhere, store.records())), device="compatible"):
        kernel = make(jit)
        kernel.do_bench = forbidden
        launchkit.launch_autotuned(kernel, (1,), x, 3)
    assert kernel.best_config.kwargs == {"SPLIT": 2}
    assert dict(launchkit.stats().configs.inexact) == {"device": 1}


def by_split(call, quantiles):
    call()
    by_split.calls = getattr(by_split, "calls", 0) + 1
    return [1.0 / by_split.calls] * 3


def forbidden(call, quantiles):
    raise AssertionError("a config was benchmarked")


def test_hint_is_taken_by_an_installed_kernel_of_tritons(monkeypatch):
    monkeypatch.setenv("LAUNCHKIT_DEVICE_POLICY", "compatible")
    settings.reload()
    with use_store(store_of(elsewhere(tuned_record()))):
        launchkit.install()
        try:
            assert triton_block(triton_kernel_with(Bench({}))) == 32
        finally:
            launchkit.uninstall()
    assert dict(launchkit.stats().configs.inexact) == {"device": 1}


def test_pre_hook_runs_before_what_it_shapes_is_compiled():
    shaped = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda args: shaped.append(args["BLOCK"]))
        for block in BLOCKS
    ]
    record = elsewhere(tuned_record(configs=configs))
    shaped.clear()
    assert relaunched(record, policies=COMPATIBLE, configs=configs) == ([], 32)
    assert shaped == [32, 32]


def test_exact_hit_is_not_compiled_twice(monkeypatch):
    tried = refuse(monkeypatch)
    assert relaunched(tuned_record()) == ([], 32)
    assert tried == []


# -- what another program's file gave


def imported(record, *results):
    """The record as an import leaves it: (block, time in µs or None) each, the first one chosen."""
    identities = [tuned.config for tuned in record.configs]
    by_block = {{v.name: v.value for v in each}["BLOCK"]: each for each in identities}
    made = [
        TunedConfig.imported(by_block[str(block)], method="imported:fla")
        if time_us is None
        else TunedConfig(by_block[str(block)], time_us, None, None, None, "imported:fla", None)
        for block, time_us in results
    ]
    return replace(record, configs=tuple(made), chosen=made[0].config)


def test_imported_winner_without_a_time_is_used_and_counted():
    assert relaunched(imported(tuned_record(), (64, None))) == ([], 64)
    found = launchkit.stats().configs
    assert dict(found.inexact) == {"imported": 1}
    assert found.tune_next[0].inexact == ("imported",)


def test_imported_winner_that_does_not_fit_gives_way_to_the_next_best(monkeypatch):
    tried = refuse(monkeypatch, 64)
    record = imported(tuned_record(), (64, 1.0), (16, 3.0), (32, 2.0))
    assert relaunched(record) == ([], 32)
    assert tried == [64, 32]


def test_imported_winner_that_does_not_fit_and_is_alone_is_tuned_instead(monkeypatch):
    refuse(monkeypatch, 64)
    assert relaunched(imported(tuned_record(), (64, None)))[0] == [16, 32, 64]


def test_imported_winner_outside_the_live_list_is_tuned_instead():
    assert relaunched(imported(tuned_record(), (64, None)), blocks=(16, 32))[0] == [16, 32]


def test_what_is_tuned_here_replaces_an_imported_choice():
    store = store_of(imported(tuned_record(), (64, None)))
    for record in (tuned_record(),):
        store.put(record)
    assert relaunched(store) == ([], 32)
    assert dict(launchkit.stats().configs.inexact) == {}


def test_times_by_another_method_are_no_hint():
    record = tuned_record()
    graph = tuple(replace(tuned, method="graph") for tuned in record.configs)
    assert relaunched(elsewhere(replace(record, configs=graph)), policies=COMPATIBLE)[0] == [
        16,
        32,
        64,
    ]


def test_other_spelling_of_the_device_is_exact():
    record = tuned_record()
    spelled = replace(record.device, name=record.device.name.upper().replace("-", " "))
    assert spelled != record.device
    assert relaunched(replace(record, device=spelled)) == ([], 32)
    assert dict(launchkit.stats().configs.inexact) == {}


# -- what is counted


def test_use_says_what_to_tune_next():
    record = elsewhere(other_version(another_n(tuned_record(), 60), "0.0.1"))
    policies = {"device": "compatible", "toolchain": "any"}
    relaunched(record, policies=policies, shapes={"n": launchkit.nearest(within=2)})
    found = launchkit.stats().configs
    assert dict(found.inexact) == {"device": 1, "toolchain": 1, "shape": 1}
    (use,) = found.tune_next
    assert use.kernel == "sample_kernels.copy"
    assert use.key.startswith("n=64 ")
    assert use.stored_key.startswith("n=60 ")
    assert use.stored_device == "NVIDIA H100 PCIe"
    assert use.stored_toolchain == "triton 0.0.1"
    assert use.inexact == ("device", "toolchain", "shape")
    assert "BLOCK=32" in use.config
    assert "verify again" in str(found)
    assert str(found) in str(launchkit.stats())


def test_layers_reasons_and_seconds_are_counted(memory_store):
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel)
    first = launchkit.stats(reset=True).configs
    assert (dict(first.hits), dict(first.misses), first.tunings) == ({}, {"absent": 1}, 1)
    assert first.tuning_s > 0
    launched_block(kernel_with(Bench({})))
    second = launchkit.stats().configs
    assert dict(second.hits) == {"memory of this process": 1}
    assert (second.tunings, second.tuning_s) == (0, 0.0)
    assert second.saved_s > 0
