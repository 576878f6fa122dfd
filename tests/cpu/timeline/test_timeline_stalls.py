"""Full launch queues, cold launches, layers and verdicts of hand-made timelines."""

from __future__ import annotations

import pytest

pl = pytest.importorskip("polars")

from handmade import LAUNCH_NS, call, full_queue, rng, row, timeline, work  # noqa: E402

from launchkit.profiling.timeline.analysis.analysis import analyse  # noqa: E402


@pytest.mark.parametrize("overheads", [True, False], ids=["measured", "estimated"])
def test_waiting_for_a_full_queue_is_no_launch_cost(overheads):
    capture, waited = full_queue(overheads=overheads)
    made = analyse(capture)
    stalls = row(made.stalls, name="cuLaunchKernel")
    assert stalls["stall_method"] == ("measured" if overheads else "estimated")
    assert stalls["stall_ns"] == waited
    assert stalls["launch_ns"] == stalls["count"] * LAUNCH_NS
    assert stalls["launch_median_ns"] == LAUNCH_NS
    assert row(made.verdicts, name="pushing")["verdict"] == "GPU-bound"


def test_a_full_queue_without_gpu_work_is_a_warning_that_work_is_missing():
    capture, _ = full_queue(overheads=True)
    told = "launches waited for a full queue: work is missing"
    assert not any(told in each for each in analyse(capture).warnings)
    # As a slice that dropped what crosses its edges: the queue is full, and nothing executes.
    cut = capture.with_tables(gpu=capture.gpu.head(3).to_dicts())
    assert any(told in each for each in analyse(cut).warnings)


def test_an_estimate_is_said_to_be_one():
    made = analyse(full_queue()[0])
    assert any("estimated, the capture does not say" in each for each in made.warnings)
    assert not any("estimated" in each for each in analyse(full_queue(overheads=True)[0]).warnings)


def test_work_queued_before_the_capture_counts_as_queued():
    capture, waited = full_queue()
    late = capture.with_tables(calls=capture.calls.filter(pl.col("start_ns") > 2000),
                               ranges=[])  # fmt: skip
    kept = late.calls.filter(pl.col("end_ns") - pl.col("start_ns") > LAUNCH_NS)
    lost = waited - kept.select((pl.col("end_ns") - pl.col("start_ns") - LAUNCH_NS).sum()).item()
    # The launches left all waited: others, once all is done, say what one costs that does not.
    short = [call("cuLaunchKernel", 990_000 + 20 * n, 990_000 + 20 * n + LAUNCH_NS, "launch", 9000 + n)
             for n in range(9)]  # fmt: skip
    done = [work("k", 990_012 + 20 * n, 990_015 + 20 * n, 9000 + n) for n in range(9)]
    made = analyse(
        late.with_tables(calls=[*late.calls.to_dicts(), *short], gpu=[*late.gpu.to_dicts(), *done])
    )
    assert row(made.stalls, name="cuLaunchKernel")["stall_ns"] == waited - lost


def test_long_launches_over_a_short_queue_are_no_stalls():
    calls = [call("cuLaunchKernel", 1000 * n, 1000 * n + (500 if n % 9 == 4 else 10), "launch", n)
             for n in range(200)]  # fmt: skip
    gpu = [work("k", 1000 * n + 510, 1000 * n + 600, n) for n in range(200)]
    made = analyse(timeline([], calls, gpu))
    assert row(made.stalls, name="cuLaunchKernel")["stall_ns"] == 0


def test_first_launches_and_those_that_load_are_cold_and_stand_apart():
    calls = [
        call("cuLaunchKernel", 0, 500, "launch", 1),
        call("cuLaunchKernel", 1000, 1010, "launch", 2),
        call("cuLaunchKernel", 2000, 2030, "launch", 3),
        call("cuLaunchKernel", 3000, 3300, "launch", 4),
    ]
    gpu = [work("a", 600, 610, 1), work("a", 1020, 1030, 2), work("a", 2040, 2050, 3),
           work("a", 3400, 3410, 4)]  # fmt: skip
    loads = [{"process": 1, "thread": 1, "kind": "lazy_loading", "start_ns": 3050, "end_ns": 3250}]
    made = analyse(timeline([rng("r", 0, 4000)], calls, gpu, loads))
    assert made.cold.select("call_id", "cold_ns", "loading_ns", "first", "excess_ns").rows() == [
        (0, 500, 0, True, 480.0),
        (3, 300, 200, False, 280.0),
    ]
    assert row(made.ranges, name="r")["cold_ns"] == 800
    assert row(made.kernels, name="a")["launch_median_ns"] == 20


