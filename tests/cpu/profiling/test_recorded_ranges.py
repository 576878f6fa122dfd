"""Times of ranges: how often they are open, how long, and what of it is spent where."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from launchkit import clock
from launchkit.profiling import LaunchProfile, annotate
from launchkit.profiling.recording import open_ranges, tally
from launchkit.profiling.recording.calibration import Calibration, Cost, cost_of
from launchkit.profiling.recording.open_ranges import OpenRanges, RangeCosts
from launchkit.profiling.recording.range_costs import range_costs
from launchkit.profiling.recording.series import Times
from launchkit.profiling.recording.tally import Batch, Subject, Tally
from launchkit.profiling.recording.visits import Visit


class FakeClock:
    """Each reading takes 10 ns."""

    time_ns = 0

    def now_ns(self):
        self.time_ns += 10
        return self.time_ns


@pytest.fixture
def time(monkeypatch):
    made = FakeClock()
    monkeypatch.setattr(clock, "now_ns", made.now_ns)
    return made


@pytest.fixture
def counts():
    return Tally(1000)


def opened(counts, time, costs=None):
    ranges = OpenRanges(counts, None, costs)

    def visit(name, *parts, layer=None, op=None):
        """Spends what ``parts`` say: ns, or functions that spend."""
        trial = annotate(name, layer, op=op)
        ranges.enter(trial)
        for part in parts:
            if callable(part):
                part()
            else:
                time.time_ns += part
        ranges.leave(trial)

    return visit


def launch(counts, node, kernel="k", ns=1000, driver_ns=None, started_ns=0):
    samples = array("q", [ns])
    phases = {}
    if driver_ns is not None:
        each = {"find": ns - driver_ns - 100, "grid": 100, "driver": driver_ns}
        phases = {name: Times(1, part, array("q", [part])) for name, part in each.items()}
    batch = Batch(Subject(kernel, None), counts.thread(), Times(1, ns, samples), phases,
                  started_ns=array("q", [started_ns]))  # fmt: skip
    counts.add(node, batch)


def profile(counts, added_ns=0.0):
    return LaunchProfile(counts, Calibration(added=Cost(added_ns)))


def rows(counts, added_ns=0.0):
    return {"/".join(row.path): row for row in profile(counts, added_ns).ranges}


def test_wall_and_exclusive_time_of_nested_ranges(counts, time):
    visit = opened(counts, time)
    for _ in range(3):
        visit("outer", 1000, lambda: visit("inner", 5000), 2000, lambda: visit("inner", 500))
    found = rows(counts)
    # Each empty range has one reading of 10 ns in its own time, and two in the one around it.
    assert (found["outer"].calls, found["outer/inner"].calls) == (3, 6)
    assert found["outer/inner"].wall_us == pytest.approx(3 * (5010 + 510) / 1000)
    assert found["outer"].wall_us == pytest.approx(3 * (1000 + 5000 + 2000 + 500 + 50) / 1000)
    assert found["outer"].exclusive_us == pytest.approx(3 * (3000 + 30) / 1000)
    assert found["outer/inner"].exclusive_us == found["outer/inner"].wall_us


def test_what_recording_costs_is_taken_off_and_nothing_is_left_of_empty_ranges(counts, time):
    costs = RangeCosts()
    own, nested = range_costs(costs)
    assert (own.ns, nested.ns) == (10, 20)
    visit = opened(counts, time, costs)
    visit("outer", 700, lambda: visit("inner", 40, lambda: visit("core")), lambda: visit("inner"))
    found = rows(counts)
    assert found["outer/inner/core"].wall_us == 0
    assert found["outer/inner"].wall_us == pytest.approx(0.040)
    assert found["outer"].wall_us == pytest.approx(0.740)
    assert found["outer"].exclusive_us == pytest.approx(0.700)


def test_wall_time_splits_into_driver_unsplit_and_python(counts, time):
    visit = opened(counts, time, RangeCosts(own_ns=10))
    node = counts.child(counts.root, "op", None)
    visit("op", 20_000)
    launch(counts, node, ns=4000, driver_ns=2500)
    launch(counts, node, ns=3000)
    row = rows(counts, added_ns=50)["op"]
    assert row.wall_us == pytest.approx(20 - 2 * 0.05)
    assert row.driver_us == pytest.approx(2.5)
    assert row.unsplit_us == pytest.approx(3.0)
    assert row.python_us == pytest.approx(20 - 2 * 0.05 - 2.5 - 3.0)
    (each,) = profile(counts).rows
    assert (each.driver_us, each.python_us) == (pytest.approx(2.5), pytest.approx(1.5))


def test_percentiles_are_of_single_visits(counts, time):
    visit = opened(counts, time, RangeCosts(own_ns=10))
    spent = [int(value) for value in np.random.default_rng(3).integers(100, 10**6, 57)]
    for ns in spent:
        visit("r", ns)
    row = rows(counts)["r"]
    for figure, percent in ((row.wall_p50_us, 50), (row.wall_p90_us, 90), (row.wall_p99_us, 99)):
        assert figure == pytest.approx(np.percentile(spent, percent) / 1000)


def test_visits_beyond_the_limit_are_counted(time, monkeypatch):
    counts = Tally(2)
    visit = opened(counts, time, RangeCosts(own_ns=10))
    for ns in (100, 200, 900_000):
        visit("r", ns)
    row = rows(counts)["r"]
    assert (row.calls, row.wall_us) == (3, pytest.approx(900.3))
    assert row.wall_p99_us == pytest.approx(0.199)
    monkeypatch.setattr(tally, "MAX_SAMPLES", 0)
    none_kept = Tally(1000)
    opened(none_kept, time)("r", 100)
    assert rows(none_kept)["r"].wall_p50_us is None


def test_ranges_that_cross_have_the_time_from_enter_to_leave(counts, time):
    ranges = OpenRanges(counts, None, RangeCosts(own_ns=10))
    first, second = annotate("first"), annotate("second")
    ranges.enter(first)
    time.time_ns += 1000
    ranges.enter(second)
    time.time_ns += 1000
    ranges.leave(first)
    time.time_ns += 1000
    ranges.leave(second)
    found = rows(counts)
    assert found["first"].wall_us == pytest.approx(2.010)
    assert found["first/second"].wall_us == pytest.approx(2.010)


def test_launches_are_gathered_by_op_and_by_layer(counts):
    block = counts.child(counts.root, "block", 4, "mamba")
    launch(counts, block, ns=1000, driver_ns=400)
    launch(counts, counts.child(block, "norm", None), ns=2000)
    launch(counts, counts.child(block, "scan", 5, "ssd"), ns=7000)
    launch(counts, counts.root, ns=500)
    result = profile(counts)
    by_op = {row.group: (row.launches, row.total_us, row.driver_us) for row in result.by_op}
    assert by_op == {"ssd": (1, 7.0, None), "mamba": (2, 3.0, 0.4), None: (1, 0.5, None)}
    assert [(row.group, row.launches) for row in result.by_layer] == [(5, 1), (4, 2), (None, 1)]


def test_a_step_holds_the_launches_begun_while_it_was_open_on_its_thread(counts):
    node = counts.child(counts.root, "step", None)
    inner = counts.child(node, "op", None)
    for start_ns in (1000, 5000):
        counts.visit(node, Visit(counts.thread(), start_ns, 3000, 0))
    other = counts.add_thread(tally.ThreadTotal("other"))
    counts.visit(node, Visit(other, 1000, 9000, 0))
    for started_ns in (900, 1000, 2500, 4000, 7999):
        launch(counts, inner, ns=100, driver_ns=40, started_ns=started_ns)
    steps = profile(counts, added_ns=10).by_step()
    assert [(row.group, row.launches, row.wall_us) for row in steps] == [
        (0, 2, 2.98),
        (1, 0, 9.0),
        (2, 1, 2.99),
    ]
    assert steps[0].driver_us == pytest.approx(0.08)
    assert profile(counts).by_step("nothing") == ()


def test_a_launch_at_the_end_of_a_step_is_in_it_whatever_recording_took(counts, time):
    visit = opened(counts, time, RangeCosts(own_ns=10, nested_ns=400))
    node = counts.child(counts.root, "step", None)
    last = []

    def at_the_end():
        launch(counts, node, ns=10, started_ns=time.time_ns)
        last.append(time.time_ns)

    # Each inner range takes 500 ns more of the step than is its own.
    parts = [lambda: visit("inner", 500)] * 4
    visit("step", *parts, at_the_end)
    (row,) = profile(counts).by_step()
    assert row.launches == 1
    assert row.wall_us * 1000 < last[0]


def test_a_cost_has_the_median_of_its_rounds_and_half_the_distance_of_its_deciles():
    rounds = np.random.default_rng(1).normal(500, 40, 301).tolist()
    cost = cost_of(rounds)
    low, high = np.percentile(rounds, [10, 90])
    assert cost.ns == pytest.approx(np.median(rounds))
    assert cost.uncertainty_ns == pytest.approx((high - low) / 2)
    assert cost_of([7.0]) == Cost(7.0, 0.0)


def test_a_sampling_recording_takes_no_times_of_ranges(counts):
    ranges = open_ranges.NamedRanges(counts)
    outer, inner = annotate("outer", 3), annotate("inner", op="x")
    ranges.enter(outer)
    ranges.enter(inner)
    assert counts.node(ranges.locate()).path == ("outer", "inner")
    assert (ranges.innermost.layer, ranges.innermost.op) == (3, "x")
    ranges.leave(outer)
    ranges.leave(annotate("never entered"))
    assert ranges.innermost.path == ("inner",)
    launch(counts, ranges.innermost)
    row = rows(counts)["inner"]
    assert (row.calls, row.wall_us, row.launches) == (0, None, 1)
