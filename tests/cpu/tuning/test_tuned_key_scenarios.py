"""Stored configs over processes, devices and versions: the scenarios that other caches fail in.

Each process is stood for by a new kernel object over the same store. Which test holds which scenario:

| scenario | tests |
|---|---|
| keywords in two orders, None among tensors | test_key_construction: test_keywords_in_two_orders_…, test_none_among_… |
| 1, True, 1.0, "1", NumPy scalars, tensors | test_key_construction: test_1_true_…, test_number_and_its_text_…, UNSTABLE; test_keys |
| NaN, -0.0 | test_key_construction: test_nan_key_…, test_zero_and_minus_zero_…; test_keys |
| text of a dtype, odd texts, enums, large ints | test_key_construction: test_text_of_a_dtype_…, LABELS, KEY_VALUES; lone surrogates here |
| lists, dicts, tensors as key values | test_key_construction: test_key_value_without_a_stable_text_… |
| default left out or given, empty key, no tensors | test_key_construction: test_default_left_out_…, test_empty_key_…, test_kernel_without_tensors_… |
| config values survive a reload | here: test_config_value_survives_…; test_document |
| tunables with reserved names | here: test_tunable_with_a_reserved_name_…; test_configs |
| unknown or missing fields of a document | test_document: test_a_config_field_of_a_later_triton_…, test_a_missing_field_… |
| hooks: one entry, a difference in a hook alone | test_live_configs: test_single_entry_…, test_configs_that_differ_in_a_hook_alone_… |
| a difference in maxnreg or num_stages alone | here: test_configs_that_differ_in_an_option_alone_… |
| reordered, longer, shorter lists, duplicates | test_tuning_store: test_changed_list_…; duplicates here |
| alien configs in a file | test_live_configs: test_stored_config_outside_the_live_list_… |
| more shared memory than this GPU has | test_hinted_configs: test_config_with_more_shared_memory_… |
| H100 PCIe, SXM, H200, MIG of one architecture | test_sameness; test_lookup: test_compatible_device_…; here: test_gpus_of_one_architecture_… |
| two unlike GPUs, reordered ordinals | here: test_unlike_gpus_…; test_config_premises: test_two_unlike_devices_… |
| Triton's version, an unknown one | test_lookup: test_toolchain_policy_…; unknown here |
| source moved, commented, helper edited | here: test_source_…; test_key_construction: SAME_DIGEST, OTHER_DIGEST |
| many shapes, and what a hit touches | here: test_many_keys_…, test_hit_touches_…; test_guard: test_distinct_values_… |
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
from dataclasses import replace

import odd_kernels
import pytest
import sample_kernels
import torch
import triton
import triton.language as tl
from benching import BLOCKS, Bench, grid_of_block, kernel_with, launched_block
from digested import MODULE, PLAIN, module_of
from hinting import TIMES
from launching import outcome

import launchkit
from launchkit import hostonly
from launchkit.dispatch import choosing, fingerprint
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.stores import use_store
from launchkit.keys import Toolchain
from launchkit.store import DirectoryStore

pytestmark = pytest.mark.usefixtures("measuring")


@pytest.fixture
def directory(tmp_path):
    """Opens the same directory anew, as another process would."""
    return lambda: use_store(DirectoryStore(tmp_path / "store"))


class Second:
    """A do_bench for which the second config is the faster one, and which counts."""

    def __init__(self):
        self.calls = 0

    def __call__(self, call, quantiles):
        call()
        self.calls += 1
        return [3.0 - self.calls] * 3 if self.calls < 3 else [9.0] * 3


def forbidden(call, quantiles):
    raise AssertionError("a config was benchmarked")


def chosen_twice(directory, jit, configs, *args):
    """Tune in one process so that the second config wins; return what the next one launches with."""
    with directory():
        launchkit.launch_autotuned(
            launchkit.autotuned(configs, [], do_bench=Second())(jit), (1,), *args
        )
    with directory():
        kernel = launchkit.autotuned(configs, [], do_bench=forbidden)(jit)
        launchkit.launch_autotuned(kernel, (1,), *args)
    return kernel.best_config


VALUES = [
    (0.5, 0.25), (False, 0), (None, "None"), ("on", True), ("0", 0), (1, 1.0), (True, 1),
    ((1, "a"), (1, "b")), ((1, (2.0, None)), (1, (2, None))), (tl.float16, "fp16"),
    (tl.float16, torch.float16), ("a, b", "a,b"), ("é\n'\"\\", "é"), (2**70, 2**70 + 1), (-0.5, 0.5),
]  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("one", "other"), VALUES, ids=repr)
def test_config_value_survives_a_reload_and_is_not_its_look_alike(directory, one, other, turned):
    values = (other, one) if turned else (one, other)
    configs = [triton.Config({"LABEL": value}) for value in values]
    best = chosen_twice(directory, odd_kernels.labelled, configs, torch.empty(64))
    # Configs that Python calls equal are one to Triton, which keeps the first.
    assert best is configs[0 if configs[0] == configs[1] else 1]


@triton.jit
def reserved(x_ptr, configs_hash: tl.constexpr, kwargs: tl.constexpr, config: tl.constexpr):
    tl.store(x_ptr, configs_hash + kwargs + config)


def test_tunable_with_a_reserved_name_survives_a_reload(directory):
    configs = [
        triton.Config({"configs_hash": 1, "kwargs": value, "config": 3}) for value in (16, 32)
    ]
    assert chosen_twice(directory, reserved, configs, torch.empty(64)) is configs[1]


@pytest.mark.parametrize("options", [{"maxnreg": 64}, {"num_stages": 5}, {"num_warps": 8}], ids=str)
@pytest.mark.parametrize("place", [0, 1])
def test_configs_that_differ_in_an_option_alone_are_two(directory, options, place):
    configs = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 16})]
    configs[place] = triton.Config({"BLOCK": 16}, **options)
    x = torch.empty(64)
    assert chosen_twice(directory, sample_kernels.copy, configs, x, x, 64, 1) is configs[1]


def test_config_that_stands_twice_is_measured_and_stored_once(memory_store):
    bench = Bench(TIMES)
    assert launched_block(kernel_with(bench, blocks=(16, 32, 16, 32))) == 32
    assert bench.measured == [16, 32]
    (record,) = memory_store.records()
    assert len(record.configs) == 2


@pytest.mark.parametrize("label", ["\ud800", "a\udfff"], ids=ascii)
def test_lone_surrogate_as_a_key_comes_to_what_triton_makes_of_it(directory, label):
    configs = [triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)]
    theirs = triton.autotune(configs, ["LABEL"], do_bench=Second())(odd_kernels.labelled)
    ours = launchkit.autotuned(configs, ["LABEL"], do_bench=Second())(odd_kernels.labelled)
    x = torch.empty(64)
    expected = outcome(lambda: theirs[(1,)](x, label))
    with directory() as store:
        assert outcome(lambda: launchkit.launch_autotuned(ours, (1,), x, label)) == expected
        assert isinstance(expected, type)  # Triton cannot compile it: nothing was measured
        assert list(store.records()) == []


# -- devices


@pytest.fixture
def devices(monkeypatch):
    """Lets ordinals be unlike GPUs: names in the order of their ordinals."""
    identity = seam.device_identity

    def are(*names):
        monkeypatch.setattr(
            seam, "device_identity", lambda ordinal: replace(identity(0), name=names[ordinal])
        )

    return are


class PerDevice(Bench):
    """Other times on each device."""

    def __call__(self, call, quantiles):
        call()
        launch = hostonly.launches()[-1]
        self.measured.append((seam.device_identity(launch.device).name, launch.grid[0]))
        return [self.times[self.measured[-1][0]][launch.grid[0]]] * 3


FAST = {"H100": {16: 1.0, 32: 2.0, 64: 3.0}, "H200": {16: 3.0, 32: 2.0, 64: 1.0}}


def blocks_on(host, kernel, *ordinals):
    found = []
    for ordinal in ordinals:
        host.set_device(ordinal)
        found.append(launched_block(kernel))
    host.set_device(0)
    return found


def test_unlike_gpus_in_one_process_keep_their_configs_when_they_change_places(
    devices, directory, host, each_core
):
    devices("H100", "H200")
    with directory():
        kernel = kernel_with(bench := PerDevice(FAST))
        assert blocks_on(host, kernel, 0, 1, 0, 1) == [16, 64, 16, 64]
        assert len(bench.measured) == 6
        devices("H200", "H100")
        assert blocks_on(host, kernel_with(PerDevice({})), 0, 1, 0, 1) == [64, 16, 64, 16]


def test_alike_gpus_in_one_process_are_tuned_once(devices, host):
    devices("H100", "H100")
    kernel = kernel_with(bench := PerDevice(FAST))
    assert blocks_on(host, kernel, 0, 1, 0, 1) == [16] * 4
    assert len(bench.measured) == 3


GPUS = ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"]


def test_gpus_of_one_architecture_share_nothing_without_a_policy(devices, directory, host):
    devices("NVIDIA H100 80GB HBM3")
    with directory():
        launched_block(kernel_with(Bench(TIMES)))
        for name in GPUS:
            devices(name)
            bench = Bench({16: 1.0, 32: 2.0, 64: 3.0})
            assert launched_block(kernel_with(bench)) == 16
            assert bench.measured == [16, 32, 64]


# -- versions


def test_unknown_version_poisons_no_store(monkeypatch, directory):
    known = seam.toolchain()
    monkeypatch.setattr(seam, "toolchain", lambda: Toolchain("unknown"))
    with directory() as store:
        bench = Bench(TIMES)
        assert launched_block(kernel_with(bench)) == 32
        assert launched_block(kernel_with(Bench({}))) == 32  # this process remembers
        assert not list(store.path.rglob("*.json"))
    for version in (Toolchain("unknown"), known):
        monkeypatch.setattr(seam, "toolchain", lambda version=version: version)
        with directory():
            bench = Bench(TIMES)
            launched_block(kernel_with(bench))
            assert bench.measured == [16, 32, 64]
    with directory():
        assert launched_block(kernel_with(Bench({}))) == 32


SOURCE = MODULE.format(**PLAIN)
WARPS = [triton.Config({}, num_warps=2), triton.Config({}, num_warps=4)]


def tuned_from(tmp_path, source, bench):
    jit = module_of(tmp_path, source, f"scenario_{abs(hash(source))}").kernel
    kernel = launchkit.autotuned(WARPS, ["n"], name="scenario", do_bench=bench)(jit)
    launchkit.launch_autotuned(kernel, (1,), torch.empty(64), 5)
    return kernel


@pytest.mark.parametrize(
    "source", ["\n\n# why\n" + SOURCE, SOURCE.replace("    offsets", "    # why\n    offsets")]
)
def test_source_that_was_moved_or_commented_takes_what_was_stored(tmp_path, directory, source):
    with directory():
        tuned_from(tmp_path, SOURCE, Second())
    with directory():
        assert tuned_from(tmp_path, source, forbidden).best_config is WARPS[1]


def test_source_whose_helper_was_edited_is_tuned_again_and_explained(tmp_path, directory):
    with directory():
        tuned_from(tmp_path, SOURCE, Second())
    with directory():
        edited = MODULE.format(**{**PLAIN, "helper": "3"})
        jit = module_of(tmp_path, edited, "scenario_edited").kernel
        kernel = launchkit.autotuned(WARPS, ["n"], name="scenario", do_bench=(bench := Second()))(
            jit
        )
        found = launchkit.explain(kernel, (1,), torch.empty(64), 5)
        assert [each.field for each in found.nearest[0].differences] == ["kernel.digest"]
        launchkit.launch_autotuned(kernel, (1,), torch.empty(64), 5)
        assert bench.calls == 2


# -- many keys, and hits


def test_many_keys_are_bounded_in_memory_and_forgotten_ones_are_read_again(monkeypatch, directory):
    monkeypatch.setattr(choosing, "MAX_CHOICES", 8)
    with directory():
        kernel = kernel_with(bench := Bench(TIMES))
        for n in range(100, 130):
            assert launched_block(kernel, n) == 32
        chooser = kernel._launchkit_entry._chooser
        kept = (chooser._choices.by_place, chooser._announced, kernel.cache)
        assert all(len(each) <= 8 for each in kept)
        assert len(bench.measured) == 30 * len(BLOCKS)
        kernel._launchkit_entry._core.clear()
        kernel._launchkit_entry._choices.clear()
        assert launched_block(kernel, 100) == 32
        assert len(bench.measured) == 30 * len(BLOCKS)


def test_hit_touches_no_file_store_environment_log_or_lock(monkeypatch, directory, each_core):
    with directory() as store:
        kernel = kernel_with(Bench(TIMES))
        x = torch.empty(64)
        for _ in range(3):
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)

        def touched(*args, **kwargs):
            raise AssertionError("a hit touched it")

        for owner, name in [
            (builtins, "open"), (os, "stat"), (type(os.environ), "__getitem__"),
            (logging.Logger, "_log"), (type(store), "get"), (type(store), "records_of"),
            (fingerprint, "launch_key"), (choosing.ConfigChooser, "choose"),
        ]:  # fmt: skip
            monkeypatch.setattr(owner, name, touched)
        called = []
        sys.setprofile(lambda frame, event, what: called.append((event, what)))
        try:
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 64, 1)
        finally:
            sys.setprofile(None)
        monkeypatch.undo()
    builtin = [getattr(what, "__name__", "") for event, what in called if event == "c_call"]
    assert not {"acquire", "__enter__", "open", "getenv", "stat", "write"} & set(builtin)
    assert len(hostonly.launches()) > 3
