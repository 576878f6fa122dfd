"""A config that cannot run is excluded and remembered; what is not its fault is raised."""

from __future__ import annotations

from dataclasses import replace

import access_kernels as kernels
import pytest
import torch
import triton
from benching import Bench, kernel_with, launched_block, too_big
from executing import Executed, times
from stored import errors_by_config
from triton.runtime.errors import OutOfResources, PTXASError

import launchkit
from launchkit.configs import Resource, TunedConfig, identify
from launchkit.dispatch import triton_seam as seam
from launchkit.dispatch.stores import use_store
from launchkit.dispatch.tuning import failures as tuning_failures
from launchkit.dispatch.tuning import trials as tuning_trials
from launchkit.errors import TuningFailedError, TuningStoppedError, UsageError
from launchkit.store import MemoryStore

pytestmark = pytest.mark.usefixtures("measuring")


def doubles(*blocks, bench=None, **options):
    configs = [triton.Config({"BLOCK": block}) for block in blocks]
    return launchkit.autotuned(configs, ["n"], do_bench=bench or times(), **options)(
        kernels.doubles
    )


def raising(error, *blocks):
    def effect(named):
        if named["BLOCK"] in blocks:
            raise error

    return effect


# -- what a config lacked


@pytest.mark.parametrize(
    ("error", "resource"),
    [
        (OutOfResources(300_000, 232_448, "shared memory"), ("shared_bytes", 300_000, 232_448)),
        (OutOfResources(2048, 1024, "threads"), ("threads", 2048, 1024)),
        (OutOfResources(300, 255, "registers"), ("registers", 300, 255)),
        (OutOfResources(1024, 512, "tensor memory"), ("tensor_memory", 1024, 512)),
        (OutOfResources("many", "few", "threads"), None),
        (PTXASError("no [needs threads=1 limit=0] here"), None),
    ],
    ids=str,
)
def test_reason_of_a_failure_tells_the_resource_and_its_class(memory_store, error, resource):
    launched_block(kernel_with(Bench({16: error, 32: 1.0, 64: 2.0})))
    (record,) = memory_store.records()
    failed = record.configs[0]
    assert failed.error.startswith(f"{type(error).__name__}: {error}"[:60])
    assert failed.needed == (resource and Resource(*resource))


def test_stored_failure_is_tried_again_with_another_toolchain_and_with_no_other(monkeypatch):
    launched_block(kernel_with(Bench({16: too_big(), 32: 2.0, 64: 3.0})))
    again = Bench({128: 5.0})
    launched_block(kernel_with(again, blocks=(16, 32, 64, 128)))
    assert again.measured == [128]
    newer = replace(seam.toolchain(), triton="99.1.0")
    monkeypatch.setattr(seam, "toolchain", lambda: newer)
    upgraded = Bench({16: 1.0, 32: 2.0, 64: 3.0})
    assert launched_block(kernel_with(upgraded)) == 16
    assert upgraded.measured == [16, 32, 64]


def test_stored_failure_is_tried_again_on_another_device(monkeypatch):
    launched_block(kernel_with(Bench({16: too_big(), 32: 2.0, 64: 3.0})))
    other = replace(seam.device_identity(0), name="A LARGER ONE", shared_bytes=10**6)
    monkeypatch.setattr(seam, "device_identity", lambda device: other)
    assert launched_block(kernel_with(Bench({16: 1.0, 32: 2.0, 64: 3.0}))) == 16


def test_configs_that_are_all_known_to_fail_get_another_chance():
    launched_block(kernel_with(Bench({16: too_big(), 32: too_big(), 64: 3.0})))
    assert launched_block(kernel_with(Bench({16: 1.0, 32: too_big()}), blocks=(16, 32))) == 16


def test_long_reason_is_cut_and_keeps_both_ends():
    text = tuning_failures.reason_of(PTXASError("start " + "x" * 10**6 + " end"))
    assert len(text) < 2 * tuning_failures.MAX_REASON
    assert text.startswith("PTXASError: PTXAS error: start")
    assert text.endswith(" end")


def test_error_that_cannot_word_itself_is_still_a_reason():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    assert tuning_failures.reason_of(Mute()) == "Mute: (it has no message)"


# -- whose fault it is


