"""LAUNCHKIT_REQUIRE_TUNED: a launch that would tune raises, says why, and launches nothing."""

from __future__ import annotations

import threading

import pytest
import torch
import triton
from benching import BLOCKS, Bench, grid_of_block, kernel_with, launched_block
from hinting import TIMES, another_n, elsewhere, tuned_record
from stored import store_of

import launchkit
from launchkit import hostonly, settings
from launchkit.dispatch.permissions import tuning_allowed
from launchkit.dispatch.stores import use_store
from launchkit.errors import NotTunedError
from launchkit.store import MemoryStore

pytestmark = pytest.mark.usefixtures("measuring", "each_core")


@pytest.fixture
def required(monkeypatch):
    """Set the variable, once what the test prepares is tuned."""

    def now():
        monkeypatch.setenv("LAUNCHKIT_REQUIRE_TUNED", "1")
        settings.reload()
        launchkit.stats(reset=True)

    return now


def refused(kernel, **arguments):
    """Launch a kernel, which must raise before anything is measured, launched or stored."""
    hostonly.clear()
    with pytest.raises(NotTunedError) as caught:
        launched_block(kernel, **arguments)
    assert hostonly.launches() == []
    return caught.value


def test_cold_launch_raises_and_names_the_kernel_and_the_key(required, memory_store):
    required()
    bench = Bench(TIMES)
    error = refused(kernel_with(bench))
    assert error.fields["kernel"] == "sample_kernels.copy"
    assert error.fields["key"].startswith("n=64 ")
    assert error.fields["reason"] == "absent"
    assert "nothing is stored" in str(error)
    assert bench.measured == []
    assert list(memory_store.records()) == []
    assert dict(launchkit.stats().configs.misses) == {"absent": 1}


@pytest.mark.parametrize(
    ("move", "field"),
    [
        (elsewhere, "device.name: stored NVIDIA H100 PCIe, wanted host-only"),
        (lambda record: another_n(record, 65), "key n: stored 65 (int), wanted 64 (int)"),
    ],
    ids=["device", "key"],
)
def test_message_says_in_what_the_nearest_record_differs(required, move, field):
    record = move(tuned_record())
    required()
    with use_store(store_of(record)):
        assert field in str(refused(kernel_with(Bench(TIMES))))


def test_config_without_a_result_is_named(required):
    record = tuned_record()
    required()
    with use_store(store_of(record)):
        error = refused(kernel_with(Bench(TIMES), blocks=(*BLOCKS, 128)))
    assert "config BLOCK=128" in str(error)
    assert error.fields["reason"] == "configs without a result"


def test_configs_that_differ_in_a_hook_alone_are_said_to(required):
    configs = [triton.Config({"BLOCK": 16}, pre_hook=lambda args, i=i: None) for i in range(2)]
    required()
    assert "hook alone" in str(refused(kernel_with(Bench({}), configs=configs)))


def test_stored_config_is_launched(required):
    record = tuned_record()
    required()
    with use_store(store_of(record)):
        assert launched_block(kernel_with(Bench({}))) == 32


def test_hint_that_a_policy_allows_is_launched(required):
    record = elsewhere(tuned_record())
    required()
    with use_store(store_of(record), device="compatible"):
        assert launched_block(kernel_with(Bench({}))) == 32


def test_single_config_and_pruned_to_one_are_launched(required):
    required()
    assert launched_block(kernel_with(Bench({}), blocks=(16,))) == 16
    prune = {"early_config_prune": lambda configs, named, **kwargs: configs[1:2]}
    assert launched_block(kernel_with(Bench({}), prune_configs_by=prune)) == 32


def test_launch_that_was_tuned_before_goes_on(required):
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel)
    required()
    assert launched_block(kernel) == 32
    refused(kernel, n=65)


class Size(int):
    """An int that is no plain one."""


def test_key_that_cannot_be_stored_is_refused_as_well(required):
    kernel = kernel_with(Bench(TIMES))
    launched_block(kernel, n=Size(7))
    required()
    assert launched_block(kernel, n=Size(7)) == 32  # Triton's Autotuner has it
    assert "without a stable text" in refused(kernel, n=Size(8)).fields["reason"]


def test_tuning_is_allowed_inside_the_block_and_in_this_thread_only(required):
    required()
    bench = Bench(TIMES)
    kernel = kernel_with(bench)
    seen = []

    def other():
        x = torch.empty(64)
        try:
            launchkit.launch_autotuned(kernel, grid_of_block, x, x, 65, 1)
        except NotTunedError as error:
            seen.append(error)

    with tuning_allowed(), tuning_allowed():
        assert launched_block(kernel) == 32
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(seen) == 1
    refused(kernel, n=66)


class Broken(MemoryStore):
    """Can be asked for one record, not for many."""

    def records_of(self, *what):
        raise OSError("gone")


def test_store_that_cannot_be_listed_still_gives_the_error(required):
    required()
    with use_store(Broken()):
        assert "cannot be read" in str(refused(kernel_with(Bench(TIMES))))


def test_capture_is_refused_with_the_same_error(required, host):
    required()
    with hostonly.capturing():
        refused(kernel_with(Bench(TIMES)))
