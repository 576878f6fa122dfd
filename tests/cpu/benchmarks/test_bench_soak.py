"""``launchkit bench soak``: what grows is seen, what does not is flat, and each case is what it says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import typer

from launchkit.benchmarks.soak import bench
from launchkit.benchmarks.soak.cases import CASES, SoakCase
from launchkit.dispatch import launch_counts
from launchkit.errors import UsageError
from launchkit.tools import bench_soak

PER_CASE = 21 * 30


@pytest.fixture(scope="module")
def document():
    with pytest.MonkeyPatch.context() as patch:
        # Other tests launched kernels of these names through the Python core, uncounted.
        patch.setattr(launch_counts, "_uncounted", set())
        return bench.measure(launches=100 * PER_CASE)


@pytest.mark.parametrize("name", CASES)
def test_each_case_makes_the_launches_that_it_is_named_for(name, document):
    (row,) = (row for row in document["rows"] if row["case"] == name)
    case = CASES[name]
    assert abs(row["launches"] - PER_CASE * case.share) <= 21 * case.launches_per_round
    assert [sample["launches"] for sample in row["samples"]] == [
        index * row["launches"] // 21 for index in range(21)
    ]
    slow = sum(row["through_triton"].values())
    if name == "errors":
        assert slow == 0
    elif name == "misses":
        assert slow == row["launches"]
    elif name == "replaced_plans":
        assert slow == row["launches"] // 2
    elif document["machine"]["core"] == "c":
        assert slow < 10
        if name == "replayed_op":
            assert row["replays"] > row["launches"] // 2 - 10
        else:
            assert row["fast"] + slow == row["launches"]


def test_the_whole_holds_the_cases_and_says_what_it_ran_on(document):
    assert document["launches"] == sum(row["launches"] for row in document["rows"])
    assert document["mode"] == "host-only"
    assert document["flat"] == all(row["flat"] for row in document["rows"])


def samples(bytes_per_launch=0.0, blocks_per_launch=0.0, objects_per_launch=0.0):
    rng = random.Random(1)
    return [
        bench.Sample(
            launches,
            round(3e8 + launches * bytes_per_launch + rng.randrange(-30, 30) * 4096),
            round(1e6 + launches * blocks_per_launch + rng.randrange(-50, 50)),
            round(1e5 + launches * objects_per_launch),
        )
        for launches in range(0, 2_000_001, 100_000)
    ]


def test_noise_of_an_allocator_is_flat():
    found = bench.grown(samples())
    assert found["flat"]
    assert abs(found["slope_bytes_per_launch"]) < found["least_seen_bytes_per_launch"] < 1


@pytest.mark.parametrize("at", [1, 4, 17, 20])
def test_one_large_piece_of_memory_early_or_late_is_no_growth(at):
    stepped = [
        replace(sample, rss_bytes=sample.rss_bytes + (2**21 if turn >= at else 0))
        for turn, sample in enumerate(samples())
    ]
    assert bench.grown(stepped)["flat"]


@pytest.mark.parametrize(
    "leak", [{"bytes_per_launch": 1}, {"blocks_per_launch": 0.01}, {"objects_per_launch": 0.001}]
)
def test_a_byte_or_an_object_in_a_hundred_launches_is_not_flat(leak):
    found = bench.grown(samples(**leak))
    assert not found["flat"]
    ((name, value),) = leak.items()
    assert found[f"slope_{name}"] == pytest.approx(value, rel=0.2)


def test_a_case_that_keeps_an_object_per_launch_is_not_flat(monkeypatch):
    kept = []
    case = SoakCase("leaking", 1, lambda: lambda rounds: kept.extend([i] for i in range(rounds)))
    monkeypatch.setitem(bench.CASES, "leaking", case)
    found = bench.measure(["leaking"], launches=21 * 500)
    assert not found["flat"]
    assert found["rows"][0]["slope_objects_per_launch"] == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("flat", [True, False])
def test_growth_is_exit_code_1(flat, monkeypatch, capsys, document):
    monkeypatch.setattr(bench, "measure", lambda *_, **__: {**document, "flat": flat})
    if flat:
        bench_soak.soak()
    else:
        with pytest.raises(typer.Exit) as left:
            bench_soak.soak()
        assert left.value.exit_code == 1
    assert ("memory grew" in capsys.readouterr().out) is not flat


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"launches": 0}, "--launches must be at least 1"),
        ({"launches": 50}, "too few for 20 samples"),
        ({"case": ["no_such"]}, "no case named no_such"),
    ],
)
def test_bad_use_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        bench_soak.soak(**options)