ERRORS = [
    RuntimeError("Triton Error [CUDA]: invalid argument"),
    RuntimeError("PassManager::run failed"),
    ValueError("BLOCK is odd"),
    TypeError("no"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_config_whose_launch_raises_is_excluded_with_its_reason(monkeypatch, memory_store, error):
    Executed(monkeypatch, raising(error, 16))
    kernel, x = doubles(16, 32), torch.ones(64)
    kernel[(1,)](x, 64)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert errors_by_config(memory_store) == {
        "BLOCK=16": f"{type(error).__name__}: {error}", "BLOCK=32": None,
    }  # fmt: skip


def test_config_that_does_not_compile_is_excluded_with_its_reason(memory_store):
    kernel, x = doubles(17, 32), torch.ones(64)  # a range must be a power of two
    kernel[(1,)](x, 64)
    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert "power of 2" in errors_by_config(memory_store)["BLOCK=17"]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_error_that_every_config_raises_is_raised_itself(monkeypatch, memory_store, error):
    Executed(monkeypatch, raising(error, 16, 32))
    kernel, x = doubles(16, 32), torch.ones(64)
    with pytest.raises(type(error)) as caught:
        kernel[(1,)](x, 64)
    assert caught.value is error
    assert list(memory_store.records()) == []


def test_unlike_errors_of_all_configs_are_all_told(monkeypatch, memory_store):
    def effect(named):
        raise RuntimeError(f"not {named['BLOCK']}")

    Executed(monkeypatch, effect)
    with pytest.raises(TuningFailedError) as caught:
        doubles(16, 32)[(1,)](torch.ones(64), 64)
    found = caught.value.fields["reasons"].values()
    assert list(found) == ["RuntimeError: not 16", "RuntimeError: not 32"]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert list(memory_store.records()) == []


def test_error_of_a_grid_is_no_configs_fault(memory_store):
    def grid(meta):
        raise LookupError(meta["BLOCK"])

    x = torch.ones(64)
    with pytest.raises(LookupError, match="16"):
        doubles(16, 32)[grid](x, 64)
    assert list(memory_store.records()) == []


def test_missing_argument_is_told_as_by_triton():
    with pytest.raises(TypeError):
        doubles(16, 32)[(1,)](torch.ones(64))


def test_error_of_a_hook_ends_the_tuning(memory_store):
    def hook(named):
        raise KeyError("mine")

    configs = [triton.Config({"BLOCK": 16}, pre_hook=hook), triton.Config({"BLOCK": 32})]
    kernel = launchkit.autotuned(configs, ["n"], do_bench=times())(kernels.doubles)
    with pytest.raises(KeyError, match="mine"):
        kernel[(1,)](torch.ones(64), 64)
    assert list(memory_store.records()) == []


@pytest.mark.parametrize(
    "error",
    [torch.cuda.OutOfMemoryError("full"), MemoryError(), UsageError("say it")],
    ids=repr,
)
def test_error_that_says_nothing_about_the_config_ends_the_tuning(monkeypatch, memory_store, error):
    Executed(monkeypatch, raising(error, 16))
    with pytest.raises(type(error)):
        doubles(16, 32)[(1,)](torch.ones(64), 64)
    assert list(memory_store.records()) == []


# -- errors that CUDA does not recover from

ILLEGAL = "CUDA error: an illegal memory access was encountered"


@pytest.fixture
def broken_gpu(monkeypatch):
    """The GPU is broken after any error of a launch; restoring anything fails too."""
    monkeypatch.setattr(tuning_trials.failures, "broken_context", lambda: ILLEGAL)
    return monkeypatch


def test_illegal_access_stops_the_tuning_and_names_the_config(broken_gpu, memory_store):
    executed = Executed(broken_gpu, raising(RuntimeError(ILLEGAL), 32))
    with pytest.raises(TuningStoppedError, match="restart it") as caught:
        doubles(16, 32, 64)[(1,)](torch.ones(64), 64)
    assert caught.value.fields["config"].startswith("BLOCK=32")
    assert caught.value.fields["reason"] == ILLEGAL
    assert {named["BLOCK"] for named in executed.launches} == {16, 32}
    found = errors_by_config(memory_store)
    assert found["BLOCK=16"] is None
    assert ILLEGAL in found["BLOCK=32"]
    assert "BLOCK=64" not in found


def test_next_process_does_not_run_into_the_same_config(broken_gpu, memory_store):
    broken = Executed(broken_gpu, raising(RuntimeError(ILLEGAL), 32))
    with pytest.raises(TuningStoppedError):
        doubles(16, 32, 64)[(1,)](torch.ones(64), 64)
    broken.effect, broken.launches = (lambda named: None), []
    kernel = doubles(16, 32, 64, bench=times(0.5))
    kernel[(1,)](torch.ones(64), 64)
    assert {named["BLOCK"] for named in broken.launches} == {64}
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_first_config_breaking_the_gpu_stores_no_winner(broken_gpu, memory_store):
    Executed(broken_gpu, raising(RuntimeError(ILLEGAL), 16))
    with pytest.raises(TuningStoppedError, match="BLOCK=16"):
        doubles(16, 32)[(1,)](torch.ones(64), 64)
    assert list(memory_store.records()) == []


def test_error_that_the_benchmark_meets_later_stops_the_tuning_too(broken_gpu):
    def bench(call, quantiles):
        call()
        raise RuntimeError(ILLEGAL)

    with pytest.raises(TuningStoppedError):
        doubles(16, 32, bench=bench)[(1,)](torch.ones(64), 64)


@pytest.mark.parametrize(
    ("failing", "expected"), [(0, None), (1, None), (2, ILLEGAL), (9, ILLEGAL)]
)
def test_only_an_error_that_stays_breaks_the_gpu(monkeypatch, failing, expected):
    left = [RuntimeError(f"{ILLEGAL}\nand more")] * failing

    def synchronize():
        if left:
            raise left.pop()

    monkeypatch.setattr(tuning_failures, "executes_on_cuda", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    assert tuning_failures.broken_context() == expected


def test_no_gpu_is_not_broken():
    assert tuning_failures.broken_context() is None


# -- times that cannot be


def test_impossible_times_in_a_store_never_win(memory_store):
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (record,) = memory_store.records()
    failed = TunedConfig.measured(identify({"BLOCK": 1}), [0.0] * 3, reps=1, method="eager")
    assert not failed.ok
    use_store(store := MemoryStore())
    store.put(replace(record, configs=(*record.configs, failed)))
    assert launched_block(kernel_with(Bench({}))) == 32
