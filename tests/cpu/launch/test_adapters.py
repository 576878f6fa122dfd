"""Autotuner subclasses: the tested ones launch fast as they would, others keep their own run."""

from __future__ import annotations

import sys

import fla_standin
import pytest
import sample_kernels
import torch
import triton
from installing import fast, installed

import launchkit
from launchkit import hostonly
from launchkit.dispatch import adapters
from launchkit.dispatch.layers import take_apart

X = torch.empty(128)
KEY = (100, "torch.float32", "torch.float32")


@pytest.fixture(autouse=True)
def never_left_installed(host):
    yield
    launchkit.uninstall()


@pytest.fixture(params=adapters.FLA_VERSIONS)
def library(request, monkeypatch):
    return fla_standin.put_in(monkeypatch, request.param)


def make(blocks=(16, 32)):
    jit = triton.jit(sample_kernels.copy.fn)
    return fla_standin.make(jit, sample_kernels.configs(*blocks), ["n"])


def blocks_launched(kernel, times=3):
    hostonly.clear()
    compiled = [kernel[(2,)](X, X, 100, 3) for _ in range(times)]
    assert len(hostonly.launches()) == times
    return [each.src.constants[(4,)] for each in compiled]


def test_tested_version_launches_fast_and_asks_no_file_when_they_are_off(library):
    kernel = make()
    with installed() as runs:
        kernel[(2,)](X, X, 100, 3)
        assert len(fast(runs, lambda: kernel[(2,)](X, X, 100, 3))) == 1
    assert (library.asked, library.runs) == ([], 0)


def test_config_of_a_file_is_launched_and_asked_for_once(library):
    library.FLA_CACHE_MODE = fla_standin.Mode.FULL
    library.files[KEY] = triton.Config({"BLOCK": 64}, num_warps=2)
    kernel = make()
    with installed() as runs:
        assert blocks_launched(kernel) == [64] * 3
        assert runs.total == 1
    assert [key for key, _ in library.asked] == [KEY]
    assert kernel.best_config is library.files[KEY]


def test_key_without_a_file_is_chosen_as_for_any_kernel(library):
    library.FLA_CACHE_MODE = fla_standin.Mode.FULL
    kernel = make()
    with installed():
        assert blocks_launched(kernel) == [16] * 3
    assert len(library.asked) == 1


def test_new_release_passes_arguments_along_and_old_ones_do_not(library):
    library.FLA_CACHE_MODE = fla_standin.Mode.FULL
    with installed():
        make()[(2,)](X, X, 100, 3)
    ((_, named),) = library.asked
    assert (named is None) == sys.modules["fla"].__version__.startswith("0.5.")


def test_single_config_is_taken_whatever_the_files_say(library):
    library.FLA_CACHE_MODE = fla_standin.Mode.FULL
    library.files[KEY] = triton.Config({"BLOCK": 64})
    with installed():
        assert blocks_launched(make(blocks=[32])) == [32] * 3


def test_mode_that_is_switched_on_holds_for_the_next_launch(library):
    library.files[KEY] = triton.Config({"BLOCK": 64}, num_warps=2)
    kernel = make()
    with installed():
        assert blocks_launched(kernel) == [16] * 3
        kernel.cache.clear()
        library.FLA_CACHE_MODE = fla_standin.Mode.FULL
        assert blocks_launched(kernel) == [64] * 3
        kernel.cache.clear()
        library.FLA_CACHE_MODE = fla_standin.Mode.DISABLED
        assert blocks_launched(kernel) == [16] * 3


def test_files_that_are_read_at_each_launch_are_left_to_the_library(library):
    library.FLA_CACHE_MODE = fla_standin.Mode.ALWAYS
    kernel = make()
    with installed():
        for block in (64, 32, 64):
            library.files[KEY] = triton.Config({"BLOCK": block})
            assert blocks_launched(kernel, times=1) == [block]
    assert library.runs == 3


def test_configs_pinned_by_hand_are_followed(library):
    kernel = make()
    with installed():
        assert blocks_launched(kernel) == [16] * 3
        kernel.configs = sample_kernels.configs(64)
        assert blocks_launched(kernel) == [64] * 3


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", None])
def test_other_version_keeps_its_own_run(version, monkeypatch):
    library = fla_standin.put_in(monkeypatch, version)
    kernel = make()
    assert adapters.find(take_apart(kernel)) is None
    with installed() as runs:
        blocks_launched(kernel)
    assert library.runs == 3
    assert runs.jit == 1


def test_subclass_of_the_tested_class_keeps_its_own_run(library):
    class More(fla_standin.CachedAutotuner):
        def run(self, *args, **kwargs):
            return super().run(*args, **kwargs)

    jit = triton.jit(sample_kernels.copy.fn)
    kernel = More(jit, jit.arg_names, sample_kernels.configs(16, 32), ["n"], None, None)
    with installed():
        blocks_launched(kernel)
    assert library.runs == 3


def test_method_replaced_on_the_object_is_respected(library):
    kernel = make()
    kernel._bench = lambda *args, **kwargs: [1.0] * 3
    assert adapters.find(take_apart(kernel)) is None
