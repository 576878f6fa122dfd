"""Comparisons of two captures: what changed, how sure that is, and what fails."""

from __future__ import annotations

import random
import statistics

import pytest

pl = pytest.importorskip("polars")

from handmade import call, rng, row, timeline, work  # noqa: E402

from launchkit.errors import UsageError  # noqa: E402
from launchkit.profiling.timeline.analysis.analysis import analyse  # noqa: E402
from launchkit.profiling.timeline.analysis.bootstrap import median_ratios  # noqa: E402
from launchkit.profiling.timeline.analysis.comparing import compare  # noqa: E402


def capture(scale, seed, *, count=60, launches=1, calibration=None, extra=()):
    """Ops of about 1000 ns times ``scale`` with a launch or more each, and a kernel of 100 ns."""
    draw, now, ranges, calls, gpu = random.Random(seed), 0, list(extra), [], []
    for _ in range(count):
        took = int(draw.gauss(1000, 30) * scale)
        ranges.append(rng("op", now, now + took))
        for each in range(launches):
            number = len(calls)
            calls.append(
                call("cuLaunchKernel", now + 10 * each, now + 10 * each + 5, "launch", number)
            )
            gpu.append(work("k", now + 50, now + 150, number))
        now += took + 500
    return analyse(timeline(ranges, calls, gpu, calibration=calibration or {}))


def wall(found, name="op"):
    return row(found.rows, table="ranges", name=name, metric="wall_ns")


def test_the_same_work_twice_is_no_change():
    found = compare(capture(1, 5), capture(1, 6), fail_over=0.0)
    assert wall(found)["change"] == "unclear"
    assert wall(found)["low"] < 1 < wall(found)["high"]
    assert not found.failed


def test_a_difference_below_what_recording_may_cost_is_unclear():
    sure, unsure = ({"range_uncertainty_ns": limit} for limit in (10.0, 400.0))
    before, after = capture(1, 5, calibration=sure), capture(1.3, 6, calibration=sure)
    assert wall(compare(before, after, fail_over=0.1))["change"] == "slower"
    found = compare(before, capture(1.3, 6, calibration=unsure), fail_over=0.1)
    assert wall(found)["change"] == "unclear"
    assert not found.failed


def test_how_launches_were_sampled_is_no_speed_of_a_machine():
    before = capture(1, 5, calibration={"launch_ns": 40.0, "sample_every": 1.0})
    after = capture(1, 6, calibration={"launch_ns": 40.0, "sample_every": 1000.0})
    found = compare(before, after)
    assert (found.calibration, found.calibrated) == (1.0, ("launch_ns",))


@pytest.mark.parametrize(("scale", "change"), [(1.3, "slower"), (0.7, "faster")])
def test_a_change_is_found_with_its_ratio_inside_the_interval(scale, change):
    found = wall(compare(capture(1, 5), capture(scale, 6)))
    assert found["change"] == change
    assert found["low"] < scale < found["high"]
    assert found["high"] - found["low"] < 0.1


def test_only_what_is_slower_by_more_than_allowed_fails():
    before, after = capture(1, 5), capture(1.3, 2)
    assert compare(before, after, fail_over=0.1).failed
    assert not compare(before, after, fail_over=0.5).failed
    assert not compare(after, before, fail_over=0.1).failed
    assert not compare(before, after).failed
    over = compare(before, after, fail_over=0.1).over
    assert set(over.get_column("metric")) == {"wall_ns", "inclusive_python_ns"}


def test_more_launches_fail_by_their_number():
    found = compare(capture(1, 5), capture(1, 1, launches=2), fail_over=0.1)
    launches = row(found.over, metric="launches")
    assert (launches["before"], launches["after"], launches["ratio"]) == (1, 2, 2)


def test_host_times_are_divided_by_what_both_machines_calibrated():
    slow = {"range_ns": 300.0, "clock_ns": 60.0, "range_uncertainty_ns": 9.0, "only_here_ns": 5.0}
    fast = {"range_ns": 200.0, "clock_ns": 40.0, "range_uncertainty_ns": 1.0}
    found = compare(
        capture(1, 1, calibration=fast), capture(1.5, 2, calibration=slow), fail_over=0.1
    )
    assert found.calibration == pytest.approx(1.5)
    assert found.calibrated == ("clock_ns", "range_ns")
    assert wall(found)["ratio"] == pytest.approx(1, rel=0.05)
    assert not found.failed
    kernels = row(found.rows, table="kernels", name="k")
    assert kernels["ratio"] == 1


def test_ranges_of_one_side_are_kept_and_said_to_be():
    found = compare(capture(1, 1, extra=[rng("old", -100, -50)]),
                    capture(1, 2, extra=[rng("new", -100, -50)]))  # fmt: skip
    assert wall(found, "old")["change"] == "only before"
    assert wall(found, "new")["change"] == "only after"


def test_a_few_times_are_not_judged():
    found = compare(capture(1, 1, count=4), capture(2, 2, count=4), fail_over=0.1)
    assert wall(found)["change"] == "too few"
    assert wall(found)["ratio"] == pytest.approx(2, rel=0.1)
    assert not any(found.over.get_column("metric").is_in(["wall_ns"]))


def test_a_comparison_repeats_itself():
    before, after = capture(1, 5), capture(1.1, 2)
    assert compare(before, after, seed=3).rows.equals(compare(before, after, seed=3).rows)
    assert not compare(before, after, seed=3).rows.equals(compare(before, after, seed=4).rows)


@pytest.mark.parametrize(
    "bad", [{"fail_over": -0.1}, {"fail_over": float("nan")}, {"resamples": 0}, {"confidence": 1.0}]
)
def test_bad_options_are_refused(bad):
    empty = analyse(timeline())
    with pytest.raises(UsageError):
        compare(empty, empty, **bad)


def test_two_empty_captures_compare():
    empty = analyse(timeline())
    assert compare(empty, empty, fail_over=0.1).rows.is_empty()


def test_the_interval_is_that_of_a_plain_bootstrap():
    draw = random.Random(5)
    one, other = ([draw.gauss(mean, 8) for _ in range(40)] for mean in (100, 110))
    frames = [pl.DataFrame({"key": 0, "v": values}) for values in (one, other)]
    found = median_ratios(*frames, "key", ["v"], resamples=3000, confidence=0.9, seed=1)
    ratios = sorted(
        statistics.median(draw.choices(other, k=40)) / statistics.median(draw.choices(one, k=40))
        for _ in range(3000)
    )
    assert found.item(0, "low") == pytest.approx(ratios[150], abs=0.01)
    assert found.item(0, "high") == pytest.approx(ratios[2850], abs=0.01)
