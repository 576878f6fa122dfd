"""Key values that may stand for others: buckets and nearest, through real launches."""

from __future__ import annotations

import pytest
import sample_kernels
import torch
import triton
from benching import Bench, kernel_with, launched_block
from hinting import TIMES, another_n, relaunched, tuned_record
from stored import store_of

import launchkit
from launchkit.dispatch.stores import use_store
from launchkit.errors import UsageError

pytestmark = pytest.mark.usefixtures("measuring", "fresh_stats")
BUCKETS = {"n": launchkit.buckets(16, 256)}
NEAR = {"n": launchkit.nearest(within=2)}


def test_values_of_a_bucket_are_tuned_once(memory_store):
    bench = Bench(TIMES)
    kernel = kernel_with(bench, shapes=BUCKETS)
    blocks = [launched_block(kernel, n) for n in (20, 21, 100, 256)]
    assert (blocks, bench.measured) == ([32] * 4, [16, 32, 64])
    assert [record.key.text.split()[0] for record in memory_store.records()] == ["n=20"]
    found = launchkit.stats().configs
    assert dict(found.inexact) == {"shape": 3}
    assert [use.key.split()[0] for use in found.tune_next] == ["n=21", "n=100", "n=256"]
    assert {use.stored_key.split()[0] for use in found.tune_next} == {"n=20"}


def test_every_bucket_is_tuned(memory_store):
    bench = Bench(TIMES)
    kernel = kernel_with(bench, shapes=BUCKETS)
    for n in (1, 17, 257, 258):  # above the last edge values are exact
        launched_block(kernel, n)
    assert len(bench.measured) == 12


def test_nearest_stops_at_its_limit():
    bench = Bench(TIMES)
    kernel = kernel_with(bench, shapes=NEAR)
    for n in (100, 200, 50, 201, 402, 49):
        launched_block(kernel, n)
    # 201 is near 200, which was itself near 100: only what was measured stands for others.
    assert len(bench.measured) == 3 * 3


def test_exact_value_wins_over_a_near_one():
    near, exact = tuned_record(times={16: 1.0, 32: 2.0, 64: 3.0}), tuned_record()
    store = store_of(another_n(near, 65), exact)
    assert relaunched(store, shapes=NEAR) == ([], 32)
    assert dict(launchkit.stats().configs.inexact) == {}


def test_shape_takes_records_of_an_earlier_process():
    assert relaunched(another_n(tuned_record(), 60), shapes=NEAR) == ([], 32)
    assert relaunched(another_n(tuned_record(), 31), shapes=NEAR)[0] == [16, 32, 64]


@pytest.mark.parametrize("value", [64.0, True])
def test_other_types_stay_exact(value):
    record = tuned_record()
    assert relaunched(record, n=value, shapes=NEAR)[0] == [16, 32, 64]


def test_other_dtypes_stay_exact():
    with use_store(store_of(another_n(tuned_record(), 60))):
        bench = Bench(TIMES)
        launched_block(kernel_with(bench, shapes=NEAR), x=torch.empty(64, dtype=torch.float16))
    assert bench.measured == [16, 32, 64]


def test_near_value_is_launched_with_its_own_arguments(host):
    with use_store(store_of(another_n(tuned_record(), 60))):
        kernel = kernel_with(Bench({}), shapes=NEAR)
        launched_block(kernel, 64)
        near = host.launches()[-1]
    exact = kernel_with(Bench(TIMES))
    launched_block(exact, 64)
    launch = host.launches()[-1]
    assert (near.grid, near.params[2:]) == (launch.grid, launch.params[2:])


def test_many_near_values_are_bounded_and_read_the_store_no_more_than_once(monkeypatch):
    store = store_of(*(another_n(tuned_record(), n) for n in (100, 1000)))
    listed, listing = [], store.records_of
    monkeypatch.setattr(store, "records_of", lambda *what: listed.append(what) or listing(*what))
    with use_store(store):
        kernel = kernel_with(Bench({}), shapes={"n": launchkit.nearest(within=100)})
        for n in range(500, 620):
            launched_block(kernel, n)
    assert len(listed) == 1
    assert launchkit.stats().configs.inexact == {"shape": 120}


def test_nearer_value_that_was_tuned_since_is_taken():
    bench = Bench(TIMES)
    with use_store(store_of(another_n(tuned_record(), 100))):
        kernel = kernel_with(bench, shapes={"n": launchkit.nearest(within=4)})
        launched_block(kernel, 101)
        launched_block(kernel, 500)  # too far: tuned
        launched_block(kernel, 300)
    assert bench.measured == [16, 32, 64]
    assert launchkit.stats().configs.tune_next[-1].stored_key.startswith("n=500 ")


def test_record_that_comes_later_is_seen_before_anything_is_tuned():
    store = store_of()
    with use_store(store):
        bench = Bench(TIMES)
        kernel = kernel_with(bench, shapes=NEAR)
        launched_block(kernel, 1000)
        store.put(another_n(tuned_record(), 64))
        assert launched_block(kernel, 60) == 32
    assert bench.measured == [16, 32, 64]


KEYS = ["n", "stride"]


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        ({"stride": launchkit.nearest(within=2)}, "not in key"),
        ({"nothing": launchkit.nearest(within=2)}, "not in key"),
        ({"n": 2.0}, "launchkit.buckets"),
        ({"n": (16, 256)}, "launchkit.buckets"),
    ],
)
def test_shape_that_cannot_be_is_refused(shapes, match):
    make = launchkit.autotuned(sample_kernels.configs(16, 32), ["n"], shapes=shapes)
    with pytest.raises(UsageError, match=match):
        make(sample_kernels.copy)


def test_constexpr_has_no_shape():
    make = launchkit.autotuned(
        [triton.Config({"BLOCK": 16})], ["n", "BLOCK"], shapes={"BLOCK": launchkit.buckets(16)}
    )
    with pytest.raises(UsageError, match="constexpr"):
        make(sample_kernels.copy)
