"""install() and uninstall() as switches: patterns, repetition, reversal, and other tools' patches."""

from __future__ import annotations

import functools
import gc
import logging

import pytest
import sample_kernels
import torch
import triton
from installing import CLASSES, fast, installed, state_of_classes, triton_launches
from sample_kernels import plain
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, KernelInterface

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch import install as install_module
from launchkit.dispatch import launch_counts
from launchkit.errors import UsageError

X = torch.empty(128)
ARGS = (X, X, 100, 3)


@pytest.fixture(autouse=True)
def never_left_installed():
    yield
    launchkit.uninstall()


def layered():
    tuned = triton.autotune(sample_kernels.configs(16, 32), ["n"])(plain())
    return triton.heuristics({"stride": lambda args: 3})(tuned)


def attributes(kernel):
    layers = [kernel]
    while hasattr(layers[-1], "fn") and isinstance(layers[-1], CLASSES):
        layers.append(layers[-1].fn)
    return [sorted(vars(layer)) for layer in layers]


def test_classes_are_after_uninstall_what_they_were():
    before = state_of_classes()
    launchkit.install()
    assert state_of_classes() != before
    launchkit.uninstall()
    assert state_of_classes() == before
    assert JITFunction.__getitem__ is KernelInterface.__getitem__


@pytest.mark.parametrize("make", [plain, layered])
def test_kernel_objects_are_after_uninstall_what_they_were(make, host):
    kernel = make()
    options = {"BLOCK": 16} if make is plain else {}
    args = ARGS if make is plain else ARGS[:3]
    kernel[(1,)](*args, **options)  # Triton's own attributes come with the first launch
    before = attributes(kernel)
    launchkit.install()
    kernel[(1,)](*args, **options)
    assert attributes(kernel) != before
    launchkit.uninstall()
    assert attributes(kernel) == before


def test_explicitly_launched_kernel_keeps_its_plans(host):
    kernel = plain()
    launchkit.launch(kernel, (1,), *ARGS, BLOCK=16)
    entry = kernel._launchkit_entry
    launchkit.install()
    kernel[(1,)](*ARGS, BLOCK=16)
    launchkit.uninstall()
    assert kernel._launchkit_entry is entry


def test_uninstall_without_install_does_nothing():
    before = state_of_classes()
    launchkit.uninstall()
    assert state_of_classes() == before


def test_installing_again_with_the_same_patterns_changes_nothing():
    launchkit.install(include=["a.*", "b.*"], exclude="c")
    before = state_of_classes(), install_module._current
    launchkit.install(include=("a.*", "b.*"), exclude=["c"])
    assert (state_of_classes(), install_module._current) == before


def test_one_uninstall_takes_back_several_installs():
    before = state_of_classes()
    for pattern in ("a*", "b*", "a*"):
        launchkit.install(include=pattern)
    launchkit.uninstall()
    assert state_of_classes() == before


@pytest.mark.parametrize(
    ("patterns", "covered"),
    [
        ({}, True),
        ({"include": "sample_kernels.*"}, True),
        ({"include": ["other.*", "*.copy"]}, True),
        ({"include": "SAMPLE_kernels.*"}, False),
        ({"include": "copy"}, False),
        ({"exclude": "*.copy"}, False),
        ({"include": "*", "exclude": ("x", "sample_kernels.c?py")}, False),
        ({"exclude": "sample_kernels.copy_"}, True),
    ],
)
def test_patterns_decide_which_kernels_are_covered(patterns, covered, host):
    kernel = plain()
    with installed(**patterns) as runs:
        for _ in range(3):
            kernel[(1,)](*ARGS, BLOCK=16)
    assert runs.jit == (1 if covered else 3)


def test_new_patterns_hold_for_kernels_that_were_launched_before(host):
    kernel = plain()
    with installed() as runs:
        kernel[(1,)](*ARGS, BLOCK=16)
        launchkit.install(exclude="sample_kernels.*")
        kernel[(1,)](*ARGS, BLOCK=16)
        kernel[(1,)](*ARGS, BLOCK=16)
        assert runs.jit == 3
        launchkit.install()
        kernel[(1,)](*ARGS, BLOCK=16)
        assert len(fast(runs, lambda: kernel[(1,)](*ARGS, BLOCK=16))) == 1


def test_kernel_left_out_can_be_launched_with_launchkit_explicitly(host):
    kernel = plain()
    with installed(exclude="*") as runs:
        launchkit.launch(kernel, (1,), *ARGS, BLOCK=16)
        assert fast(runs, lambda: launchkit.launch(kernel, (1,), *ARGS, BLOCK=16))


@pytest.mark.parametrize(
    "patterns", [{"include": ()}, {"include": [3]}, {"exclude": [None]}, {"include": ""}]
)
def test_bad_pattern_raises_and_installs_nothing(patterns):
    before = state_of_classes()
    with pytest.raises(UsageError):
        launchkit.install(**patterns)
    assert state_of_classes() == before


