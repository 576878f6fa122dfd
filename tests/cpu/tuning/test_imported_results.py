"""A winner that another program's file gives without a time: chosen, but never compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benching import Bench, kernel_with, launched_block

from launchkit.configs import TunedConfig, TunedRecord, choose, identify, merge_records
from launchkit.dispatch.stores import use_store
from launchkit.errors import UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value
from launchkit.store import MemoryStore, document

KEY = LaunchKey((encode_value("n", 1),), ())
SMALL, LARGE = (identify({"BLOCK": block, "num_warps": 4}) for block in (64, 256))
UNTIMED = TunedConfig.imported(LARGE, method="imported:vllm")


def timed(config, time_us):
    return TunedConfig.measured(config, time_us, reps=10, method="eager")


def record(*configs, chosen):
    kernel, device = KernelId("kernel", "0" * 64), DeviceId("cuda", "A", "sm_90", 1, 1, 1)
    return TunedRecord(kernel, device, Toolchain("3.9.0"), KEY, configs, chosen)


def test_imported_winner_has_no_time_and_can_be_chosen():
    assert (UNTIMED.ok, UNTIMED.timed, UNTIMED.median_us) == (True, False, None)
    assert record(UNTIMED, chosen=LARGE).winner is UNTIMED


@pytest.mark.parametrize("method", ["eager", "", "imported"])
def test_result_without_time_and_error_must_be_imported(method):
    with pytest.raises(UsageError, match="no median time"):
        TunedConfig.imported(LARGE, method=method)


@pytest.mark.parametrize("field", ["p20_us", "p80_us", "reps"])
def test_imported_winner_has_no_half_of_a_measurement(field):
    with pytest.raises(UsageError, match=r"median|without a time"):
        replace(UNTIMED, **{field: 1})


def test_imported_winner_survives_a_document():
    made = record(UNTIMED, chosen=LARGE)
    whole = document.ConfigDocument(made.kernel, made.device, (made,))
    assert document.parse(document.dump(whole), source="it") == whole


def test_imported_winner_is_never_compared_by_time():
    assert choose([UNTIMED, timed(SMALL, 1e9)]) == timed(SMALL, 1e9)
    assert choose([UNTIMED]) is None


def test_measured_choice_outlives_an_import_without_times():
    measured = record(timed(SMALL, 1.0), timed(LARGE, 2.0), chosen=SMALL)
    imported = record(UNTIMED, chosen=LARGE)
    for merged in (merge_records(measured, imported), merge_records(imported, measured)):
        assert merged.winner == timed(SMALL, 1.0)
        assert set(merged.configs) == {*measured.configs, UNTIMED}


def imported_store(memory_store, winner, blocks=(16, 32, 64), method="imported:triton", **changes):
    """A store that knows of the ``copy`` kernel what a foreign file said of ``blocks``."""
    launched_block(kernel_with(Bench({16: 3.0, 32: 1.0, 64: 2.0})))
    (known,) = memory_store.records()
    by_block = dict(zip((16, 32, 64), known.configs, strict=True))
    configs = tuple(replace(by_block[block], method=method, **changes) for block in blocks)
    store = MemoryStore()
    store.put(replace(known, configs=configs, chosen=by_block[winner].config))
    return store


UNKNOWN = {"median_us": None, "p20_us": None, "p80_us": None, "reps": None}


@pytest.mark.usefixtures("measuring")
def test_launch_takes_an_imported_winner_without_tuning(memory_store):
    use_store(imported_store(memory_store, 64, (64,), **UNKNOWN))
    bench = Bench({})
    assert launched_block(kernel_with(bench)) == 64
    assert bench.measured == []


@pytest.mark.usefixtures("measuring")
def test_launch_takes_the_winner_of_imported_times_without_tuning(memory_store):
    use_store(imported_store(memory_store, 32))
    bench = Bench({})
    assert launched_block(kernel_with(bench)) == 32
    assert bench.measured == []


@pytest.mark.usefixtures("measuring")
def test_imported_times_are_not_compared_with_those_measured_here(memory_store):
    store = imported_store(memory_store, 16, (16, 32))
    use_store(store)
    bench = Bench({128: 2e6, 64: 1e6})
    assert launched_block(kernel_with(bench, blocks=(64, 128))) == 64
    assert bench.measured == [64, 128]
    (record,) = store.records()
    # The import's own times were far less.
    assert record.winner.method == "eager"
    assert {tuned.method for tuned in record.configs} == {"eager", "imported:triton"}


@pytest.mark.usefixtures("measuring")
def test_imported_winner_that_the_kernel_has_no_more_is_tuned_anew(memory_store):
    use_store(imported_store(memory_store, 64, (64,), **UNKNOWN))
    bench = Bench({16: 3.0, 32: 1.0})
    assert launched_block(kernel_with(bench, blocks=(16, 32))) == 32
    assert bench.measured == [16, 32]
