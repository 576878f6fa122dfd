"""What an analysis says of hand-made timelines, against figures worked out by hand."""

from __future__ import annotations

import pytest

pl = pytest.importorskip("polars")

from handmade import call, rng, row, timeline, work  # noqa: E402

from launchkit.errors import UsageError  # noqa: E402
from launchkit.profiling.timeline.analysis.analysis import analyse  # noqa: E402
from launchkit.profiling.timeline.model import Source, Timeline  # noqa: E402


@pytest.fixture(scope="module")
def small():
    """Two steps; an op in the first launches twice and waits, with a driver call inside a call."""
    return analyse(
        timeline(
            [
                rng("step 0", 0, 1000),
                rng("op", 100, 700, domain="launchkit"),
                rng("inner", 200, 400),
                rng("step 1", 1000, 1500),
                rng("left open", 1600, 9000, closed=False),
                rng("handed over", 50, 650, kind="start_end"),
            ],
            [
                call("cudaLaunchKernel", 250, 300, "launch", 1, layer="runtime"),
                call("cuLaunchKernel", 260, 290, "launch", 2, outermost=False),
                call("cuLaunchKernelEx", 450, 500, "launch", 3),
                call("cudaStreamSynchronize", 500, 600, "sync", 4),
                call("cudaGraphLaunch", 1100, 1200, "graph_launch", 5),
            ],
            [
                work("a", 310, 350, 1),
                work("b", 520, 580, 3),
                work("in graph", 1210, 1240, 5),
                work("in graph", 1250, 1300, 5),
                work("stray", 1400, 1450, 99),
            ],
        )
    )


def test_inclusive_and_exclusive_times_of_a_range(small):
    op = row(small.ranges, name="op")
    assert (op["domain"], op["count"], op["total_ns"]) == ("launchkit", 1, 600)
    assert (op["api_ns"], op["sync_ns"]) == (100, 100)
    # Wall 600 less inner 200, the launch outside it 50 and the wait 100.
    assert (op["exclusive_ns"], op["python_ns"], op["inclusive_python_ns"]) == (400, 250, 400)
    inner = row(small.ranges, name="inner")
    assert (inner["exclusive_ns"], inner["python_ns"], inner["api_ns"]) == (200, 150, 50)


def test_a_driver_call_inside_a_runtime_call_is_one_launch(small):
    op, inner = (row(small.ranges, name=name) for name in ("op", "inner"))
    assert (op["launches"], op["own_launches"], inner["launches"]) == (2, 1, 1)


def test_gpu_work_is_that_of_the_launches_of_a_range(small):
    op = row(small.ranges, name="op")
    assert (op["kernels"], op["gpu_ns"], op["gpu_busy_ns"], op["gpu_idle_ns"]) == (2, 100, 100, 170)
    assert (op["window_ns"], op["exposed_idle_ns"]) == (600, 500)


def test_a_graph_is_one_launch_with_many_kernels(small):
    step = row(small.ranges, name="step 1")
    assert (step["launches"], step["kernels"], step["gpu_ns"]) == (1, 2, 80)


def test_a_range_never_closed_has_no_time_and_is_flagged(small):
    left = row(small.ranges, name="left open")
    assert (left["count"], left["total_ns"], left["unclosed"]) == (0, 0, 1)
    assert row(small.verdicts, name="left open")["verdict"] == "never closed"
    assert any("1 ranges were never closed" in warning for warning in small.warnings)


def test_a_start_end_range_counts_by_containment_and_has_nothing_exclusive(small):
    handed = row(small.ranges, name="handed over")
    assert (handed["launches"], handed["sync_ns"], handed["gpu_ns"]) == (2, 100, 100)
    assert handed["overlapping"]
    found = row(small.instances, name="handed over")
    assert found["python_ns"] is None
    assert found["exclusive_ns"] is None
    assert "Python unknown, calls" in row(small.verdicts, name="handed over")["reason"]


def test_steps_are_found_by_their_names_and_timed_to_the_next(small):
    assert small.steps.get_column("name").to_list() == ["step 0", "step 1"]
    assert small.steps.get_column("period_ns").to_list() == [1000, None]
    assert small.steps.get_column("done_ns").to_list() == [1000, 500]


def test_a_step_range_that_is_not_there_is_refused_with_near_names(small):
    with pytest.raises(UsageError, match=r"'stepp'.*step 0") as caught:
        analyse(small.timeline, step_range="stepp")
    assert caught.value.fields["step_range"] == "stepp"
    chosen = analyse(small.timeline, step_range="inner").steps
    assert chosen.get_column("name").to_list() == ["inner"]


def test_work_without_a_launch_and_gaps_before_it_are_kept(small):
    assert row(small.kernels, name="stray")["orphans"] == 1
    assert any("1 pieces of GPU work have no launch" in each for each in small.warnings)
    gap = row(small.gaps, kernel="stray")
    assert (gap["cause"], gap["idle_ns"], gap["unknown_ns"]) == ("unknown", 100, 100)


def test_a_gap_is_split_into_what_the_launching_thread_did(small):
    gap = row(small.gaps, kernel="b")
    # Idle 350 to 520: Python to the call at 450, the call to 500, the queue to 520.
    assert (gap["python_ns"], gap["launch_ns"], gap["queue_ns"]) == (100, 50, 20)
    assert (gap["cause"], gap["range"], gap["domain"]) == ("python", "op", "launchkit")
    waited = row(small.gaps, kernel="in graph", start_ns=580)
    assert (waited["sync_ns"], waited["python_ns"], waited["launch_ns"]) == (20, 500, 100)


def test_idle_time_by_range_adds_up_to_the_gaps(small):
    assert small.idle.get_column("idle_ns").sum() == small.gaps.get_column("idle_ns").sum()
    python = small.idle.filter(pl.col("cause") == "python")
    times = dict(python.select("range", "idle_ns").rows())
    # From 350 inner to 400, op to 450; from 600 op to 700, step 0 to 1000, step 1 to 1100.
    assert times == {"inner": 50, "op": 50 + 100, "step 0": 300, "step 1": 100}
    per_step = small.idle.get_column("step_ns").sum()
    assert per_step == small.gaps.filter(pl.col("end_ns") <= 1500)["idle_ns"].sum() / 2


def test_devices_busy_time_is_a_union_over_streams():
    made = analyse(timeline(gpu=[work("a", 0, 100, 1), work("b", 50, 150, 2, stream=8),
                                 work("c", 200, 220, 3)]))  # fmt: skip
    device = row(made.devices, device=0)
    assert (device["work_ns"], device["busy_ns"], device["idle_ns"]) == (220, 170, 50)


def test_equal_correlations_of_two_processes_stay_apart():
    made = analyse(
        timeline(
            [rng("r", 0, 100), rng("r", 0, 100, process=2)],
            [call("cuLaunchKernel", 10, 20, "launch", 1),
             call("cuLaunchKernel", 10, 20, "launch", 1, process=2)],
            [work("a", 30, 40, 1), work("b", 30, 60, 1, process=2, device=1)],
        )
    )  # fmt: skip
    assert made.instances.sort("process").get_column("gpu_ns").to_list() == [10, 30]


def test_an_empty_timeline_gives_empty_tables():
    made = analyse(Timeline(Source("x", "chrome")))
    frames = [value for value in vars(made).values() if isinstance(value, pl.DataFrame)]
    assert len(frames) == 18
    assert not any(frame.height for frame in frames)
