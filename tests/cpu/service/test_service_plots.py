"""Where a record's times stand in the plot of the service's page, and how figures are written."""

from __future__ import annotations

import math
from dataclasses import replace

import page_world
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_world import H200, SCAN, a_record, config, tuned

from launchkit.configs import TunedConfig, TunedRecord
from launchkit.service.web import plots, rendering

TIMES = st.lists(
    st.tuples(st.floats(1e-3, 1e9), st.floats(0, 0.9)), min_size=1, max_size=60
).map(lambda several: [tuned(n + 1, 4, time, spread) for n, (time, spread) in enumerate(several)])  # fmt: skip


def record_of(configs):
    winner = next(each for each in configs if each.ok)
    chosen = winner.method if sum(each.config == winner.config for each in configs) > 1 else None
    base = a_record(SCAN, H200, 1)
    return TunedRecord(
        base.kernel, base.device, base.toolchain, base.key, tuple(configs), winner.config,
        chosen_method=chosen,
    )  # fmt: skip


@given(TIMES)
def test_every_mark_is_within_the_axis_and_in_the_order_of_its_time(configs):
    (plot,) = plots.plots(record_of(configs))
    timed = {each.text: each for each in configs}
    for mark in plot.marks:
        assert plot.left <= mark.low <= mark.x <= mark.high <= plots.WIDTH
        assert mark.median_us == timed[mark.text].median_us
        assert 0 < mark.y < plot.height
    drawn = [mark for mark in plot.marks if not mark.chosen]
    assert [mark.median_us for mark in drawn] == sorted(mark.median_us for mark in drawn)
    assert [mark.x for mark in drawn] == sorted(mark.x for mark in drawn)
    assert len(plot.marks) + plot.left_out == len(configs)
    assert sum(mark.chosen for mark in plot.marks) == 1


@given(TIMES)
def test_ticks_are_round_times_where_the_axis_has_them(configs):
    (plot,) = plots.plots(record_of(configs))
    marks = sorted(plot.marks, key=lambda each: each.x)
    assert len(plot.ticks) <= 16
    for tick in plot.ticks:
        mantissa = tick.us / 10 ** math.floor(math.log10(tick.us) + 1e-9) if tick.us else 0.0
        assert mantissa == pytest.approx(round(mantissa, 6), rel=1e-6)
        assert plot.left - 1 <= tick.x <= plots.WIDTH
        # Whatever the scale, a tick lies between the marks of shorter and longer times.
        assert all(mark.x <= tick.x + 0.02 for mark in marks if mark.median_us <= tick.us)
        assert all(mark.x >= tick.x - 0.02 for mark in marks if mark.median_us >= tick.us)


def test_times_far_apart_stand_on_a_logarithmic_axis():
    near, far = ([tuned(1, 4, 10.0), tuned(2, 4, other)] for other in (20.0, 2000.0))
    assert [plots.plots(record_of(each))[0].logarithmic for each in (near, far)] == [False, True]


def test_unlike_methods_have_a_plot_each_and_the_chosen_one_is_first():
    other = replace(tuned(64, 4, 5.0), method="a graph")
    record = record_of([tuned(64, 4, 10.0), tuned(32, 4, 12.0), other])
    found = plots.plots(record)
    assert [(plot.method, len(plot.marks)) for plot in found] == [
        (page_world.METHOD, 2), ("a graph", 1),
    ]  # fmt: skip
    assert [mark.chosen for plot in found for mark in plot.marks] == [True, False, False]


def test_labels_leave_out_what_all_configs_share():
    (plot,) = plots.plots(record_of([tuned(64, 4, 10.0), tuned(64, 8, 12.0)]))
    assert [mark.label for mark in plot.marks] == ["num_warps=4", "num_warps=8"]
    assert plot.common == "BLOCK=64 num_stages=3"


def test_chosen_config_is_drawn_though_many_are_faster():
    faster = [tuned(n, 4, 10.0 + n) for n in range(1, 60)]
    record = record_of([tuned(999, 4, 500.0), *faster])
    (plot,) = plots.plots(record)
    assert len(plot.marks) == plots.DRAWN
    assert [mark.text for mark in plot.marks if mark.chosen] == [record.winner.text]


def test_record_without_a_time_has_no_plot():
    alone = TunedConfig.imported(config(64, 4), method="imported:triton")
    assert plots.plots(record_of([alone])) == []


def test_table_has_the_fastest_first_and_the_failed_last():
    failed = TunedConfig.failed(config(1, 1), "no", method=page_world.METHOD)
    several = [failed, tuned(2, 4, 20.0), tuned(3, 4, 10.0)]
    assert [each.median_us for each in plots.by_speed(several)] == [10.0, 20.0, None]


@pytest.mark.parametrize(("time_us", "text"), [
    (None, "-"), (0.5, "0.5 µs"), (11.4999, "11.5 µs"), (999.94, "999.9 µs"), (1000, "1 ms"),
    (12345.678, "12.35 ms"), (2.5e6, "2.5 s"), (4e9, "4000 s"),
])  # fmt: skip
def test_times_are_written_with_their_unit(time_us, text):
    assert rendering.time_text(time_us) == text


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 seconds"), (1, "1 second"), (59.9, "59 seconds"), (60, "1 minute"), (7199, "1 hour"),
    (86_400 * 3, "3 days"), (86_400 * 4000, "4,000 days"),
])  # fmt: skip
def test_durations_are_written_in_their_largest_unit(seconds, text):
    assert rendering.seconds_text(seconds) == text


def test_moments_are_told_from_the_databases_clock():
    assert rendering.ago_text(1000, 61_000) == "1 minute ago"
    assert rendering.ago_text(3_601_000, 1000) == "in 1 hour"
