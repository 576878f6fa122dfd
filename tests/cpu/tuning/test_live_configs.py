"""A stored config is a hint: only a member of the kernel's live list is launched, hooks and all."""

from __future__ import annotations

from dataclasses import replace

import pytest
import triton
from benching import BLOCKS
from hinting import elsewhere, other_version, relaunched, tuned_record
from stored import store_of

import launchkit
from launchkit.configs import TunedConfig, identify

pytestmark = pytest.mark.usefixtures("measuring", "fresh_stats")
COMPATIBLE = {"device": "compatible"}


def with_choice(record, block, times_us=0.5, **options):
    """The record with a config that the kernel does not have, as its choice."""
    config = identify(triton.Config({"BLOCK": block}, **options).all_kwargs())
    alien = replace(
        record.configs[0], config=config, median_us=times_us, p20_us=times_us, p80_us=times_us
    )
    return replace(record, configs=(*record.configs, alien), chosen=config)


@pytest.mark.parametrize("move", [lambda record: record, elsewhere], ids=["exact", "compatible"])
@pytest.mark.parametrize("options", [{}, {"num_warps": 32}, {"num_stages": 7}], ids=str)
def test_stored_config_outside_the_live_list_is_never_launched(move, options):
    record = move(with_choice(tuned_record(), 4096, **options))
    assert relaunched(record, policies=COMPATIBLE) == ([], 32)


@pytest.mark.parametrize(
    "options", [{"num_warps": 32}, {"num_stages": 7}, {"maxnreg": 64}], ids=str
)
def test_config_that_differs_in_an_option_is_not_the_live_one(options):
    record = with_choice(tuned_record(), 16, **options)
    assert relaunched(elsewhere(record), policies=COMPATIBLE) == ([], 32)


def test_record_without_a_live_config_is_a_miss():
    record = elsewhere(tuned_record())
    measured, _ = relaunched(record, blocks=(128, 256), policies=COMPATIBLE)
    assert measured == [128, 256]
    assert dict(launchkit.stats().configs.misses) == {"no stored config is live": 1}


def test_failed_config_is_never_a_hint():
    record = tuned_record()
    failed = TunedConfig.failed(record.configs[2].config, "too big", method="eager")
    record = replace(record, configs=(*record.configs[:2], failed))
    measured, _ = relaunched(elsewhere(record), blocks=(64, 128), policies=COMPATIBLE)
    assert measured == [64, 128]


def test_hint_knows_only_some_live_configs_and_is_used():
    assert relaunched(elsewhere(tuned_record()), blocks=(128, 64, 16), policies=COMPATIBLE) == (
        [],
        64,
    )


def test_nearer_record_without_a_live_config_gives_way_to_a_farther_one():
    near, far = tuned_record(times={128: 1.0, 256: 2.0}), tuned_record()
    store = store_of(other_version(near, "3.0.0"), elsewhere(other_version(far, "2.0.0")))
    assert relaunched(store, policies={"device": "compatible", "toolchain": "any"}) == ([], 32)


def test_configs_that_differ_in_a_hook_alone_are_tuned_and_not_stored():
    hooks = []
    configs = [
        triton.Config({"BLOCK": 16}, pre_hook=lambda args, name=name: hooks.append(name))
        for name in ("a", "b")
    ]
    store = store_of(tuned_record(), elsewhere(tuned_record()))
    before = list(store.records())
    measured, _ = relaunched(store, policies=COMPATIBLE, configs=configs, times={16: 1.0})
    assert measured == [16, 16]
    assert list(store.records()) == before
    assert dict(launchkit.stats().configs.misses) == {"configs that differ in a hook alone": 1}


@pytest.mark.parametrize("move", [lambda record: record, elsewhere], ids=["exact", "compatible"])
def test_live_object_is_launched_so_that_its_hook_runs(move):
    ran = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda args: ran.append(args["BLOCK"]))
        for block in BLOCKS
    ]
    record = move(tuned_record())
    assert relaunched(record, policies=COMPATIBLE, configs=configs) == ([], 32)
    assert ran[-1] == 32


def test_single_entry_runs_its_hook():
    ran = []
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda args: ran.append(args["BLOCK"]))
        for block in (16, 32)
    ]
    record = tuned_record(times={16: 1.0, 32: 2.0}, configs=configs)
    ran.clear()
    assert relaunched(record, configs=configs) == ([], 16)
    assert ran == [16]
