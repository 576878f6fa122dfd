"""Predicted step times of hand-made timelines, worked out by hand."""

from __future__ import annotations

import pytest

pl = pytest.importorskip("polars")

from handmade import call, full_queue, rng, timeline, work  # noqa: E402

from launchkit.errors import UsageError  # noqa: E402
from launchkit.profiling.timeline.analysis.analysis import analyse  # noqa: E402
from launchkit.profiling.timeline.what_if.prediction import (  # noqa: E402
    CachedLaunches,
    CudaGraph,
    Fused,
    OpPlan,
    predict,
    suggestions,
)

STEPS, OPS, LAUNCH_NS, START_NS = 4, 3, 2_000, 3_000


def steps(python_ns, busy_ns, *, sync=False, launches=2, driver=True, gap_ns=1_000):
    """Steps of ops; an op computes before each launch, whose kernel starts 1 us after its return.

    Kernels follow each other 1 us apart at least. ``sync``: each step ends with a wait.
    """
    ranges, calls, gpu, now, free, number = [], [], [], 0, 0, 0
    for step in range(STEPS):
        begin = now
        for _ in range(OPS):
            opened = now
            for _ in range(launches):
                now += python_ns
                name, layer = (
                    ("cuLaunchKernel", "driver") if driver else ("cudaLaunchKernel", "runtime")
                )
                calls.append(call(name, now, now + LAUNCH_NS, "launch", number, layer=layer))
                start = max(now + START_NS, free + gap_ns)
                free = start + busy_ns
                gpu.append(work("k", start, free, number))
                now, number = now + LAUNCH_NS, number + 1
            ranges.append(rng("op", opened, now))
        if sync:
            end = max(now + 500, free + 700)
            calls.append(call("cudaDeviceSynchronize", now, end, "sync"))
            now = end
        ranges.append(rng(f"step {step}", begin, now))
    return analyse(timeline(ranges, calls, gpu))


PER_STEP = OPS * 2


def test_a_starved_gpu_lets_a_step_shrink_by_what_the_host_saves():
    found = predict(steps(20_000, 1_000), CachedLaunches("op", python_ns=3_000))
    assert (found.steps, found.instances, found.skipped) == (STEPS - 1, (STEPS - 1) * OPS, 0)
    # The last kernel ends after the host: once, for all three steps.
    tail = START_NS + 1_000 - LAUNCH_NS
    assert found.measured_ns == pytest.approx(PER_STEP * 22_000 + tail / 3)
    assert found.replayed_ns == pytest.approx(found.measured_ns)
    assert found.predicted_ns == pytest.approx(PER_STEP * 5_000 + tail / 3)
    assert found.saved_ns == pytest.approx(PER_STEP * 17_000)
    assert found.hidden_ns == pytest.approx(0)


def test_what_a_busy_gpu_hides_is_not_saved():
    found = predict(steps(20_000, 21_500), CachedLaunches("op", python_ns=3_000))
    assert found.host_saved_ns == pytest.approx(PER_STEP * 17_000)
    # Each kernel takes 21.5 us, and 1 us lies between: longer than the host's 22 us. Those of
    # the first step, left out, end 25 us after the second begins.
    kernels = 3 * PER_STEP * 22_500
    assert found.predicted_ns * 3 == pytest.approx(25_000 + kernels)
    assert found.saved_ns == pytest.approx(0, abs=1)
    assert found.hidden_ns == pytest.approx(found.host_saved_ns - found.saved_ns)
    assert any("the GPU is the bound afterwards" in note for note in found.notes)


def test_a_wait_ends_when_the_gpu_is_done_and_not_earlier():
    found = predict(steps(20_000, 50_000, sync=True), CachedLaunches("op", python_ns=3_000))
    assert abs(found.model_error) < 1e-6
    first, kernels = 3_000 + START_NS, PER_STEP * 51_000 - 1_000
    assert found.predicted_ns == pytest.approx(first + kernels + 700)
    # Of 17 us less before each launch only those before a step's first one make it shorter.
    assert found.saved_ns == pytest.approx(17_000)


def test_saving_a_known_time_per_launch_is_no_upper_bound():
    capture = steps(20_000, 1_000)
    some = predict(capture, CachedLaunches("op", saves_ns=5_000))
    most = predict(capture, CachedLaunches("op"))
    assert some.saved_ns == pytest.approx(PER_STEP * 5_000)
    assert not any("upper bound" in note for note in some.notes)
    assert any("upper bound" in note for note in most.notes)


@pytest.mark.parametrize(
    ("change", "given_ns", "stays_ns"),
    [
        # What the plan takes is given; its launches stay.
        (OpPlan("op", python_ns=6_000), OPS * 6_000, PER_STEP * LAUNCH_NS),
        (CachedLaunches("op", saves_ns=5_000), 0, PER_STEP * (15_000 + LAUNCH_NS)),
    ],
)
def test_host_code_that_stays_takes_three_quarters_when_warm(change, given_ns, stays_ns):
    found = predict(steps(20_000, 100, gap_ns=0), change)
    # The last kernel ends after the host, once for all three steps.
    cold, warm = ((START_NS + 100 - share * LAUNCH_NS) / 3 for share in (1, 0.75))
    assert found.predicted_ns == pytest.approx(given_ns + stays_ns + cold)
    assert found.warm_ns == pytest.approx(given_ns + 0.75 * stays_ns + warm)


@pytest.mark.parametrize(
    "change", [CachedLaunches("op", saves_ns=0), OpPlan("op", python_ns=10**9)]
)
def test_change_that_takes_nothing_off_the_host_warms_nothing(change):
    found = predict(steps(20_000, 100), change)
    assert found.warm_ns == found.predicted_ns == found.replayed_ns


