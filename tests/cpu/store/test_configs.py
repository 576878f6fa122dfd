"""configs: identities, what may be stored as measured, and the same choice as Triton's."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from launchkit.configs import (
    Resource,
    TunedConfig,
    TunedRecord,
    choose,
    config_text,
    identify,
    merge_records,
)
from launchkit.errors import UnfingerprintableError, UsageError
from launchkit.keys import DeviceId, KernelId, LaunchKey, Toolchain, encode_value

KERNEL = KernelId("kernel", "0" * 64)
DEVICE = DeviceId("cuda", "NVIDIA H200", "sm_90", 132, 232448, 141)
KEY = LaunchKey((encode_value("n", 1),), ())
SMALL, MIDDLE, LARGE = (identify({"BLOCK": block, "num_warps": 4}) for block in (64, 128, 256))


def timed(config, *times_us: float) -> TunedConfig:
    return TunedConfig.measured(config, times_us, reps=10, method="events")


def record(*configs: TunedConfig, chosen=SMALL, **changes) -> TunedRecord:
    made = TunedRecord(KERNEL, DEVICE, Toolchain("3.9.0"), KEY, configs, chosen)
    return replace(made, **changes)


def test_identity_holds_every_keyword_and_no_order() -> None:
    one = identify({"num_warps": 4, "BLOCK": 64, "ratio": 0.5, "flag": False, "none": None})
    assert one == identify({"none": None, "flag": False, "ratio": 0.5, "BLOCK": 64, "num_warps": 4})
    assert [value.name for value in one] == ["BLOCK", "flag", "none", "num_warps", "ratio"]


def test_configs_that_differ_in_one_value_or_type_differ() -> None:
    variants = [
        {"BLOCK": 64, "num_warps": 4},
        {"BLOCK": 64, "num_warps": 8},
        {"BLOCK": 64, "num_warps": 4, "num_ctas": 2},
        {"BLOCK": 64, "num_warps": 4, "maxnreg": 128},
        {"BLOCK": 64, "num_warps": 4, "ir_override": "a.ptx"},
        {"BLOCK": 64.0, "num_warps": 4},
        {"BLOCK": "64", "num_warps": 4},
        {"BLOCK": (64,), "num_warps": 4},
        {"BLOCK": True, "num_warps": 4},
        {"kwargs": 64, "num_warps": 4},
        {"configs_hash": 64, "num_warps": 4},
    ]
    assert len({identify(each) for each in variants}) == len(variants)


def test_identity_of_a_triton_config_tells_all_but_hooks_apart() -> None:
    triton = pytest.importorskip("triton")
    plain = identify(triton.Config({"BLOCK": 64}).all_kwargs())
    hooked = triton.Config({"BLOCK": 64}, pre_hook=lambda args: None)
    assert identify(hooked.all_kwargs()) == plain
    others = [
        triton.Config({"BLOCK": 64}, num_ctas=2),
        triton.Config({"BLOCK": 64}, maxnreg=64),
        triton.Config({"BLOCK": 64}, num_stages=4),
        triton.Config({"BLOCK": 64}, ir_override="a.ttgir"),
    ]
    assert len({plain, *(identify(each.all_kwargs()) for each in others)}) == 5


def test_a_config_value_without_text_is_unfingerprintable() -> None:
    with pytest.raises(UnfingerprintableError):
        identify({"BLOCK": [64]})


def test_text_is_for_people() -> None:
    assert config_text(SMALL) == timed(SMALL, 1.0).text == "BLOCK=64 num_warps=4"


@pytest.mark.parametrize(
    "fields",
    [
        {"median_us": None},
        {"median_us": math.nan},
        {"median_us": math.inf},
        {"median_us": 0.0},
        {"median_us": -1.0},
        {"p20_us": 3.0},
        {"p80_us": 1.0},
        {"p80_us": math.inf},
        {"p20_us": math.nan},
        {"reps": 0},
        {"error": "failed"},
        {"error": ""},
        {"config": tuple(reversed(SMALL))},
        {"config": (SMALL[0], SMALL[0])},
    ],
)
def test_a_measurement_that_makes_no_sense_is_refused(fields: dict) -> None:
    good = TunedConfig(SMALL, 2.0, 1.5, 2.5, 10, "events", None)
    with pytest.raises(UsageError):
        replace(good, **fields)


def test_a_custom_benchmark_may_give_a_median_only() -> None:
    assert TunedConfig.measured(SMALL, 2.0, reps=None, method="custom").median_us == 2.0
    assert timed(SMALL, 2.0).p20_us is None


@pytest.mark.parametrize("library", [np.float32, np.array, torch.tensor])
def test_a_custom_benchmark_may_give_another_librarys_numbers(library) -> None:
    one = TunedConfig.measured(SMALL, library(2.0), reps=None, method="custom")
    three = TunedConfig.measured(
        SMALL, [library(t) for t in (2.0, 1.0, 3.0)], reps=None, method="custom"
    )
    assert one.median_us == 2.0
    assert (three.median_us, three.p20_us, three.p80_us) == (2.0, 1.0, 3.0)


@pytest.mark.parametrize(
    "times", [math.nan, math.inf, 0.0, -3.0, [], [math.inf] * 3, ["x"], [None], None]
)
def test_a_strange_time_makes_a_failed_config_and_never_raises(times) -> None:
    tuned = TunedConfig.measured(SMALL, times, reps=1, method="custom")
    assert not tuned.ok
    assert tuned.median_us is None
    assert "measured" in (tuned.error or "")


def test_quantiles_out_of_order_are_left_out() -> None:
    tuned = timed(SMALL, 2.0, 3.0, 1.0)
    assert (tuned.median_us, tuned.p20_us, tuned.p80_us) == (2.0, None, None)


@pytest.mark.parametrize("error", ["", "  ", "\ud800", "two\nlines"])
def test_any_text_can_be_the_reason_of_a_failure(error: str) -> None:
    failed = TunedConfig.failed(SMALL, error, method="events")
    assert not failed.ok
    assert failed.error
    failed.error.encode("utf-8")


def test_a_failed_or_unknown_config_cannot_be_chosen() -> None:
    failed = TunedConfig.failed(LARGE, "OutOfResources", method="events")
    for chosen in (LARGE, MIDDLE):
        with pytest.raises(UsageError, match="not measured"):
            record(timed(SMALL, 1.0), failed, chosen=chosen)


def test_a_config_cannot_stand_twice() -> None:
    with pytest.raises(UsageError, match="twice"):
        record(timed(SMALL, 1.0), timed(SMALL, 2.0))


def test_merging_keeps_every_config_and_the_newer_results() -> None:
    old = record(timed(SMALL, 1.0), timed(MIDDLE, 2.0))
    new = record(timed(MIDDLE, 0.5), timed(LARGE, 3.0), chosen=MIDDLE)
    merged = merge_records(old, new)
    assert merged.configs == (timed(SMALL, 1.0), timed(MIDDLE, 0.5), timed(LARGE, 3.0))
    assert merged.chosen == MIDDLE
    assert merged.winner == timed(MIDDLE, 0.5)
    assert merge_records(merged, new) == merged


def test_records_of_unlike_keys_do_not_merge() -> None:
    one = record(timed(SMALL, 1.0))
    for changes in (
        {"toolchain": Toolchain("3.6.0")},
        {"kernel": KernelId("other", "0" * 64)},
        {"key": LaunchKey((), ())},
        {"device": replace(DEVICE, multiprocessors=16)},
    ):
        with pytest.raises(UsageError):
            merge_records(one, replace(one, **changes))


def test_failed_configs_never_win_and_none_wins_among_failures() -> None:
    failed = TunedConfig.failed(SMALL, "no", method="events")
    assert choose([failed, timed(LARGE, 1e9)]) == timed(LARGE, 1e9)
    assert choose([failed]) is None
    assert choose([]) is None


BAND = {
    "equal": ([1.0, 0.5, 2.0], [1.0, 0.5, 2.0], True),
    "medians within each other's band": ([1.1, 0.9, 1.2], [1.0, 0.9, 1.2], True),
    "medians at the ends of the bands": ([1.2, 1.0, 1.3], [1.0, 0.9, 1.2], True),
    "equal medians, unlike bands": ([1.0, 0.6, 3.0], [1.0, 0.5, 2.0], True),
    "slower than the fastest's band": ([1.21, 1.0, 1.3], [1.0, 0.9, 1.2], False),
    "only the fastest is noisy": ([9.0, 8.9, 9.1], [1.0, 0.9, 20.0], False),
    "only the slower is noisy": ([9.0, 0.1, 9.1], [1.0, 0.9, 1.1], False),
    "medians alone": ([1.0], [1.0], True),
    "medians alone, unlike": ([1.0001], [1.0], False),
}


@pytest.mark.parametrize("case", BAND)
def test_the_first_of_those_within_noise_of_the_fastest_wins(case: str) -> None:
    slower, fastest, tie = BAND[case]
    assert choose([timed(LARGE, *slower), timed(SMALL, *fastest)]).config == (
        LARGE if tie else SMALL
    )
    assert choose([timed(SMALL, *fastest), timed(LARGE, *slower)]).config == SMALL


def test_noise_of_two_equal_configs_does_not_change_the_choice() -> None:
    rng = random.Random(1)
    for _ in range(200):
        runs = [sorted(rng.gauss(10, 0.3) for _ in range(99)) for _ in range(2)]
        one, two = (
            timed(i, r[49], r[19], r[79]) for i, r in zip((LARGE, SMALL), runs, strict=True)
        )
        assert choose([one, two, timed(MIDDLE, 20.0, 19.0, 21.0)]).config == LARGE


@given(st.integers(0, 2**32))
def test_the_choice_is_the_first_that_the_rule_allows(seed: int) -> None:
    rng = random.Random(seed)
    timings = {}
    for block in range(6):
        p20, median, p80 = sorted(rng.choice([1.0, 1.5, 2.0, 2.5]) for _ in range(3))
        timings[block] = [math.inf] * 3 if rng.random() < 0.2 else [median, p20, p80]
    got = choose([timed(identify({"BLOCK": b}), *times) for b, times in timings.items()])
    if all(math.isinf(times[0]) for times in timings.values()):
        assert got is None
        return
    best, low, high = min(timings.values())
    allowed = [b for b, (m, p20, p80) in timings.items() if low <= m <= high and p20 <= best <= p80]
    assert got.config == identify({"BLOCK": allowed[0]})


@given(st.integers(0, 2**32))
def test_the_choice_is_what_triton_takes_where_nothing_ties(seed: int) -> None:
    rng = random.Random(seed)
    timings = {}
    for block in range(6):
        median = rng.choice([1.0, 2.0, 4.0, 8.0])
        times = [median, 0.8 * median, 1.3 * median]
        timings[identify({"BLOCK": block})] = [math.inf] * 3 if rng.random() < 0.2 else times
    expected = min(timings, key=timings.get)  # as Autotuner.run does
    got = choose([timed(identity, *times) for identity, times in timings.items()])
    if all(math.isinf(times[0]) for times in timings.values()):
        assert got is None
    else:
        assert got.config == expected


# -- methods, reasons


def by(method: str, config, *times_us: float) -> TunedConfig:
    return TunedConfig.measured(config, times_us, reps=10, method=method)


def test_a_config_may_stand_once_per_method_and_the_chosen_method_decides() -> None:
    configs = by("eager", SMALL, 1.0), by("graph", SMALL, 5.0), by("graph", LARGE, 2.0)
    assert record(*configs).winner == configs[0]
    assert record(*configs, chosen_method="graph").winner == configs[1]
    for chosen, method in ((LARGE, "eager"), (SMALL, "graph+cold")):
        with pytest.raises(UsageError, match="not measured"):
            record(*configs, chosen=chosen, chosen_method=method)
    with pytest.raises(UsageError, match="twice"):
        record(*configs, by("graph", LARGE, 3.0))


def test_merging_keeps_results_by_unlike_methods_apart() -> None:
    old = record(by("eager", SMALL, 1.0), by("eager", LARGE, 2.0))
    new = record(by("graph", SMALL, 5.0), by("graph", LARGE, 4.0), chosen=LARGE)
    merged = merge_records(old, new)
    assert merged.configs == (*old.configs, *new.configs)
    assert merged.winner == by("graph", LARGE, 4.0)
    assert list(merged.results("eager").values()) == list(old.configs)
    assert list(merged.results("graph").values()) == list(new.configs)
    assert merge_records(merged, new) == merged


def test_what_lacked_a_resource_counts_by_every_method_and_other_failures_do_not() -> None:
    lacking = TunedConfig.failed(
        LARGE, f"too big {Resource('shared_bytes', 3, 2).text}", method="eager"
    )
    other = TunedConfig.failed(MIDDLE, "no", method="eager")
    made = record(by("eager", SMALL, 1.0), lacking, other)
    assert made.results("graph") == {LARGE: lacking}
    assert set(made.results("eager")) == {SMALL, MIDDLE, LARGE}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("OutOfResources: x [needs shared_bytes=300000 limit=232448]", ("shared_bytes", 300000, 232448)),
        ("[needs threads=2048 limit=1024]", ("threads", 2048, 1024)),
        ("[needs threads=2048 limit=1024] and more", None),
        ("[needs threads=-1 limit=1024]", None),
        ("[needs threads=1 limit=" + "9" * 5000 + "]", None),
        ("[needs threads=\u0661 limit=1024]", None),
        ("no", None),
    ],
)  # fmt: skip
def test_the_resource_that_a_config_lacked_is_read_from_its_reason(error, expected) -> None:
    found = TunedConfig.failed(SMALL, error, method="eager").needed
    assert found == (None if expected is None else Resource(*expected))


def test_a_config_that_was_measured_lacked_nothing() -> None:
    assert timed(SMALL, 1.0).needed is None


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_seconds_that_are_no_time_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds"):
        record(timed(SMALL, 1.0), seconds=seconds)


def test_merging_keeps_the_seconds_that_are_known() -> None:
    old, new = record(timed(SMALL, 1.0), seconds=3.0), record(timed(SMALL, 1.0))
    assert merge_records(old, new).seconds == 3.0
    assert merge_records(old, replace(new, seconds=4.5)).seconds == 4.5
