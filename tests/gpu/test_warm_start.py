"""A fresh process with stored configs benchmarks nothing; after warm() its first prefill compiles nothing."""

from __future__ import annotations

import pytest

from launchkit.benchmarks.warm import bench

KERNELS = 5


@pytest.fixture(scope="module")
def rows():
    return {row["variant"]: row for row in bench.measure()["rows"]}


def test_cold_process_tunes_every_kernel(rows):
    """The promises below can be broken."""
    row = rows["cold"]
    assert row["tunings"] == KERNELS
    assert row["benchmarks"] >= KERNELS


@pytest.mark.parametrize("variant", ["store", "store_disk", "warm", "warm_disk"])
def test_process_with_stored_configs_benchmarks_nothing(variant, rows):
    assert (rows[variant]["benchmarks"], rows[variant]["tunings"]) == (0, 0)


def test_stored_configs_alone_leave_every_kernel_to_be_compiled(rows):
    assert rows["store"]["compiled"] == KERNELS
    assert rows["store_disk"]["compiled"] == 0
    assert rows["store_disk"]["compilations"] == KERNELS


@pytest.mark.parametrize("variant", ["warm", "warm_disk"])
def test_first_prefill_after_warm_compiles_and_loads_nothing(variant, rows):
    row = rows[variant]
    assert (row["compilations"], row["compiled"]) == (0, 0)
    assert sum(row["warmed"].values()) == KERNELS