@pytest.mark.parametrize("change", [CachedLaunches("op"), Fused("op")])
def test_bounds_and_python_that_stays_are_not_warmed(change):
    found = predict(steps(20_000, 1_000), change)
    assert found.warm_ns == found.predicted_ns < found.replayed_ns


def test_a_busy_gpu_is_the_least_that_a_warm_host_takes():
    found = predict(steps(20_000, 30_000), OpPlan("op"))
    assert found.warm_ns == pytest.approx(found.predicted_ns, rel=0.01)


def test_launches_that_are_not_the_drivers_are_left_alone():
    capture = steps(20_000, 1_000, driver=False)
    found = predict(capture, CachedLaunches("op"))
    assert (found.instances, found.skipped, found.saved_ns) == (0, (STEPS - 1) * OPS, 0)
    every = predict(capture, CachedLaunches("op", driver_only=False, python_ns=3_000))
    assert every.saved_ns == pytest.approx(PER_STEP * 17_000)
    assert predict(capture, OpPlan("op")).instances == 0


def test_an_op_plan_leaves_its_own_time_and_the_drivers():
    found = predict(steps(20_000, 1_000), OpPlan("op", python_ns=6_000))
    assert found.saved_ns == pytest.approx(OPS * (2 * 20_000 - 6_000))


def test_a_graph_leaves_one_launch_and_the_work_of_all():
    found = predict(
        steps(20_000, 1_000), CudaGraph("op", launch_ns=4_000, python_ns=2_000, between_ns=500)
    )
    last = START_NS + 1_000 + 500 + 1_000 - 4_000
    assert found.predicted_ns == pytest.approx(OPS * 6_000 + max(0, last) / 3)
    assert found.gpu_ns == pytest.approx(PER_STEP * 1_000)


def test_what_waits_inside_or_launches_once_becomes_no_graph():
    waiting = predict(steps(20_000, 1_000, sync=True), CudaGraph("step 1"))
    assert (waiting.instances, waiting.skipped, waiting.saved_ns) == (0, 1, 0)
    assert predict(steps(20_000, 1_000, launches=1), CudaGraph("op")).instances == 0


def test_fusing_leaves_one_launch_with_the_gpu_time_of_all():
    found = predict(steps(20_000, 1_000), Fused("op"))
    assert found.saved_ns == pytest.approx(OPS * 22_000 - 1_000 / 3)
    assert found.gpu_ns == pytest.approx(PER_STEP * 1_000)


def test_a_full_queue_holds_the_host_back_in_the_replay_too():
    capture, _ = full_queue()
    found = predict(analyse(capture), CachedLaunches("pushing"))
    assert abs(found.model_error) < 0.02
    assert found.saved_ns <= 5 * 400


def test_another_thread_goes_on_by_itself():
    capture = steps(20_000, 1_000)
    other = [call("cuLaunchKernel", 5_000 * n, 5_000 * n + 10, "launch", 900 + n, thread=2)
             for n in range(60)]  # fmt: skip
    gpu = [work("other", 5_000 * n + 20, 5_000 * n + 30, 900 + n, stream=8) for n in range(60)]
    both = analyse(
        capture.timeline.with_tables(
            calls=[*capture.timeline.calls.to_dicts(), *other],
            gpu=[*capture.timeline.gpu.to_dicts(), *gpu],
        )
    )
    alone, beside = (predict(each, CachedLaunches("op")) for each in (capture, both))
    assert beside.saved_ns == pytest.approx(alone.saved_ns)
    assert any("threads do not wait for each other" in note for note in beside.notes)


def test_ranges_of_other_threads_are_not_suggested_and_noted_where_they_are_asked_for():
    capture = steps(20_000, 1_000)
    calls = [call("cuLaunchKernel", 10_000 * n, 10_000 * n + 5_000, "launch", 900 + n, thread=2)
             for n in range(30)]  # fmt: skip
    gpu = [work("other", 10_000 * n + 6_000, 10_000 * n + 6_100, 900 + n, stream=8)
           for n in range(30)]  # fmt: skip
    ranges = [rng("beside", 10_000 * n, 10_000 * n + 9_000, thread=2) for n in range(30)]
    both = analyse(
        capture.timeline.with_tables(
            ranges=[*capture.timeline.ranges.to_dicts(), *ranges],
            calls=[*capture.timeline.calls.to_dicts(), *calls],
            gpu=[*capture.timeline.gpu.to_dicts(), *gpu],
        )
    )
    assert set(suggestions(both).get_column("range")) == {"op"}
    asked = predict(both, CachedLaunches("beside"))
    assert any("on other threads than the steps" in note for note in asked.notes)
    assert not any("other threads" in note for note in predict(both, CachedLaunches("op")).notes)


def test_a_range_outside_the_steps_is_refused():
    with pytest.raises(UsageError, match="'nowhere'") as caught:
        predict(steps(20_000, 1_000), CachedLaunches("nowhere"))
    assert caught.value.fields["range"] == "nowhere"


def test_suggestions_rank_what_can_be_changed_by_what_it_saves():
    found = suggestions(steps(20_000, 1_000))
    assert set(found.get_column("change")) == {"CachedLaunches", "OpPlan", "CudaGraph", "Fused"}
    assert set(found.get_column("range")) == {"op"}
    assert found.get_column("saved_ns").is_sorted(descending=True)
    assert suggestions(analyse(timeline())).is_empty()