def test_a_launch_held_up_by_a_cold_one_of_another_thread_is_cold():
    quick = [call("cuLaunchKernel", 100 * n, 100 * n + 10, "launch", n) for n in range(20)]
    gpu = [work("a", 100 * n + 20, 100 * n + 30, n) for n in range(20)]
    loading = call("cuLaunchKernel", 3000, 9000, "launch", 50, thread=2)
    held = call("cuLaunchKernel", 3100, 9000, "launch", 51)
    more = [work("b", 9100, 9200, 50), work("a", 9300, 9310, 51)]
    made = analyse(timeline([], [*quick, loading, held], [*gpu, *more])).calls
    assert row(made, correlation=51)["cold"]
    assert made.filter("cold").get_column("correlation").sort().to_list() == [0, 50, 51]


def test_layers_come_from_names_and_from_what_annotate_was_given():
    ranges = [
        rng("model.layers.3.mixer", 0, 100),
        rng("causal_conv1d_fn", 10, 40),
        rng("helper", 20, 30),
        rng("anything", 100, 200, domain="launchkit", category="ssd_scan", payload="7"),
        rng("sampler", 300, 310),
    ]
    calls = [call("cuLaunchKernel", 22, 26, "launch", 1), call("cuLaunchKernel", 50, 60, "launch", 2),
             call("cuLaunchKernel", 120, 130, "launch", 3)]  # fmt: skip
    gpu = [work("k", 30, 35, 1), work("rms_norm_kernel", 65, 68, 2), work("k", 140, 150, 3)]
    made = analyse(timeline(ranges, calls, gpu))
    found = made.layers.select("layer", "slot", "total_ns", "launches", "gpu_ns").rows()
    assert found == [
        (3, "conv1d", 30, 1, 5),
        (3, "norm", 0, 1, 3),
        (3, None, 70, 0, 0),
        (7, "ssd", 100, 1, 10),
        (None, "sampling", 10, 0, 0),
    ]
    assert row(made.ops, name="ssd_scan")["slot"] == "ssd"


def one_op(python, launch, busy, **more):
    """Ten ops that compute, launch, and whose kernel takes as long as said."""
    ranges, calls, gpu, now, free = [], [], [], 0, 0
    for number in range(10):
        ranges.append(rng("op", now, now + python + launch))
        calls.append(call("cuLaunchKernel", now + python, now + python + launch, "launch", number))
        start = max(now + python + launch, free)
        free = start + busy
        gpu.append(work("k", start, free, number))
        now += python + launch
    return analyse(timeline(ranges, calls, gpu, **more))


@pytest.mark.parametrize(
    ("times", "verdict"),
    [((80, 20, 10), "Python-bound"), ((20, 80, 10), "launch-bound"), ((20, 20, 500), "GPU-bound")],
)
def test_the_verdict_is_the_part_that_the_gpu_waits_for(times, verdict):
    # The first launch is cold: the shares are those of the nine other ops.
    found = row(one_op(*times).verdicts, name="op")
    assert found["verdict"] == verdict
    assert found["python_share"] == pytest.approx(times[0] / sum(times[:2]))
    assert found["api_share"] == pytest.approx(times[1] / sum(times[:2]))


@pytest.mark.parametrize(("others", "verdict"), [(9, "GPU-bound"), (0, "Python-bound")])
def test_a_first_launch_that_compiles_for_long_decides_no_verdict_but_its_own(others, verdict):
    ranges, calls, gpu = (
        [rng("op", 0, 100_000)],
        [call("cuLaunchKernel", 99_000, 99_010, "launch", 0)],
        [],
    )
    for number in range(1, 1 + others):
        at = 100_000 + 20 * number
        ranges.append(rng("op", at, at + 20))
        calls.append(call("cuLaunchKernel", at + 10, at + 20, "launch", number))
    for number, made in enumerate(calls):
        start = made["end_ns"] + 5 + 500 * number
        gpu.append(work("k", start, start + 500, number))
    found = row(analyse(timeline(ranges, calls, gpu)).verdicts, name="op")
    assert found["verdict"] == verdict
    assert found["count"] == 1 + others
    assert found["total_ns"] == 100_000 + 20 * others


def test_no_verdict_below_what_the_recorder_does_not_know_of_itself():
    calibration = {"range_uncertainty_ns": 150.0}
    assert row(one_op(80, 20, 10, calibration=calibration).verdicts, name="op")["verdict"] == (
        "too short"
    )


def test_a_host_only_capture_says_nothing_of_gpus():
    ranges = [rng("op", 0, 100)]
    made = analyse(timeline(ranges, [call("k", 90, 100, "launch")], host_only=True))
    found = row(made.verdicts, name="op")
    assert found["verdict"] == "Python-bound"
    assert "no GPU work was captured" in found["reason"]


def test_the_driver_part_of_an_own_launch_is_its_call_and_the_rest_python():
    launch = call("add_kernel", 10, 60, "launch", find_ns=30, grid_ns=5, driver_ns=15)
    made = analyse(timeline([rng("op", 0, 100)], [launch], host_only=True))
    op = row(made.ranges, name="op")
    assert (op["launches"], op["api_ns"], op["python_ns"]) == (1, 15, 85)