def test_disabled_launchkit_installs_nothing(monkeypatch, caplog):
    monkeypatch.setenv("LAUNCHKIT_DISABLE", "1")
    settings.reload()
    before = state_of_classes()
    launchkit.install()
    assert state_of_classes() == before
    assert "LAUNCHKIT_DISABLE" in caplog.text


def test_without_a_gpu_driver_the_error_is_tritons():
    if hostonly.is_active() or torch.cuda.is_available():
        pytest.skip("there is a driver")
    kernel = plain()
    with pytest.raises(RuntimeError) as expected:
        kernel[(1,)](*ARGS, BLOCK=16)
    launchkit.install()
    with pytest.raises(RuntimeError) as found:
        kernel[(1,)](*ARGS, BLOCK=16)
    assert (found.type, str(found.value)) == (expected.type, str(expected.value))


def test_kernel_tried_without_a_driver_launches_fast_once_there_is_one():
    kernel = plain()
    with installed() as runs:
        with pytest.raises(RuntimeError):
            kernel[(1,)](*ARGS, BLOCK=16)
        with hostonly.activate():
            kernel[(1,)](*ARGS, BLOCK=16)
            assert len(fast(runs, lambda: kernel[(1,)](*ARGS, BLOCK=16))) == 1


def test_dead_kernels_are_not_remembered(host):
    launchkit.install()
    kernel = plain()
    kernel[(1,)](*ARGS, BLOCK=16)
    touched = install_module._current._touched
    assert len(touched) >= 2
    del kernel
    plain()  # Triton keeps the last kernel of a name
    gc.collect()
    assert not touched


def test_bound_launch_taken_before_uninstall_still_launches(host):
    kernel = plain()
    expected = triton_launches(kernel, *ARGS, BLOCK=16)
    launchkit.install()
    bound = kernel[(2,)]
    launchkit.uninstall()
    hostonly.clear()
    bound(*ARGS, BLOCK=16)
    assert hostonly.launches() == expected


# -- other tools that replace Triton's functions


def foreign_run(calls):
    original = JITFunction.run

    def run(self, *args, **kwargs):
        calls.append(self)
        return original(self, *args, **kwargs)

    return run


def test_run_that_a_tool_replaced_before_sees_every_launch(host, monkeypatch):
    calls, kernel = [], plain()
    monkeypatch.setattr(JITFunction, "run", foreign_run(calls))
    launch_counts.reset()
    launchkit.install()
    for _ in range(3):
        kernel[(1,)](*ARGS, BLOCK=16)
    assert calls == [kernel] * 3
    (reason,) = launchkit.stats()["sample_kernels.copy"].through_triton
    assert "run was replaced by" in reason


def test_run_that_a_tool_replaced_after_install_stays_and_works(host, monkeypatch, caplog):
    calls, kernel = [], plain()
    ours = None
    with monkeypatch.context() as patch:
        launchkit.install()
        ours = JITFunction.run
        theirs = foreign_run(calls)
        patch.setattr(JITFunction, "run", theirs)
        with caplog.at_level(logging.WARNING):
            launchkit.uninstall()
        assert JITFunction.run is theirs
        assert "was replaced after launchkit.install()" in caplog.text
        kernel[(1,)](*ARGS, BLOCK=16)
        assert calls == [kernel]
        assert "_launchkit_entry" not in vars(kernel)
    assert JITFunction.run is ours  # what the tool puts back
    launchkit.install()
    launchkit.uninstall()
    assert JITFunction.run is not ours
    assert not hasattr(JITFunction.run, "launchkit_original")


def test_inductors_own_autotuner_is_left_alone():
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    kind = heuristics.CachingAutotuner
    before = kind.run, kind.__getitem__
    launchkit.install()
    assert (kind.run, kind.__getitem__) == before
    assert kind.__getitem__ is KernelInterface.__getitem__
    assert "launchkit" not in kind.run.__module__


# -- subclasses with a run of their own


class OwnRun(Autotuner):
    """Takes the last config, whatever it was tuned for."""

    calls = 0

    def run(self, *args, **kwargs):
        type(self).calls += 1
        self.configs = self.configs[-1:]
        return super().run(*args, **kwargs)


def test_subclass_with_a_run_of_its_own_keeps_it_and_is_counted(host):
    kernel = OwnRun(plain(), plain().arg_names, sample_kernels.configs(16, 64), ["n"], None, None)
    with installed() as runs:
        launch_counts.reset()
        for _ in range(4):
            compiled = kernel[(1,)](*ARGS)
        assert OwnRun.calls == 4
        assert runs.jit == 1, "what it launches beneath is launched fast"
        assert compiled.src.constants[(4,)] == 64
        counts = launchkit.stats()["sample_kernels.copy"].through_triton
    assert counts[f"{__name__}.OwnRun launches in a way of its own"] == 4


class OwnJit(JITFunction):
    def run(self, *args, **kwargs):
        return functools.partial(super().run, *args, **kwargs)()


def test_jit_subclass_with_a_run_of_its_own_keeps_it(host):
    kernel = OwnJit(sample_kernels.copy.fn)
    with installed() as runs:
        for _ in range(3):
            kernel[(1,)](*ARGS, BLOCK=16)
    assert runs.jit == 3
